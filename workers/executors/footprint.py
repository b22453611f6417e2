"""What models take in the process of a host, and the bound on all of it.

    at start        the process may take its own data and so much more: models and batches
    a library       comes with the first model that needs it, and on top of the bound; that model is loaded once more
    a model         takes what the process grew by when it was loaded, at least what its files take that are new here,
                    and its trunk, whether that was here already or not
    not alone       where another thread imports or loads meanwhile, the model is loaded once more, as where it would
                    not fit; one that is never alone is reckoned by its files

The bound is on data (setrlimit(2): RLIMIT_DATA), not on addresses, of which libraries reserve many gigabytes. What
exceeds it fails in the model that asks for it, and the machine goes on.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import psutil

from workers import manifest as manifests
from workers.errors import WorkerError, refusing
from workers.packages.variants import STAGES
from workers.runtimes.stages.store import HERE
from workers.runtimes.trunks import trunk_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from workers.manifest import Manifest

T = TypeVar("T")
FUNCTION: Final = "function"  # the runtime of functions: what their modules hold is the model
# So much more is there while a package is loaded, which may bring a library: torch takes 780 MiB.
LIBRARY_BYTES: Final = 1 << 30
# How often a model is loaded until it was measured alone.
TRIES: Final = 3


class _Taken(NamedTuple):
    """What this process takes (bytes): pages in memory, and data."""

    rss: int
    data: int


class _Tried(NamedTuple, Generic[T]):
    """What loading once gave: what, how long it took (us), by how much the process grew (bytes).

    And whether no other package was being loaded meanwhile.
    """

    loaded: T
    took_us: int
    grown_bytes: int
    were_no_others: bool


class Unmeasured:
    """The memory of a process that holds one model: bounded as a whole, and not measured, as nothing else would fit.

    Args:
        most_bytes: that the process may take; 0 = as much as there is.
    """

    lacks: Final = "it does not fit into the memory that worker.memory_mib gives it"

    def __init__(self, most_bytes: int) -> None:
        if most_bytes:
            resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))

    def measured(self, folder: Path, load: Callable[[], T]) -> tuple[T, int, int]:
        """Load a package; returns what `load` gave, 0 bytes, and how long it took (us)."""
        loaded, took_us = _timed(load)
        return loaded, 0, took_us


class Footprint:
    """The memory of this process.

    Attributes:
        lacks: what is to be said where it does not do.

    Args:
        most_bytes: that models and batches may take; 0 = as much as there is.
        models_bytes: of these, that models may take; 0 = as much as there is. What exceeds it is measured again.
    """

    lacks: Final = "it does not fit into the memory of its host (hosts.<pool>.memory_mib)"

    def __init__(self, most_bytes: int, models_bytes: int = 0) -> None:
        self._process = psutil.Process()
        self._most = most_bytes
        self._libraries = self._taken().data
        self._lock = threading.Lock()
        self._models = models_bytes or sys.maxsize
        self._loading = 0  # packages: one that takes long, and others beside it
        self._begun = 0  # how many so far
        self._bound(0)

    def measured(self, folder: Path, load: Callable[[], T]) -> tuple[T, int, int]:
        """Load a package; returns what `load` gave, what it takes (bytes), and how long it took (us).

        Raises:
            PackageError: it cannot be loaded.
            MemoryError: it does not fit.
        """
        manifest = manifests.pinned(folder).manifest
        least, trunk_bytes = _sizes(folder, manifest)
        self._bound(1)
        try:
            if manifest.runtime == FUNCTION:
                tried = self._function(load, least)
            else:
                tried = self._alone(load, self._models - trunk_bytes)
        finally:
            self._bound(-1)
        return tried.loaded, max(tried.grown_bytes, least) + trunk_bytes, tried.took_us

    def _function(self, load: Callable[[], T], least: int) -> _Tried[T]:
        """Load a function once: what it has imported does not come again."""
        modules, data = len(sys.modules), self._taken().data
        tried = self._tried(load)
        if len(sys.modules) > modules:
            self._libraries += max(0, self._taken().data - data - max(tried.grown_bytes, least))
        return tried if tried.were_no_others else tried._replace(grown_bytes=0)

    def _alone(self, load: Callable[[], T], most_bytes: int) -> _Tried[T]:
        """Load until it was measured by itself and fits, a few times at most; the least counts."""
        sizes: list[int] = []
        for tries in count(1):
            modules, data = len(sys.modules), self._taken().data
            tried = self._tried(load)
            is_library = len(sys.modules) > modules
            if tried.were_no_others and not is_library:
                sizes.append(tried.grown_bytes)
            if tries == TRIES or self._are_others or (sizes and min(sizes) <= most_bytes):
                return tried._replace(grown_bytes=min(sizes, default=0))
            del tried  # what was imported stays: the next time it is the model alone
            give_back()
            if is_library:
                gc.freeze()  # libraries are not looked through again: that took 21 ms out of whatever ran
                self._libraries += max(0, self._taken().data - data)
        raise AssertionError("it is not tried for ever")

    def _tried(self, load: Callable[[], T]) -> _Tried[T]:
        """Load once."""
        begun, were_others, before = self._begun, self._are_others, self._taken().rss
        loaded, took_us = _timed(load)
        grown_bytes = self._taken().rss - before
        return _Tried(loaded, took_us, grown_bytes, not were_others and begun == self._begun)

    @property
    def _are_others(self) -> bool:
        return self._loading > 1

    def _bound(self, loads: int) -> None:
        """Set the bound, when so many more packages are being loaded."""
        with self._lock:
            self._loading += loads
            self._begun += max(0, loads)
            if self._most:
                self._limit(LIBRARY_BYTES if self._loading else 0)

    def _limit(self, more_bytes: int) -> None:
        most, hard = self._libraries + self._most + more_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))

    def _taken(self) -> _Taken:
        found = self._process.memory_info()
        return _Taken(int(found.rss), int(found.data))


def give_back() -> None:
    """Give freed memory back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _timed(load: Callable[[], T]) -> tuple[T, int]:
    began_s = time.perf_counter()
    loaded = load()
    return loaded, int((time.perf_counter() - began_s) * 1e6)


def _sizes(folder: Path, manifest: Manifest) -> tuple[int, int]:
    """Return the size of a package's files without what other models here hold, and of a trunk that they hold."""
    trunk = trunk_of(manifest)
    held = {name for name, digest in manifest.files.items() if manifest.runtime == STAGES and digest in HERE}
    has_trunk = bool(trunk.digest) and (trunk.key in HERE or held.issuperset(trunk.files))
    if has_trunk:
        held |= {*trunk.files}
    with refusing(f"{folder} cannot be loaded", but=(WorkerError,)):
        sizes = {name: (folder / name).stat().st_size for name in manifest.files}
    new = sum(size for name, size in sizes.items() if name not in held)
    return new, sum(sizes[name] for name in trunk.files) if has_trunk else 0
