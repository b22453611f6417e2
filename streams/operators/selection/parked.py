"""Queries that wait for a policy state which has never been read, each until its time."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from streams.operators.configuration import Deployed
    from streams.operators.contract import StateKey
    from streams.operators.selection.pending import Pending


class Waiting(NamedTuple):
    """A query, its application, and how long it waits for its state."""

    until_us: int
    deployed: Deployed
    query: Pending


class Parked:
    """By state, in order of arrival.

    Args:
        bound: places that they may take, see `intake`.
    """

    __slots__ = ("_bound", "_due", "_places", "_serial", "_waiting")

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._places = 0
        self._waiting: dict[StateKey, list[Waiting]] = {}
        self._due: list[tuple[int, int, StateKey]] = []  # a heap; some of it has been decided meanwhile
        self._serial = count()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __contains__(self, key: StateKey) -> bool:
        return key in self._waiting

    @property
    def is_full(self) -> bool:
        """Whether nobody else may wait."""
        return self._places >= self._bound

    def add(self, key: StateKey, waiting: Waiting) -> None:
        """Let a query wait."""
        self._places += waiting.query.places
        queue = self._waiting.setdefault(key, [])
        if not queue or queue[-1].until_us != waiting.until_us:
            heapq.heappush(self._due, (waiting.until_us, next(self._serial), key))
        queue.append(waiting)

    def take(self, key: StateKey) -> list[Waiting]:
        """Remove and return all that wait for a state."""
        return self._left(self._waiting.pop(key, []))

    def due(self, now_us: int) -> Iterator[tuple[StateKey, list[Waiting]]]:
        """Remove and yield those that wait no longer, by state."""
        while self._due and self._due[0][0] <= now_us:
            key = heapq.heappop(self._due)[2]
            queue = self._waiting.pop(key, [])
            later = [waiting for waiting in queue if waiting.until_us > now_us]
            if later:
                self._waiting[key] = later
            if len(later) < len(queue):
                yield key, self._left([waiting for waiting in queue if waiting.until_us <= now_us])

    def next_due(self) -> int | None:
        """Return when the first one waits no longer (us)."""
        while self._due:
            until_us, _, key = self._due[0]
            if any(waiting.until_us <= until_us for waiting in self._waiting.get(key, ())):
                return until_us
            heapq.heappop(self._due)
        return None

    def drop(self, partitions: Collection[int]) -> list[Pending]:
        """Remove and return the queries of these partitions."""
        dropped: list[Waiting] = []
        for key, queue in [*self._waiting.items()]:
            dropped += [waiting for waiting in queue if waiting.query.partition in partitions]
            kept = [waiting for waiting in queue if waiting.query.partition not in partitions]
            if kept:
                self._waiting[key] = kept
            else:
                del self._waiting[key]
        return [waiting.query for waiting in self._left(dropped)]

    def _left(self, gone: list[Waiting]) -> list[Waiting]:
        self._places -= sum([waiting.query.places for waiting in gone])
        return gone
