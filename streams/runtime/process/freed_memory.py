"""Gives memory that was freed back to the system, where the C library does not.

glibc gives back what lies behind everything that is still in use, and keeps the rest for later: after a burst of
records that waited together a process would stay as large as it was at its largest.
"""

from __future__ import annotations

import ctypes
from typing import Final, Protocol

# So much must have become free since the last time. Then it takes some 0.15 ms a MiB, in which nothing else is done.
WORTH_BYTES: Final = 32 << 20
_FIELDS: Final = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallInfo(ctypes.Structure):
    """What glibc tells of its memory; see mallinfo(3)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS.split())

    fordblks: int


class Heap(Protocol):
    """The memory of a process."""

    def free_bytes(self) -> int:
        """Return how much of it nobody uses, whether the system has it back or not."""
        ...

    def trim(self) -> None:
        """Give back whole pages that nobody uses."""
        ...


class _Glibc:
    """glibc's, from 2.33 on."""

    def __init__(self) -> None:
        """Find the functions.

        Raises:
            AttributeError: this is another library.
        """
        library = ctypes.CDLL(None)
        self._tell, self._trim = library.mallinfo2, library.malloc_trim
        self._tell.restype = _MallInfo

    def free_bytes(self) -> int:
        """Return how much of it nobody uses, whether the system has it back or not."""
        found: _MallInfo = self._tell()
        return found.fordblks

    def trim(self) -> None:
        """Give back whole pages that nobody uses."""
        self._trim(ctypes.c_size_t(0))


def _here() -> Heap | None:
    try:
        return _Glibc()
    except (AttributeError, OSError, TypeError):
        return None


class FreedMemory:
    """What a process has freed and the system has not back.

    Args:
        heap: of the process; None = its C library cannot tell.
    """

    def __init__(self, heap: Heap | None = None) -> None:
        self._heap = heap or _here()
        self._left = 0  # that was free when it was given back last

    def give_back(self) -> bool:
        """Give it back if it is much; tell whether it was."""
        if self._heap is None:
            return False
        free = self._heap.free_bytes()
        self._left = min(self._left, free)
        if free - self._left < WORTH_BYTES:
            return False
        self._heap.trim()
        self._left = self._heap.free_bytes()
        return True
