"""The objects of a process by digest, and the sub-results of late: what equal steps need and make is there once.

An object lives as long as a model uses it. Large parameters lie in a file without a name that is mapped, so that only
what queries touch takes memory, and the system can take that back. Nobody else can reach or change this file.
"""

from __future__ import annotations

import mmap
import tempfile
import threading
import weakref
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

from workers.runtimes.stages.steps import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from workers.runtimes.stages.steps import Content, FittedStep

T = TypeVar("T")
RECENT_BYTES = 4 << 20  # of sub-results, in each of two generations
_MAPPED_BYTES = 64 << 10  # smaller files stay in memory: a mapping takes whole pages


class Recent:
    """Sub-results by what made them and what they were made from: those of late, and those before.

    When the young ones take `most_bytes` they become the old ones, and the old ones are gone. So a batch finds what the
    last batches made, whichever model they were for.
    """

    def __init__(self, most_bytes: int = RECENT_BYTES) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._young: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self._old: Mapping[str, dict[Any, Any]] = {}

    def tables(self, identity: str) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Return the young and the old results of one maker, by input; new ones go into the first."""
        return self._young[identity], self._old.get(identity, {})

    def grew(self, added_bytes: int) -> None:
        """Note that results were added."""
        self._bytes += added_bytes
        if self._bytes > self._most:
            self._bytes, self._old, self._young = 0, self._young, defaultdict(dict)


class Users:
    """How many models use something; one that is used by several has its results kept."""

    def __init__(self) -> None:
        self.count = 0

    def join(self, model: object) -> None:
        """Count a model as long as it lives."""
        self.count += 1
        weakref.finalize(model, self._leave).atexit = False

    def _leave(self) -> None:
        self.count -= 1


class Store:
    """Objects by key, for models that are loaded in any thread.

    Attributes:
        recent: sub-results.
    """

    def __init__(self, recent: Recent | None = None) -> None:
        self.recent = Recent() if recent is None else recent
        self._lock = threading.RLock()  # what is made may be made of what is here
        self._objects: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        """Return how many objects there are."""
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        """Tell whether an object is there."""
        return key in self._objects

    def take(self, key: str, make: Callable[[], T]) -> T:
        """Return the object, which is made if nobody holds it."""
        with self._lock:
            found: T | None = self._objects.get(key)
            if found is None:
                found = self._objects[key] = make()
            return found

    def step(self, digest: str, read: Callable[[], bytes], make: Callable[[FittedStep], T]) -> T:
        """Return what was made of a step's file, which is read only if nobody holds that."""

        def made() -> T:
            content = mapped(read())
            found = make(unpacked(content))
            if isinstance(content, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                content.madvise(mmap.MADV_DONTNEED)  # what the checks have touched is no query's
            return found

        return self.take(digest, made)


def mapped(content: bytes) -> Content:
    """Return large content as a mapping of a file without a name; as it is where there can be none."""
    if len(content) < _MAPPED_BYTES:
        return content
    try:
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.flush()
            return mmap.mmap(file.fileno(), len(content), access=mmap.ACCESS_READ)
    except OSError:  # no room, or nowhere to write
        return content


HERE: Final = Store()  # this process's
