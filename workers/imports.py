"""Imports libraries: one at a time in a process, and without what they would import for nothing.

Two threads may import two libraries that have modules in common, in another order. To avoid a deadlock Python then goes
on with modules that are half there. So one library is imported after the other. Code that a package names is imported
without waiting: it may take for ever.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import ModuleType

_ONE: Final = threading.RLock()


class _Absent(importlib.abc.MetaPathFinder):
    """A finder that reports modules as not installed, to a thread that wants to do without them, and to no other one.

    It stays among the finders for good: an import of another thread that walks through them while one is taken out
    passes over the next one.
    """

    def __init__(self) -> None:
        self.here = threading.local()

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in getattr(self.here, "names", ()):
            raise ModuleNotFoundError(f"{fullname} is not needed by what is being imported", name=fullname)


_ABSENT: Final = _Absent()


def library(name: str, *, without: Collection[str] = ()) -> ModuleType:
    """Import a module of a library once no other thread imports one.

    Args:
        name: of the module.
        without: modules that are not installed for what this thread imports now, unless they have been imported.
    """
    with _ONE, _doing_without(without):
        return importlib.import_module(name)


@contextmanager
def _doing_without(names: Collection[str]) -> Iterator[None]:
    if names and _ABSENT not in sys.meta_path:
        sys.meta_path.insert(0, _ABSENT)
    before = getattr(_ABSENT.here, "names", ())
    _ABSENT.here.names = names or before
    try:
        yield
    finally:
        _ABSENT.here.names = before
