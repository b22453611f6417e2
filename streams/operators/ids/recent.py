"""Ids seen lately, to recognise duplicates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32  # not `hash`, which is another one in each process

from streams.operators.ids.table import IdTimes

if TYPE_CHECKING:
    from collections.abc import Iterable


# What is remembered of each id beside its generation tells a copy from another's query under the same id, but for one
# in 4,096. The rest of 32 bits are generations: after the last, 2 * 10**10 queries at 20,000 each, all is new.
_MARKS = 1 << 12
_LAST = ((1 << 20) - 1) * _MARKS


@dataclass(slots=True)
class _Partition:
    """The ids of one partition by generation, numbered from 2: the one before the first is not 0, which is none."""

    ids: IdTimes = field(default_factory=IdTimes)
    generation: int = 2 * _MARKS
    size: int = 0  # of the latest generation


class RecentIds:
    """At least the last `capacity` ids of each partition, and at most twice as many: two generations."""

    __slots__ = ("_capacity", "_partitions")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._partitions: dict[int, _Partition] = {}

    def add(self, partition: int, query_id: str, token: str = "") -> bool:
        """Remember an id; tell whether it is new.

        Args:
            partition: that it was read from.
            query_id: the id.
            token: of who asks: an id that has come with another one is new; "" = nobody said.
        """
        recent = self._partitions.get(partition)
        if recent is None or recent.generation >= _LAST:
            recent = self._partitions[partition] = _Partition()
        generation = recent.generation
        oldest, mark = generation - _MARKS, crc32(token.encode()) % _MARKS if token else 0
        known = recent.ids.put(query_id, generation + mark, oldest)
        if known >= oldest and known % _MARKS == mark:
            if known < generation:  # a copy takes no room from others: it stays where the first is
                recent.ids.put(query_id, known, oldest)
            return False
        recent.size += 1
        if recent.size >= self._capacity:
            recent.generation, recent.size = generation + _MARKS, 0
        return True

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the ids of these partitions."""
        for partition in partitions:
            self._partitions.pop(partition, None)
