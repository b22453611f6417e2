"""What models take in the process of a host, and the bound on all of it.

    at start        the process may take its own data and so much more: models and batches
    a library       comes with the first model that needs it, and on top of the bound; that model is loaded once more
    a model         takes what the process grew by when it was loaded, at least what its files take that are new here,
                    and its trunk, whether that was here already or not

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
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

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


class _Taken(NamedTuple):
    """What this process takes (bytes): pages in memory, and data."""

    rss: int
    data: int


class Footprint:
    """The memory of this process.

    Args:
        most_bytes: that models and batches may take; 0 = as much as there is.
    """

    def __init__(self, most_bytes: int) -> None:
        self._process = psutil.Process()
        self._most = most_bytes
        self._libraries = self._taken().data
        self._lock = threading.Lock()
        self._loading = 0  # packages: one that takes long, and others beside it
        self._bound(0)

    def measured(self, folder: Path, load: Callable[[], T]) -> tuple[T, int, int]:
        """Load a package; returns what `load` gave, what it takes (bytes), and how long it took (us).

        Raises:
            PackageError: it cannot be loaded.
            MemoryError: it does not fit.
        """
        manifest = manifests.pinned(folder).manifest
        (least, trunk_bytes), modules, before = _sizes(folder, manifest), len(sys.modules), self._taken()
        self._bound(1)
        try:
            loaded, took_us = _timed(load)
            if len(sys.modules) > modules and manifest.runtime != FUNCTION:
                del loaded  # what was imported stays: the second time it is the model alone
                give_back()
                gc.freeze()  # libraries are not looked through again: that took 21 ms out of whatever ran
                self._libraries += max(0, self._taken().data - before.data)
                before = self._taken()
                loaded, took_us = _timed(load)
            after = self._taken()
        finally:
            self._bound(-1)
        grown = max(after.rss - before.rss, least)
        if len(sys.modules) > modules and manifest.runtime == FUNCTION:
            self._libraries += max(0, after.data - before.data - grown)
            self._bound(0)
        return loaded, grown + trunk_bytes, took_us

    def _bound(self, loads: int) -> None:
        """Set the bound, when so many more packages are being loaded."""
        with self._lock:
            self._loading += loads
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
