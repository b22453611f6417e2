"""The jars of Apache Kafka: pinned in `jars.json`, kept in a cache, checked by digest.

The list is the whole dependency tree, resolved once, so nothing is resolved at run time. Every jar is fetched by its
own coordinates into one flat folder and must have the pinned SHA-256. Once all are there, no network is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.local.errors import MissingError
from deploy.local.maven import download

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

CACHE_VARIABLE = "SKYSAIL_CACHE"
_PINS = Path(__file__).with_name("jars.json")


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file: its name in the folder, its `group:artifact:version` and the SHA-256 of its bytes (hex)."""

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
    """Return the pins that this version of Skysail runs on."""
    document = json.loads(_PINS.read_text(encoding="utf-8"))
    return Pins(document["kafka"], tuple(Jar(**entry) for entry in document["jars"]))


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
        if digest != jar.sha256:
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
        raise MissingError(f"Cannot write to {folder}: {error.strerror}. Set {CACHE_VARIABLE} elsewhere.") from error
    with staging as name:
        stage = Path(name)
        for jar, path in zip(absent, fetch([jar.coordinates for jar in absent], stage / "repository"), strict=True):
            path.rename(stage / jar.name)
        verify(stage, absent)
        for jar in absent:
            (stage / jar.name).replace(folder / jar.name)
