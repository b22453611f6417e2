"""Queries about which metrics may still be told, until their windows end; the first ones are forgotten beyond a bound.

Two things are bounded: their number, and what large ones have beyond a usual prediction's size. When windows end is in
a heap. A forgotten query stays in it for a while: it is made anew before it is twice as long as what is held.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.operators.join.shared_buffer import USUAL_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from schemas.records import Measurement

MOST_HELD: Final = 200_000
MOST_LARGE_BYTES: Final = 16 << 20  # as predictions are written; about four times that when they have been read
_FEW: Final = 128

Place = tuple[int, str]  # partition and query


class HeldQuery(NamedTuple):
    """A query about which metrics may be told."""

    about: Measurement  # without values
    end_us: int
    told: list[str]  # names of metrics; an empty set would take 160 bytes more
    size: int  # bytes of its prediction

    @property
    def large_bytes(self) -> int:
        """What it has beyond the usual."""
        return max(0, self.size - USUAL_BYTES)


class HeldQueries:
    """Queries that are held, the first ones first."""

    __slots__ = ("_due", "_held", "_large_bytes")

    def __init__(self) -> None:
        self._held: dict[Place, HeldQuery] = {}
        self._due: list[tuple[int, int, str]] = []
        self._large_bytes = 0

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)

    @property
    def ends(self) -> int:
        """How many ends of windows are remembered."""
        return len(self._due)

    def get(self, place: Place) -> HeldQuery | None:
        """Return what is held there."""
        return self._held.get(place)

    def hold(self, place: Place, query: HeldQuery) -> None:
        """Hold one that is not held yet."""
        self._held[place] = query
        self._large_bytes += query.large_bytes
        heapq.heappush(self._due, (query.end_us, *place))

    def surplus(self) -> Iterator[HeldQuery]:
        """Forget and yield the first ones, as long as there are too many."""
        while len(self._held) > MOST_HELD or self._large_bytes > MOST_LARGE_BYTES:
            yield self._pop(next(iter(self._held)))
        if len(self._due) > 2 * len(self._held) + _FEW:
            self._sort()

    def ended(self, ended_us: Mapping[int, int], now_us: int) -> HeldQuery | None:
        """Return one whose window has ended, and hold it no more; None: there is none.

        Args:
            ended_us: by partition: windows that were over by then have ended.
            now_us: the time, for other partitions.
        """
        while self._due and self._due[0][0] <= ended_us.get(self._due[0][1], now_us):
            end_us, number, query_id = heapq.heappop(self._due)
            found = self._held.get((number, query_id))
            if found is not None and found.end_us == end_us:
                return self._pop((number, query_id))
        return None

    def next_due(self) -> int | None:
        """Return when the first window ends; None where nothing is held."""
        return self._due[0][0] if self._due else None

    def forget_partitions(self, gone: Iterable[int]) -> None:
        """Drop what is held of some partitions."""
        numbers = {*gone}
        for place in [place for place in self._held if place[0] in numbers]:
            self._pop(place)
        self._sort()

    def _pop(self, place: Place) -> HeldQuery:
        found = self._held.pop(place)
        self._large_bytes -= found.large_bytes
        return found

    def _sort(self) -> None:
        self._due = [(held.end_us, *place) for place, held in self._held.items()]
        heapq.heapify(self._due)
