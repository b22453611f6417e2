"""Memory that was freed goes back to the system, and only if it is worth the time."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from streams.runtime.process.freed_memory import WORTH_BYTES, FreedMemory


class Heap:
    """A heap that says what it is told to say."""

    def __init__(self) -> None:
        self.free = self.trims = 0

    def free_bytes(self) -> int:
        """Return what nobody uses: pages that were given back are still counted."""
        return self.free

    def trim(self) -> None:
        """Count it."""
        self.trims += 1


def test_only_what_became_free_since_counts() -> None:
    """What was given back is not given back again, until it has been used meanwhile."""
    heap = Heap()
    freed = FreedMemory(heap)
    for free, trims in ((WORTH_BYTES - 1, 0), (WORTH_BYTES, 1), (WORTH_BYTES, 1), (2 * WORTH_BYTES, 2)):
        heap.free = free
        freed.give_back()
        assert heap.trims == trims
    heap.free = 0
    assert not freed.give_back()
    heap.free = WORTH_BYTES
    assert freed.give_back()


# In a process of its own: in one that other tests have made large, a burst fits into what is free.
BURST = """
from pathlib import Path
from streams.runtime.process.freed_memory import FreedMemory

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096

freed = FreedMemory()
freed.give_back()
before = resident_bytes()
burst = [bytes(20_000) for _ in range(8_000)]
kept = burst[:: len(burst) // 16]
full = resident_bytes()
del burst
assert freed.give_back()
assert resident_bytes() - before < (full - before) / 4
assert kept
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc"
)
def test_the_system_has_it_back() -> None:
    """A part of a burst is still in use, piece by piece: glibc alone would keep all."""
    ran = subprocess.run([sys.executable, "-c", BURST], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
