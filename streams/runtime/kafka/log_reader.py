"""Readers outside any group: every one of them sees every record.

KafkaLogs         reads whole topics from where it is told to
KafkaBroadcast    follows whole topics from their beginning
KafkaTail         follows topics from their present end
KafkaPositions    looks up places in a log
KafkaRecent       reads what a log ends with
"""

from __future__ import annotations

import asyncio
import logging
from math import ceil
from typing import TYPE_CHECKING, cast

from aiokafka.errors import UnknownTopicOrPartitionError

from streams.runtime.corrupt import readable
from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError, StuckError
from streams.runtime.kafka.clients import LogReader
from streams.runtime.kafka.connection import LOST
from streams.runtime.kafka.refusals import refusal, translated
from streams.runtime.kafka.transport_ports import FetchSettings
from streams.runtime.ports import Bounds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Batch, Record
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.ports import TopicPartition

_log = logging.getLogger(__name__)

FETCH_WAIT_MS = 500  # configuration changes are rare and not urgent
_ONCE = FetchSettings(FETCH_WAIT_MS)
# While nothing changes a fetch waits longer; not at once, as what is asked on the same connection at the start waits
# behind it.
FOLLOWING = FetchSettings(FETCH_WAIT_MS, quiet_wait_ms=3_000)
FAILURES = 60  # polls in a row that may raise, one a second
LOOK_BACK = (1, 64, 4096)  # how far before an offset a record is looked for: transaction markers are not records
_CONNECT_S = 5.0
_STOP_S = 3.0
# A tail waits as a group's consumer does: latency does not depend on it, what idling costs does.
_TAILING = FetchSettings(200)


