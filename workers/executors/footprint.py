"""What models take in the process of a host, and the bound on all of it.

    at start        the process may take its own data and so much more: models and batches
    a library       is imported without the bound, and comes on top of it
    a model         takes what the process grew by when it was loaded, at least what its files take that are new here

The bound is on data (setrlimit(2): RLIMIT_DATA), not on addresses, of which libraries reserve many gigabytes. What
exceeds it fails in the model that asks for it, and the machine goes on.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from typing import TYPE_CHECKING, Final, TypeVar

import psutil

from workers import manifest as manifests
from workers.errors import WorkerError, refusing
from workers.packages.variants import STAGES, runtime_module
from workers.runtimes.stages.store import HERE

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from pathlib import Path

    from workers.manifest import Manifest

T = TypeVar("T")
FUNCTION: Final = "function"  # the runtime of functions: what their modules hold is the model


class Footprint:
    """The memory of this process.

    Args:
        most_bytes: that models and batches may take; 0 = as much as there is.
    """

    def __init__(self, most_bytes: int) -> None:
        self._process = psutil.Process()
        self._most = most_bytes
        self._libraries = self._data()
        self._bound()

    def measured(self, folder: Path, load: Callable[[], T]) -> tuple[T, int]:
        """Load a package; returns what `load` gave, and what it takes (bytes).

        Raises:
            PackageError: it cannot be loaded.
            MemoryError: it does not fit.
        """
        manifest = manifests.pinned(folder).manifest
        self._import(manifest.runtime)
        least, modules = _unshared(folder, manifest), len(sys.modules)
        loaded, grown = self._growth(load)
        if len(sys.modules) > modules and manifest.runtime != FUNCTION:
            del loaded  # parts of its library came with it, and stay: the second time it is the model alone
            give_back()
            loaded, grown = self._growth(load)
        return loaded, max(grown, least)

    def _growth(self, load: Callable[[], T]) -> tuple[T, int]:
        before = self._process.memory_info().rss
        loaded = load()
        return loaded, self._process.memory_info().rss - before

    def _import(self, runtime: str) -> None:
        """Import a runtime with its library, which may take what it needs."""
        before = self._data()
        if self._most:
            resource.setrlimit(resource.RLIMIT_DATA, (_hard(), _hard()))
        try:
            runtime_module(runtime)
        finally:
            self._libraries += max(0, self._data() - before)
            self._bound()

    def _bound(self) -> None:
        if not self._most:
            return
        most, hard = self._libraries + self._most, _hard()
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))

    def _data(self) -> int:
        return int(self._process.memory_info().data)


def give_back() -> None:
    """Give freed memory back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _unshared(folder: Path, manifest: Manifest) -> int:
    """Return the size of a package's files, without the steps that other models here hold already."""
    held: Container[object] = HERE if manifest.runtime == STAGES else ()
    with refusing(f"{folder} cannot be loaded", but=(WorkerError,)):
        return sum((folder / name).stat().st_size for name, digest in manifest.files.items() if digest not in held)


def _hard() -> int:
    return resource.getrlimit(resource.RLIMIT_DATA)[1]
