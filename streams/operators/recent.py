"""Ids seen lately, to recognise duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class RecentIds:
    """At least the last `capacity` ids of each partition, and at most twice as many.

    Two generations, of which the older is dropped whole: forgetting id by id from the front of a dict costs 10 to 20 us
    an id (20,000 of them, CPython 3.11), as the search for the first begins among all that were deleted.
    """

    __slots__ = ("_capacity", "_seen")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._seen: dict[int, tuple[set[str], set[str]]] = {}  # by partition: younger, older

    def add(self, partition: int, query_id: str) -> bool:
        """Remember an id; tell whether it is new."""
        younger, older = self._seen.get(partition) or self._seen.setdefault(partition, (set(), set()))
        if query_id in younger or query_id in older:
            return False
        younger.add(query_id)
        if len(younger) >= self._capacity:
            self._seen[partition] = (set(), younger)
        return True

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the ids of these partitions."""
        for partition in partitions:
            self._seen.pop(partition, None)
