"""What is due at a time unless it is of no use by then, by the millisecond."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
BUCKET_US: Final = 1_000  # as deadlines are kept


class Timers(Generic[T]):
    """Items by when they are due.

    Args:
        still: tells whether an item is of any use yet.
    """

    __slots__ = ("_buckets", "_due", "_still")

    def __init__(self, still: Callable[[T], bool]) -> None:
        self._still = still
        self._due: dict[int, list[T]] = {}
        self._buckets: list[int] = []

    def add(self, item: T, at_us: int) -> None:
        """Keep an item until then."""
        bucket = at_us // BUCKET_US
        if bucket not in self._due:
            self._due[bucket] = []
            heapq.heappush(self._buckets, bucket)
        self._due[bucket].append(item)

    def next_due(self) -> int | None:
        """Return when the next is due (us); what is of no use any more is dropped."""
        while self._buckets:
            due = self._due[self._buckets[0]]
            due[:] = filter(self._still, due)
            if due:
                return self._buckets[0] * BUCKET_US
            del self._due[heapq.heappop(self._buckets)]
        return None

    def due(self, now_us: int) -> Iterator[T]:
        """Remove and yield what is due and still of use."""
        while self._buckets and self._buckets[0] * BUCKET_US <= now_us:
            yield from filter(self._still, self._due.pop(heapq.heappop(self._buckets)))
