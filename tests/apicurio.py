"""A real schema registry for tests: Apicurio Registry, which speaks Confluent's protocol, as a child process.

Its distribution (159 MB) is fetched once, by its coordinates and its SHA-256, into the folder of the other downloads.
"""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import ClassVar

from jgo.maven import MavenContext

from deploy.errors import MissingError
from deploy.local.jars import cache_folder
from deploy.local.java import find_java
from deploy.local.process import free_port
from deploy.local.properties import HOST
from deploy.local.server import LocalServer

VERSION = "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
_MAIN = "quarkus-run.jar"


class Apicurio(LocalServer):
    """One registry that keeps everything in memory."""

    name: ClassVar[str] = "registry"

    @property
    def url(self) -> str:
        """Where a Confluent client connects."""
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"

    def _prepare(self) -> list[str]:
        places = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": self.port,
            "quarkus.management.host": HOST,
            "quarkus.management.port": free_port(),
        }
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [
            str(find_java().path),
            *options,
            *(f"-D{name}={value}" for name, value in places.items()),
            "-jar",
            str(distribution() / _MAIN),
        ]

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def distribution() -> Path:
    """Return the folder of the unpacked distribution.

    Raises:
        MissingError: it is not there and cannot be fetched, or is not the pinned one.
    """
    folder = cache_folder().parent / f"apicurio-registry-{VERSION}"
    if not (folder / _MAIN).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as stage:
            unpacked = Path(stage) / "unpacked"
            with tarfile.open(_fetched(Path(stage))) as archive:
                archive.extractall(unpacked, filter="data")
            unpacked.rename(folder)
    return folder


def _fetched(stage: Path) -> Path:
    component = MavenContext(repo_cache=stage, timeout=20).project("io.apicurio", "apicurio-registry-app")
    try:
        path = Path(component.at_version(VERSION).artifact(classifier="all", packaging="tar.gz").resolve())
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors; jgo's "not found" is a RuntimeError
        raise MissingError(f"Apicurio Registry could not be fetched: {error}") from error
    if (digest := hashlib.sha256(path.read_bytes()).hexdigest()) != SHA256:
        raise MissingError(f"Apicurio Registry {VERSION} has SHA-256 {digest}, expected {SHA256}")
    return path
