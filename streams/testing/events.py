"""What is still to happen in virtual time, in order of time; of equal times, as it was added: one seed, one run.

add ──▶ the queue ──take──▶ the driver, which lets roles do all that they can in between
             └─────run───▶ simulations without roles: an event after the other, and a column of arrivals beside
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# What happens at a time (us), and with what.
Happen: TypeAlias = "Callable[[int, Any], None]"
_NEVER = 1 << 62


class Events:
    """The queue."""

    __slots__ = ("_heap", "_is_over", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Happen, Any]] = []
        self._number = 0
        self._is_over = False

    @property
    def next_us(self) -> int | None:
        """When the next event is; None = there is none."""
        return self._heap[0][0] if self._heap else None

    def add(self, at_us: int, happen: Happen, about: Any = None) -> None:
        """Have something happen at a time."""
        self._number += 1
        heappush(self._heap, (at_us, self._number, happen, about))

    def take(self, now_us: int, happen: Happen) -> Any:
        """Take what the next event is about, if its time has come and it is this one that happens; else None."""
        if not self._heap or self._heap[0][0] > now_us or self._heap[0][2] != happen:
            return None
        return heappop(self._heap)[3]

    def stop(self) -> None:
        """Let nothing more happen."""
        self._is_over = True

    def run(self, came_us: Iterable[int] = (), come: Happen | None = None) -> int:
        """Let everything happen, what follows from it included; return the time of the last event (us).

        Args:
            came_us: arrivals, rising; each comes before what is to happen at its time.
            come: is called with each of these times, and its number from 0.
        """
        heap, now_us, number = self._heap, 0, 0
        arrivals = iter(came_us)
        next_us = next(arrivals, _NEVER)
        while not self._is_over and (heap or next_us < _NEVER):
            if next_us < _NEVER and (not heap or next_us <= heap[0][0]):
                assert come is not None, "who has arrivals says what comes"
                now_us = next_us
                come(now_us, number)
                number += 1
                next_us = next(arrivals, _NEVER)
            else:
                now_us, _, happen, about = heappop(heap)
                happen(now_us, about)
        return now_us
