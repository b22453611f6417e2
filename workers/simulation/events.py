"""Events in order of time; of equal times, in the order in which they were added: one seed, one run."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

# What happens at a time (us), and with what.
Happen: TypeAlias = "Callable[[int, Any], None]"


class Events:
    """What is still to happen."""

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Happen, Any]] = []
        self._number = 0

    def add(self, at_us: int, happen: Happen, about: Any = None) -> None:
        """Have something happen at a time."""
        self._number += 1
        heappush(self._heap, (at_us, self._number, happen, about))

    def run(self) -> int:
        """Let everything happen, what follows from it included; return the time of the last event (us)."""
        heap, now_us = self._heap, 0
        while heap:
            now_us, _, happen, about = heappop(heap)
            happen(now_us, about)
        return now_us
