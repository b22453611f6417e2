"""Ids seen lately, to recognise duplicates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streams.operators.ids import IdTimes

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class _Partition:
    """The ids of one partition by generation, numbered from 2: the one before the first is not 0, which is none."""

    ids: IdTimes = field(default_factory=IdTimes)
    generation: int = 2
    size: int = 0  # of the latest generation


class RecentIds:
    """At least the last `capacity` ids of each partition, and at most twice as many: two generations."""

    __slots__ = ("_capacity", "_partitions")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._partitions: dict[int, _Partition] = {}

    def add(self, partition: int, query_id: str) -> bool:
        """Remember an id; tell whether it is new."""
        recent = self._partitions.get(partition) or self._partitions.setdefault(partition, _Partition())
        generation = recent.generation
        known = recent.ids.put(query_id, generation, generation - 1)
        if known >= generation - 1:
            if known < generation:  # a copy takes no room from others: it stays where the first is
                recent.ids.put(query_id, known, known)
            return False
        recent.size += 1
        if recent.size >= self._capacity:
            recent.generation, recent.size = generation + 1, 0
        return True

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the ids of these partitions."""
        for partition in partitions:
            self._partitions.pop(partition, None)
