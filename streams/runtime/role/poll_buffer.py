"""Records of the last poll that the kernel has not been given yet."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from streams.operators.contract import Record
    from streams.runtime.ports import TopicPartition

_partition = itemgetter(0, 1)


class Hand:
    """Records of the last poll that the kernel has not been given yet."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._closed: set[TopicPartition] = set()

    def fill(self, records: list[Record]) -> None:
        """Take a poll's records; of closed partitions none."""
        self.records = [r for r in records if _partition(r) not in self._closed] if self._closed else records

    def close(self, partition: TopicPartition) -> None:
        """Keep no records of a partition until it is dropped: then they are read again, or not ours any more."""
        self.drop([partition])
        self._closed.add(partition)

    def take(self, count: int) -> list[Record]:
        """Remove and return the first records."""
        taken, self.records = self.records[:count], self.records[count:]
        return taken

    def partitions(self) -> frozenset[TopicPartition]:
        """Return where the records come from."""
        return frozenset(map(_partition, self.records))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the records of these partitions: they are not ours any more, or will be read again."""
        gone = frozenset(partitions)
        self._closed -= gone
        self.records = [record for record in self.records if _partition(record) not in gone]
