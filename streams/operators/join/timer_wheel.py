"""A timer wheel: the ids that are due in each second, at eight bytes an entry, for millions of windows."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from streams.operators.ids import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Container


class TimerWheel:
    """Buckets of ids by the second in which they are due."""

    __slots__ = ("_bucket", "_buckets", "_length", "_second", "_seconds")

    def __init__(self) -> None:
        self._buckets: dict[int, list[str]] = {}
        self._seconds: list[int] = []
        self._second: int | None = None  # the second added to last: ids of one poll are mostly due in one second
        self._bucket: list[str] = []  # that second's
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, due_us: int, name: str) -> None:
        """Note that `name` is due at `due_us`, rounded up to a second."""
        second = -(-due_us // SECOND_US)
        if second != self._second:
            self._turn(second)
        self._bucket.append(name)
        self._length += 1

    def extend(self, due_us: int, names: list[str]) -> None:
        """Note that all of these are due at `due_us`, rounded up to a second."""
        second = -(-due_us // SECOND_US)
        if second != self._second:
            self._turn(second)
        self._bucket += names
        self._length += len(names)

    def next_due(self) -> int | None:
        """Return when the first bucket is due (us)."""
        return self._seconds[0] * SECOND_US if self._seconds else None

    def due(self, now_us: int, limit: int) -> list[str]:
        """Take out ids that are due, at most `limit`; the rest are still due."""
        names: list[str] = []
        while len(names) < limit and self._seconds and self._seconds[0] * SECOND_US <= now_us:
            bucket = self._buckets[self._seconds[0]]
            room = limit - len(names)
            names += bucket[-room:]
            del bucket[-room:]
            if not bucket:
                del self._buckets[heapq.heappop(self._seconds)]
                self._second = None
        self._length -= len(names)
        return names

    def keep(self, names: Container[str]) -> None:
        """Forget all other names: for each that was added, at 50 ns."""
        found = {second: [name for name in bucket if name in names] for second, bucket in self._buckets.items()}
        self._buckets = {second: bucket for second, bucket in found.items() if bucket}
        self._seconds = sorted(self._buckets)  # which is a heap
        self._length = sum(map(len, self._buckets.values()))
        self._second = None

    def _turn(self, second: int) -> None:
        """Make a second's bucket the one that is added to."""
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._buckets[second] = []
            heapq.heappush(self._seconds, second)
        self._second, self._bucket = second, bucket
