"""Answers that are overdue: queries whose next models must be asked now, answer or no answer from those before."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streams.operators.selection.pending import Pending

_BUCKET_US: Final = 1_000  # as the combiner keeps deadlines


class DueSteps:
    """Queries whose answers are overdue at some time, by the millisecond."""

    __slots__ = ("_buckets", "_due")

    def __init__(self) -> None:
        self._due: dict[int, list[tuple[Pending, int]]] = {}
        self._buckets: list[int] = []

    def add(self, query: Pending, at_us: int) -> None:
        """Expect a query's latest models to have answered by then."""
        assert query.plan is not None
        bucket = at_us // _BUCKET_US
        if bucket not in self._due:
            self._due[bucket] = []
            heapq.heappush(self._buckets, bucket)
        self._due[bucket].append((query, len(query.plan.taken)))

    def next_due(self) -> int | None:
        """Return when the next is overdue (us); what was answered or has gone on is dropped."""
        while self._buckets:
            due = self._due[self._buckets[0]]
            due[:] = filter(_still_waits, due)
            if due:
                return self._buckets[0] * _BUCKET_US
            del self._due[heapq.heappop(self._buckets)]
        return None

    def due(self, now_us: int) -> Iterator[Pending]:
        """Remove and yield queries whose latest models have not answered in time."""
        while self._buckets and self._buckets[0] * _BUCKET_US <= now_us:
            for waiting in self._due.pop(heapq.heappop(self._buckets)):
                if _still_waits(waiting):
                    yield waiting[0]


def _still_waits(waiting: tuple[Pending, int]) -> bool:
    query, taken = waiting
    return not query.answered and query.plan is not None and len(query.plan.taken) == taken
