"""A broker in memory: logs by partition, consumer groups, and scripted faults."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streams.operators.contract import Batch, Record
from streams.runtime.kafka.fast.whole_batches import records_of
from streams.testing.groups import Group
from streams.testing.virtual import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from streams.operators.contract import Emit, EmitBatch
    from streams.runtime.ports import TopicPartition


@dataclass
class Weather:
    """What fails now; each fault counts how often it was begun and not ended.

    Attributes:
        away: the broker answers nobody.
        missing: topics that do not exist.
        unavailable: partitions without a leader.
        deaf: groups whose commits are refused.
        unsure: the share of batches that are stored although their producer gets an error.
        leg_s: how long a message takes to the broker or back, at least and at most.
    """

    away: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    unavailable: Counter[TopicPartition] = field(default_factory=Counter)
    deaf: Counter[str] = field(default_factory=Counter)
    unsure: float = 0.0
    leg_s: tuple[float, float] = (0.0005, 0.003)

    def serves(self, partition: TopicPartition) -> bool:
        """Whether a partition can be read and written."""
        return not (self.away or self.missing[partition[0]] or self.unavailable[partition])


@dataclass
class FakeBroker:
    """Logs by partition, committed offsets, and consumer groups.

    Attributes:
        logs: every record, by partition.
        committed: offsets of the one group of a consumer that is its only member.
        commits: what it has committed.
        groups: of consumers that share partitions, by name.
        partitions: of each topic, where the deployment has said so.
        stamped: topics whose records get the broker's time, not their producer's.
        forgotten: topics that nobody reads; only where they end is known.
        markers: offsets that no record has: a transaction has ended there.
        begins: where logs begin; what was before has gone, as its time was over.
        weather: what fails.
        batched: records by topic that came in finished batches, as they are made of columns.
        appended: is called with every record.
    """

    logs: dict[TopicPartition, list[Record]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    commits: list[dict[TopicPartition, int]] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    stamped: frozenset[str] = frozenset()
    forgotten: frozenset[str] = frozenset()
    markers: defaultdict[TopicPartition, set[int]] = field(default_factory=lambda: defaultdict(set))
    begins: Counter[TopicPartition] = field(default_factory=Counter)
    weather: Weather = field(default_factory=Weather)
    batched: Counter[str] = field(default_factory=Counter)
    appended: list[Callable[[Record], None]] = field(default_factory=list)
    _waiting: defaultdict[TopicPartition, dict[asyncio.Future[bool], None]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def put(self, topic: str, partition: int, *values: bytes, key: bytes | None = b"k") -> None:
        """Append records."""
        for value in values:
            self.append(topic, partition, key, value, VirtualClock().now_us())

    def write(self, topic: str, partition: int, emits: Iterable[Emit], stamp_us: int) -> None:
        """Append what a producer has sent at a time of its own clock."""
        for emit in emits:
            self.append(topic, partition, emit.key, emit.value, stamp_us, emit.headers)

    def write_batch(self, batch: EmitBatch) -> None:
        """Append the records of a batch that a producer has sent."""
        self.batched[batch.topic] += batch.count
        for one in records_of(Batch(batch.topic, batch.partition, 0, batch.count, batch.data)):
            self.append(one.topic, one.partition, one.key, one.value, one.timestamp_us, one.headers)

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        stamp_us: int,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        """Append one record, and wake who waits for it."""
        if topic in self.forgotten:
            return
        log = self.logs[topic, partition]
        stamp_us = VirtualClock().now_us() if topic in self.stamped else stamp_us
        stamp_us -= stamp_us % 1_000  # Kafka keeps whole milliseconds
        record = Record(topic, partition, len(log), stamp_us, key, value, headers)
        log.append(record)
        for tell in self.appended:
            tell(record)
        self.wake((topic, partition))

    def mark(self, topic: str, partition: int) -> None:
        """End a transaction: the log grows, and no consumer gets a record."""
        log = self.logs[topic, partition]
        self.markers[topic, partition].add(len(log))
        log.append(Record(topic, partition, len(log), VirtualClock().now_us(), None, None))
        self.wake((topic, partition))

    def retain_nothing(self, topic: str) -> None:
        """Let all that a topic has now be gone."""
        for place in self.places(topic):
            self.begins[place] = len(self.logs[place])

    def make_anew(self, topic: str) -> None:
        """Delete a topic and create it again: its logs begin at 0, and what groups have committed is forgotten."""
        for place in self.places(topic):
            self.logs[place].clear()
            self.begins[place] = 0
            self.markers.pop(place, None)
            for group in self.groups.values():
                group.committed.pop(place, None)

    def set_back(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where logs begin that have records, but end below these positions."""
        ends = {place: len(self.logs[place]) for place in positions}
        return {place: self.begins[place] for place, at in positions.items() if self.begins[place] < ends[place] < at}

    def readable(self, place: TopicPartition, begin: int, end: int | None = None) -> list[Record]:
        """Return the records that a consumer gets of this part of a log."""
        records = self.logs[place][max(begin, self.begins[place]) : end]
        markers = self.markers.get(place)
        return [record for record in records if record.offset not in markers] if markers else records

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Return the values of a partition."""
        return [record.value for record in self.logs[topic, partition]]

    def group(self, name: str) -> Group:
        """Return a group."""
        if name not in self.groups:
            self.groups[name] = Group(name, self)
        return self.groups[name]

    def places(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic."""
        return [(topic, number) for number in range(self.partitions.get(topic, 1))]

    def wait(self, partitions: Collection[TopicPartition]) -> asyncio.Future[bool]:
        """Return what is done, with True, when one of these partitions has got a record; see `forget`."""
        future = asyncio.get_running_loop().create_future()
        for partition in partitions:
            self._waiting[partition][future] = None
        return future

    def forget(self, future: asyncio.Future[bool], partitions: Collection[TopicPartition]) -> None:
        """Wake nobody any more who waited for this."""
        for partition in partitions:
            self._waiting[partition].pop(future, None)

    def clear_up(self) -> None:
        """Wake everybody: something can be reached again."""
        for partition in [*self._waiting]:
            self.wake(partition)

    def wake(self, partition: TopicPartition) -> None:
        """Wake who waits for a partition."""
        for future in self._waiting[partition]:
            if not future.done():
                future.set_result(True)
