"""A trace as far as a replay reads it, and one in memory: what a driver, or a broker in memory, has logged."""

from __future__ import annotations

import heapq
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streams.operators.contract import Record

_TIME = attrgetter("timestamp_us")


class Recording(Protocol):
    """A trace as far as a replay reads it."""

    def topics(self) -> tuple[str, ...]:
        """Return the topics that it holds."""
        ...

    def records(self, topic: str, partition: int | None = None) -> Iterator[Record]:
        """Yield the records of a topic, in order of offset within a partition, of time across them."""
        ...

    def merged(self, topics: Iterable[str]) -> Iterator[Record]:
        """Yield the records of several topics by time."""
        ...


class MemoryTrace:
    """Records by topic and partition.

    Args:
        records: of all topics, those of a partition in order.
        topics: that it has, beside those of the records.
    """

    def __init__(self, records: Iterable[Record], topics: Iterable[str] = ()) -> None:
        self.empty = frozenset(topics)
        self.logs: dict[tuple[str, int], list[Record]] = defaultdict(list)
        for record in records:
            self.logs[record.topic, record.partition].append(record)

    def copy(self) -> MemoryTrace:
        """Return another one with the same records."""
        return MemoryTrace((record for log in self.logs.values() for record in log), self.empty)

    def topics(self) -> tuple[str, ...]:
        """Return the topics that it holds."""
        return tuple(sorted(self.empty.union(topic for topic, _ in self.logs)))

    def records(self, topic: str, partition: int | None = None) -> Iterator[Record]:
        """Yield the records of a topic by time, those of a partition in order."""
        logs = [log for (name, place), log in sorted(self.logs.items()) if name == topic and partition in (None, place)]
        return heapq.merge(*logs, key=_TIME)

    def merged(self, topics: Iterable[str]) -> Iterator[Record]:
        """Yield the records of several topics by time."""
        return heapq.merge(*(self.records(topic) for topic in topics), key=_TIME)
