"""What the last poll has brought and the kernel has not been given yet: records, and whole batches of them."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from streams.operators.contract import Batch, count_of, end_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from streams.operators.contract import Record
    from streams.runtime.ports import TopicPartition

partition_of: Final = itemgetter(0, 1)  # of a record or a batch


class PollBuffer:
    """Counts in records, however they come. Taking some costs nothing for what is left."""

    def __init__(self) -> None:
        self._records: list[Record | Batch] = []
        self._taken = 0
        self._left = 0  # records
        self._has_batches = False
        self._counts: Counter[TopicPartition] | None = None  # of what is left, since somebody asked
        self._closed: set[TopicPartition] = set()

    def __len__(self) -> int:
        """How many records are left."""
        return self._left

    @property
    def first(self) -> Record | Batch:
        """What is taken next; there must be something."""
        return self._records[self._taken]

    def fill(self, records: list[Record | Batch]) -> None:
        """Take over a poll's records; of closed partitions none."""
        self._keep([r for r in records if partition_of(r) not in self._closed] if self._closed else records)

    def close(self, partition: TopicPartition) -> None:
        """Keep no records of a partition until it is dropped: then they are read again, or not ours any more."""
        self.drop([partition])
        self._closed.add(partition)

    def take(self, count: int) -> list[Record | Batch]:
        """Remove and return the first records; a batch that has more is cut in two, over the same bytes."""
        if self._has_batches:
            taken = self._cut(count)
        else:
            taken = self._records[self._taken : self._taken + count]
            self._taken += len(taken)
            self._left -= len(taken)
        if not self._left:
            self._keep([])
        elif self._counts is not None:
            self._counts -= _counted(taken)
        return taken

    def counts(self) -> Mapping[TopicPartition, int]:
        """Return how many records there are of each partition."""
        if self._counts is None:
            self._counts = _counted(self._records[self._taken :])
        return self._counts

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the records of these partitions: they are not ours any more, or will be read again."""
        gone = frozenset(partitions)
        self._closed -= gone
        self._keep([record for record in self._records[self._taken :] if partition_of(record) not in gone])

    def _keep(self, records: list[Record | Batch]) -> None:
        self._has_batches = Batch in map(type, records)
        self._records, self._taken, self._counts = records, 0, None
        self._left = count_of(records) if self._has_batches else len(records)

    def _cut(self, count: int) -> list[Record | Batch]:
        taken: list[Record | Batch] = []
        while count and self._left:
            one = self._records[self._taken]
            size = end_of(one) - one.offset
            if isinstance(one, Batch) and size > count:
                self._records[self._taken] = one._replace(offset=one.offset + count)
                one, size = one._replace(end=one.offset + count), count
            else:
                self._taken += 1
            taken.append(one)
            self._left -= size
            count -= size
        return taken


def _counted(records: Sequence[Record | Batch]) -> Counter[TopicPartition]:
    counts = Counter(map(partition_of, records))
    if Batch in map(type, records):
        for one in records:
            if isinstance(one, Batch):
                counts[partition_of(one)] += end_of(one) - one.offset - 1
    return counts
