"""The jars of Apache Kafka: pinned in `jars.json`, kept in a cache, checked by digest.

The list is the whole dependency tree, resolved once, so nothing is resolved at run time. Every jar is fetched by its
own coordinates into one flat folder and must have the pinned SHA-256. Once all are there, no network is used.

`SKYSAIL_KAFKA_VERSION=4.2.0` runs another version, for tests: Kafka's own jars at that version, unverified.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.errors import MissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# 46 jars, 45 MB: 7.5 s with eight at a time.
_PARALLEL = 8
_TIMEOUT_S = 20

CACHE_VARIABLE = "SKYSAIL_CACHE"
VERSION_VARIABLE = "SKYSAIL_KAFKA_VERSION"
_OF_KAFKA = "org.apache.kafka:"
_PINS = Path(__file__).with_name("jars.json")


def download(coordinates: Sequence[str], repository: Path) -> list[Path]:
    """Download the jars `group:artifact:version`, and nothing they depend on, into a new repository folder.

    Returns:
        The path of each jar, in the order of `coordinates`.

    Raises:
        MissingError: One of them could not be fetched.
    """
    # Imported here: it takes 0.2 s, which only a machine's very first start should pay.
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=repository, timeout=_TIMEOUT_S)

    def fetch(coordinate: str) -> Path:
        group, artifact, version = coordinate.split(":")
        path: Path = context.project(group, artifact).at_version(version).artifact().resolve()
        return path

    pool = ThreadPoolExecutor(_PARALLEL)
    try:
        return list(pool.map(fetch, coordinates))
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors; jgo's "not found" is a RuntimeError
        raise MissingError(f"The jars of Apache Kafka could not be fetched: {error}") from error
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file: its name in the folder, its `group:artifact:version` and the SHA-256 of its bytes (hex).

    Without a SHA-256 any bytes will do.
    """

    name: str
    coordinates: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Pins:
    """A version of Apache Kafka and every jar that it needs."""

    version: str
    jars: tuple[Jar, ...]


@cache
def pinned() -> Pins:
    """Return the pins that this version of Skysail runs on, or those of the version that is tried."""
    document = json.loads(_PINS.read_text(encoding="utf-8"))
    jars, version = tuple(Jar(**entry) for entry in document["jars"]), document["kafka"]
    tried = os.environ.get(VERSION_VARIABLE) or version
    return Pins(tried, jars if tried == version else tuple(_at(jar, version, tried) for jar in jars))


def _at(jar: Jar, version: str, tried: str) -> Jar:
    """Return one of Kafka's jars at another version, any other jar as it is."""
    if not jar.coordinates.startswith(_OF_KAFKA):
        return jar
    return Jar(jar.name.replace(version, tried), jar.coordinates.replace(version, tried), "")


def cache_folder() -> Path:
    """Return where the jars are kept: `$SKYSAIL_CACHE/kafka-<version>`, by default under `~/.cache/skysail`."""
    root = os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "skysail"
    return Path(root) / f"kafka-{pinned().version}"


def missing(folder: Path, jars: Iterable[Jar]) -> tuple[Jar, ...]:
    """Return the jars that are not in `folder`; reads no content."""
    return tuple(jar for jar in jars if not (folder / jar.name).is_file())


def verify(folder: Path, jars: Iterable[Jar]) -> None:
    """Check every jar's SHA-256 (45 MB take about 0.1 s).

    Raises:
        MissingError: A file is absent, or is not the pinned one.
    """
    for jar in jars:
        try:
            digest = hashlib.sha256((folder / jar.name).read_bytes()).hexdigest()
        except OSError as error:
            raise MissingError(f"Cannot read {folder / jar.name}: {error.strerror}.") from error
        if jar.sha256 and digest != jar.sha256:
            raise MissingError(
                f"{folder / jar.name} is not the pinned {jar.coordinates}: SHA-256 {digest}, expected {jar.sha256}. "
                "Delete the file; the next start fetches it again."
            )


def ensure(
    folder: Path | None = None,
    jars: Sequence[Jar] | None = None,
    fetch: Callable[[Sequence[str], Path], list[Path]] = download,
) -> Path:
    """Return the folder with all jars in it, fetching what is absent and verifying all of them.

    Files appear under their final name only after their checksum was right, so two processes may fetch at once and an
    interrupted fetch leaves nothing half-written.

    Raises:
        MissingError: A jar cannot be fetched, or its checksum is wrong.
    """
    folder = folder or cache_folder()
    jars = jars if jars is not None else pinned().jars
    if absent := missing(folder, jars):
        _fetch(folder, absent, fetch)
    verify(folder, jars)
    return folder


def _fetch(folder: Path, absent: Sequence[Jar], fetch: Callable[[Sequence[str], Path], list[Path]]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder)
    except OSError as error:
        raise MissingError(
            f"Cannot write to {folder}: {error.strerror}. Set {CACHE_VARIABLE} to a folder where you may write."
        ) from error
    with staging as name:
        stage = Path(name)
        for jar, path in zip(absent, fetch([jar.coordinates for jar in absent], stage / "repository"), strict=True):
            path.rename(stage / jar.name)
        verify(stage, absent)
        for jar in absent:
            (stage / jar.name).replace(folder / jar.name)
