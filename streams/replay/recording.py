"""A trace as far as a replay reads it, one in memory, and records by their positions, as calls name them."""

from __future__ import annotations

import heapq
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from streams.runtime.kafka.fast.whole_batches import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streams.operators.contract import Batch, Record
    from streams.tape.calls import RecordRun

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


_CHECKSUM: Final = 17  # where it is in a record batch


class MissingInputError(LookupError):
    """A call names something that the trace does not hold."""


class LogCursor:
    """Reads one partition."""

    def __init__(self, trace: Recording, topic: str, partition: int) -> None:
        self._trace = trace
        self._place = topic, partition
        self._next = 0
        self._ahead: Record | None = None
        self._records: Iterator[Record] = iter(())
        self._rewind()

    def take(self, begin: int, count: int) -> list[Record]:
        """Return the records from an offset on.

        Raises:
            MissingInputError: one of them is not there.
        """
        if begin < self._next:
            self._rewind()
        found: list[Record] = []
        while len(found) < count:
            record, self._ahead = self._ahead or next(self._records, None), None
            if record is None or record.offset > begin + len(found):
                self._ahead = record
                raise MissingInputError(f"{self._place[0]}-{self._place[1]}@{begin + len(found)}")
            if record.offset == begin + len(found):
                found.append(record)
        self._next = begin + count
        return found

    def _rewind(self) -> None:
        topic, partition = self._place
        self._records = self._trace.records(topic, partition) if topic in self._trace.topics() else iter(())
        self._next, self._ahead = 0, None


class TapeInputs:
    """The records that one tape names.

    Args:
        trace: that holds them.
    """

    def __init__(self, trace: Recording) -> None:
        self._trace = trace
        self._cursors: dict[tuple[str, int], LogCursor] = {}

    def records(
        self, runs: Sequence[RecordRun], damaged: Sequence[int] = (), *, are_whole: bool
    ) -> list[Record | Batch]:
        """Return the records of a call, those of batches in batches if `are_whole`; some were damaged on the way.

        Raises:
            MissingInputError: one of them is not there.
        """
        found: list[Record | Batch] = []
        batches = 0
        for run in runs:
            records = [*run.given] or self._read(run)
            if run.is_whole and are_whole:
                batch = batch_of(records)
                found.append(_spoilt(batch) if batches in damaged else batch)
            else:
                found += records
            batches += run.is_whole
        return found

    def _read(self, run: RecordRun) -> list[Record]:
        place = run.topic, run.partition
        cursor = self._cursors.get(place)
        if cursor is None:
            cursor = self._cursors[place] = LogCursor(self._trace, *place)
        return cursor.take(run.begin, run.count)


def _spoilt(batch: Batch) -> Batch:
    """Return a batch with a wrong checksum."""
    data = bytearray(batch.data)
    data[_CHECKSUM] ^= 1
    return batch._replace(data=bytes(data))