class KafkaLogs:
    """Reads all partitions of some topics from where it is told to; implements `ports.Logs`."""

    def __init__(self, connection: KafkaConnection, topics: Iterable[str], settings: FetchSettings = FOLLOWING) -> None:
        self._connection = connection
        self._topics = tuple(topics)
        self._settings = settings
        self._reader: LogReader | None = None
        self._next: dict[KafkaPartition, int] = {}
        self._failures = 0

    async def start(self) -> Mapping[TopicPartition, Bounds]:
        """Connect and find where logs begin and end; see `ports.Logs`."""
        self._reader = reader = LogReader(self._connection, self._topics, self._settings)
        try:
            await reader.start()
            return await self._bounds(reader)
        except LOST as fault:
            await self.stop(1.0)
            raise translated(fault, advice=f"; are {', '.join(self._topics)} created?") from fault

    async def bounds(self) -> Mapping[TopicPartition, Bounds]:
        """Return where logs begin and end now; see `ports.Logs`."""
        try:
            return await self._bounds(self._running())
        except LOST as fault:
            raise translated(fault, "cannot look up where logs end: ") from fault

    async def find(self, time_us: int) -> Mapping[TopicPartition, int]:
        """Return the first offsets that are not older; see `ports.Logs`."""
        consumer = self._running().consumer
        try:
            found = await consumer.offsets_for_times(dict.fromkeys(consumer.assignment(), max(0, -(-time_us // 1000))))
        except LOST as fault:
            raise translated(fault, f"cannot look up what is not older than {time_us} us: ") from fault
        return {self._logical(place): at.offset for place, at in found.items() if at is not None}

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue from these offsets; see `ports.Logs`."""
        self._next |= {self._connection.kafka_partition(place): offset for place, offset in offsets.items()}
        self._running().seek(self._next)

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what has arrived; see `ports.Logs`."""
        reader = self._running()
        try:
            fetched = await reader.poll((), timeout_ms)
        except LOST as fault:
            await self._recover(fault)
            return []
        self._failures = 0
        if reader.has_grown():
            # aiokafka may have begun again with all partitions; the new ones have not been read.
            self._next = dict.fromkeys(reader.consumer.assignment(), 0) | self._next
            reader.seek(self._next)
            return []
        for place, records in fetched.items():
            self._next[place] = records[-1].offset + 1
        return [record for records in fetched.values() for record in records]

    def position(self, place: TopicPartition) -> int | None:
        """Return the offset that is read next; see `ports.Logs`."""
        return self._running().source.position(self._connection.kafka_partition(place))

    def unread(self) -> int:
        """Return how many records no poll has returned yet; see `ports.Logs`."""
        return sum(count or 0 for _, count in self._running().source.unread())

    async def stop(self, timeout_s: float) -> None:
        """Disconnect; see `ports.Logs`."""
        if self._reader is not None:
            await self._reader.stop(timeout_s)
            self._reader = None

    async def _bounds(self, reader: LogReader) -> dict[TopicPartition, Bounds]:
        places = list(reader.consumer.assignment())
        begins, ends = await reader.consumer.beginning_offsets(places), await reader.consumer.end_offsets(places)
        return {self._logical(place): Bounds(begins[place], ends[place]) for place in places}

    async def _recover(self, fault: Exception) -> None:
        self._failures += 1
        if (lasting := refusal(fault)) is not None:
            raise lasting from fault
        if self._failures > FAILURES:
            raise StuckError(
                f"{self._failures} polls of {self._topics} in a row failed, the last one with {fault!r}"
            ) from fault
        _log.warning("poll of %s failed: %r", ", ".join(self._topics), fault)
        self._running().seek(self._next)
        await asyncio.sleep(1.0)

    def _logical(self, place: KafkaPartition) -> TopicPartition:
        return self._connection.logical(place.topic), place.partition

    def _running(self) -> LogReader:
        assert self._reader is not None, "start() comes first"
        return self._reader


class KafkaBroadcast:
    """Follows all partitions of some topics from the beginning; implements `ports.Broadcast`.

    Args:
        connection: where Kafka is.
        topics: logical names.
        since_us: begin with the first record of each partition that is as late (us); None = with the first of all.
    """

    def __init__(self, connection: KafkaConnection, topics: Iterable[str], since_us: int | None = None) -> None:
        self._logs = KafkaLogs(connection, topics)
        self._since_us = since_us
        self._ends: Mapping[TopicPartition, int] = {}
        self._caught_up = False

    async def start(self) -> None:
        """Connect and find the ends; see `ports.Broadcast`."""
        bounds = await self._logs.start()
        self._ends = {place: end for place, (_, end) in bounds.items()}
        begins = {place: begin for place, (begin, _) in bounds.items()}
        if self._since_us is not None:
            begins = dict(self._ends) | dict(await self._logs.find(self._since_us))
        self._logs.seek(begins)

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what has arrived; see `ports.Broadcast`."""
        records = await self._logs.poll(timeout_ms)
        if not self._caught_up:
            positions = [(self._logs.position(place), end) for place, end in self._ends.items()]
            self._caught_up = all(position is not None and position >= end for position, end in positions)
        return records

    @property
    def caught_up(self) -> bool:
        """Whether everything that was there at the start has been returned."""
        return self._caught_up

    async def stop(self, timeout_s: float) -> None:
        """Disconnect; see `ports.Broadcast`."""
        await self._logs.stop(timeout_s)


class KafkaPositions:
    """Finds places in logs; implements `ports.LogPositions`. Connects for each question: there are few."""

    def __init__(self, connection: KafkaConnection, timeout_s: float = 5.0) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def before(self, offsets: Mapping[TopicPartition, int], window_us: int) -> Mapping[TopicPartition, int]:
        """Return where a window before each offset begins; see `ports.LogPositions`."""
        wanted = {self._connection.kafka_partition(partition): offset for partition, offset in offsets.items()}
        if not wanted:
            return {}
        reader = LogReader(self._connection, {topic for topic, _ in offsets}, _ONCE, list(wanted))
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                await reader.start()
                found = await self._begin(reader, wanted, window_us)
        except (*LOST, TimeoutError) as fault:
            raise translated(fault, "cannot look up where to start: ") from fault
        finally:
            await reader.stop(self._timeout_s)
        return {partition: found[self._connection.kafka_partition(partition)] for partition in offsets}

    async def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the next offset to be written of each partition; see `ports.LogPositions`."""
        real = {partition: self._connection.kafka_partition(partition) for partition in partitions}
        # With the partitions: the client would ask for the leaders of topics it does not know one after the other.
        reader = LogReader(self._connection, {topic for topic, _ in partitions}, _ONCE, [*real.values()])
        try:
            async with asyncio.timeout(self._timeout_s):
                await reader.start()
                found = await reader.consumer.end_offsets(list(real.values()))
        except (*LOST, TimeoutError) as fault:
            raise translated(fault, "cannot look up where logs end: ") from fault
        finally:
            await reader.stop(self._timeout_s)
        return {partition: found[real[partition]] for partition in partitions}

    async def times(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the time of the first record at each offset or after it; see `ports.LogPositions`."""
        wanted = {self._connection.kafka_partition(partition): offset for partition, offset in offsets.items()}
        reader = LogReader(self._connection, {topic for topic, _ in offsets}, _ONCE, list(wanted))
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                await reader.start()
                found = await self._times_after_ms(reader, wanted)
        except (*LOST, TimeoutError) as fault:
            raise translated(fault, "cannot look up how old records are: ") from fault
        finally:
            await reader.stop(self._timeout_s)
        real = {partition: self._connection.kafka_partition(partition) for partition in offsets}
        return {partition: found[place] * 1000 for partition, place in real.items() if place in found}

    async def _times_after_ms(
        self, reader: LogReader, wanted: Mapping[KafkaPartition, int]
    ) -> dict[KafkaPartition, int]:
        """Return the timestamp of the first record at each offset or after it, where there is one."""
        consumer, places = reader.consumer, list(wanted)
        oldest, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        begins = {place: max(offset, oldest[place]) for place, offset in wanted.items()}
        begins = {place: offset for place, offset in begins.items() if offset < ends[place]}
        times_ms: dict[KafkaPartition, int] = {}
        if begins:
            reader.seek(begins)
            await self._first_times(reader, set(begins), times_ms)
        unread = [place for place in begins.keys() - times_ms if (reader.source.position(place) or 0) < ends[place]]
        if unread:
            raise BrokerUnavailableError(f"cannot read the first records of {unread}")
        return times_ms

    async def _begin(
        self, reader: LogReader, wanted: Mapping[KafkaPartition, int], window_us: int
    ) -> dict[KafkaPartition, int]:
        """Return per partition the first offset of the window; the oldest where no time is known."""
        consumer = reader.consumer
        oldest = await consumer.beginning_offsets(list(wanted))
        times_ms = await self._times_ms(reader, wanted, oldest)
        if not times_ms:
            return dict(oldest)
        froms_ms = {partition: max(0, time_ms - window_us // 1000) for partition, time_ms in times_ms.items()}
        found = await consumer.offsets_for_times(froms_ms)
        begins = {partition: place.offset for partition, place in found.items() if place is not None}
        return {partition: min(begins.get(partition, oldest[partition]), wanted[partition]) for partition in wanted}

    async def _times_ms(
        self, reader: LogReader, wanted: Mapping[KafkaPartition, int], oldest: Mapping[KafkaPartition, int]
    ) -> dict[KafkaPartition, int]:
        """Return the timestamp of a record just before each offset, where there is one."""
        times_ms: dict[KafkaPartition, int] = {}
        for back in LOOK_BACK:
            missing = [p for p, offset in wanted.items() if p not in times_ms and offset > oldest[p]]
            reader.seek({partition: max(oldest[partition], wanted[partition] - back) for partition in missing})
            await self._first_times(reader, set(missing), times_ms)
        return times_ms

    async def _first_times(
        self, reader: LogReader, missing: set[KafkaPartition], times_ms: dict[KafkaPartition, int]
    ) -> None:
        """Wait for the first record of each partition; where only transaction markers follow there is none."""
        running = asyncio.get_running_loop()
        until_s = running.time() + self._timeout_s / len(LOOK_BACK)
        while not times_ms.keys() >= missing and running.time() < until_s:
            fetched = await reader.poll(missing, FETCH_WAIT_MS)
            for partition, records in fetched.items():
                times_ms.setdefault(partition, records[0].timestamp_us // 1000)


class KafkaRecent:
    """Reads the ends of topics; implements `ports.RecentRecords`. Connects for each question: there are few."""

    def __init__(self, connection: KafkaConnection, timeout_s: float = 3.0) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def last(self, topic: str, count: int) -> list[Record]:
        """Return about the last `count` records; see `ports.RecentRecords`."""
        reader = LogReader(self._connection, (topic,), _ONCE)
        try:
            async with asyncio.timeout(self._timeout_s):
                await reader.start()
                found = await _ending(reader, count)
        except (*LOST, OSError) as fault:  # a TimeoutError is one
            raise translated(fault, f"cannot read the end of {topic}: ") from fault
        finally:
            await reader.stop(self._timeout_s)
        return sorted(readable(found), key=lambda record: record.timestamp_us)


async def _ending(reader: LogReader, count: int) -> list[Record]:
    """Return the last records of all partitions that have any, from each as many."""
    consumer, source = reader.consumer, reader.source
    places = list(consumer.assignment())
    oldest, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    left = [place for place in places if oldest[place] < ends[place]]
    reader.seek({place: max(oldest[place], ends[place] - ceil(count / len(left))) for place in left})
    found: list[Record] = []
    while left:
        fetched = await reader.poll(left, FETCH_WAIT_MS)
        for place, records in fetched.items():
            found += [record for record in records if record.offset < ends[place]]
        left = [place for place in left if (source.position(place) or 0) < ends[place]]
    return found


class KafkaTail:
    """Reads all partitions of `topics` from where they end when it starts.

    Args:
        connection: where Kafka is.
        topics: logical names.
        batched: of these, whose plain record batches stay whole: then it is read by `poll_batches`.
    """

    def __init__(
        self, connection: KafkaConnection, topics: Sequence[str], batched: frozenset[str] = frozenset()
    ) -> None:
        self._connection = connection
        self._topics = tuple(topics)
        self._batched = batched
        self._reader: LogReader | None = None

    async def start(self) -> dict[str, int]:
        """Connect and note every partition's end; a record produced after this returned is read.

        Returns:
            the number of partitions of each topic.

        Raises:
            MisconfiguredError: a topic does not exist, or nobody may read it.
            BrokerUnavailableError: no broker answered.
        """
        names = [self._connection.real(topic) for topic in self._topics]
        reader = self._reader = LogReader(self._connection, self._topics, _TAILING, batched=self._batched)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await reader.start()
                ends = await reader.consumer.end_offsets(list(reader.consumer.assignment()))
        except (TimeoutError, UnknownTopicOrPartitionError) as fault:
            await self.stop()
            where = f"{', '.join(names)} on {self._connection.bootstrap}"
            prefix = self._connection.prefix
            raise MisconfiguredError(
                f"cannot find {where}; is the prefix {prefix!r} right? If so, create its topics:"
                f" SKYSAIL_PREFIX={prefix} skysail topics create"
            ) from fault
        except LOST as fault:
            await self.stop()
            where = f"no broker answers at {self._connection.bootstrap}"
            raise translated(fault, f"{where}: start one (`skysail kafka start`) or name another; ") from fault
        reader.seek(ends)
        return {topic: sum(p.topic == name for p in ends) for topic, name in zip(self._topics, names, strict=True)}

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return everything fetched, waiting up to `timeout_ms` if there is nothing.

        Batches that cannot be unpacked are logged and left out.

        Raises:
            BrokerUnavailableError: reading failed; a record may have been missed, so start a new tail.
            MisconfiguredError: nobody may read it any more.
        """
        return readable(cast("list[Record]", await self.poll_batches(timeout_ms)))  # no batch was to stay whole

    async def poll_batches(self, timeout_ms: int) -> list[Record | Batch]:
        """Return the same with batches that stay whole, and with those that cannot be unpacked as they are.

        Raises:
            BrokerUnavailableError: as of `poll`.
        """
        assert self._reader is not None
        reader, source = self._reader, self._reader.source
        try:
            fetched = await source.poll((), timeout_ms)
        except LOST as fault:
            raise translated(fault) from fault
        if reader.has_grown():
            for place in reader.consumer.assignment():
                source.seek(place, source.position(place) or 0)  # a new partition is read from its beginning
        return [record for records in fetched.values() for record in records]

    async def stop(self) -> None:
        """Disconnect."""
        if self._reader is not None:
            await self._reader.stop(_STOP_S)
            self._reader = None
