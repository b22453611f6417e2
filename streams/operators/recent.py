"""Ids seen lately, to recognise duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class RecentIds:
    """The last `capacity` ids of each partition."""

    __slots__ = ("_capacity", "_seen")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._seen: dict[int, dict[str, None]] = {}

    def add(self, partition: int, query_id: str) -> bool:
        """Remember an id; tell whether it is new."""
        seen = self._seen.setdefault(partition, {})
        if query_id in seen:
            return False
        seen[query_id] = None
        if len(seen) > self._capacity:
            del seen[next(iter(seen))]
        return True

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the ids of these partitions."""
        for partition in partitions:
            self._seen.pop(partition, None)
