"""The stock way: aiokafka fetches and unpacks, and its producer sends.

    getmany ──▶ records
       └─ what aiokafka cannot unpack ──▶ fetched again, unpacked as on the fast path ──▶ records, `CorruptBatch`

aiokafka unpacks a compressed batch without a bound: keep topics uncompressed (`compression.type=uncompressed`). Its
producer tries again by itself until the request's time is over.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    UnsupportedCodecError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest

from streams.operators.contract import Record
from streams.runtime.kafka.aiokafka_fixes import mend
from streams.runtime.kafka.fast.record_batches import unpack
from streams.runtime.kafka.merging import ArrivalRate, StrainGauge, merging
from streams.runtime.kafka.transport_ports import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from aiokafka import AIOKafkaConsumer, ConsumerRecord
    from aiokafka.producer.message_accumulator import BatchBuilder
    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Emit
    from streams.runtime.clock import Clock
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.transport_ports import FetchSettings, ProducerSettings

_log = logging.getLogger(__name__)

_CHECKSUM = "Invalid CRC"  # aiokafka's words for what is not what was written: no batch to step over
_POSITION_S = 0.05  # a position that is being looked up can be had with a later poll
_TRY_MS = 1_000  # for one partition, when one of them cannot be unpacked
_new = tuple.__new__


class StockSource:
    """Implements `ways.Source` on a consumer's `getmany`."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        names: Mapping[str, str],
        connection: KafkaConnection,
        settings: FetchSettings,
        *,
        gauge: StrainGauge | None = None,
    ) -> None:
        self._consumer = consumer
        self._names = names
        self._connection = connection
        self._settings = settings
        self._positions: dict[KafkaPartition, int] = {}
        self._rate = ArrivalRate()
        self._gauge = gauge or StrainGauge()
        self._has_brought = False  # the last poll

    async def start(self) -> None:
        """Do nothing: aiokafka's consumer fetches by itself."""

    def own(self, places: Collection[KafkaPartition]) -> None:
        """Forget what is not assigned any more, and go on where the rest was; see `ways.Source`."""
        self._positions = {place: offset for place, offset in self._positions.items() if place in places}
        for place, offset in self._positions.items():
            self._consumer.seek(place, offset)

    def seek(self, place: KafkaPartition, offset: int) -> None:
        """Continue from another offset; see `ways.Source`."""
        self._consumer.seek(place, offset)
        self._positions[place] = offset

    async def poll(self, places: Collection[KafkaPartition], timeout_ms: int) -> Mapping[KafkaPartition, list[Record]]:
        """Return what has come; see `ways.Source`."""
        await self._merge()
        try:
            fetched = await self._consumer.getmany(*places, timeout_ms=timeout_ms)
        except Exception as fault:
            if not _is_of_a_batch(fault):
                raise
            return await self._poll_one_by_one(places)
        found = {place: self._records(place, records) for place, records in fetched.items() if place in self._positions}
        self._has_brought = bool(found)
        for records in found.values():
            self._rate.add(len(records), 0, asyncio.get_running_loop().time())
        if places != [NOWHERE]:
            await self._look_up_positions()
        return found

    async def _merge(self) -> None:
        """Let records gather: aiokafka asks a broker again only when what it sent has been taken."""
        if self._has_brought:
            self._has_brought = False
            self._gauge.came()
            await asyncio.sleep(0)  # how long others keep the loop
            self._gauge.taken()
            merged = merging(self._rate.per_s, 0.0, self._gauge.strain(), self._settings.merge_ms)
            await asyncio.sleep(merged.wait_ms / 1000)

    def position(self, place: KafkaPartition) -> int | None:
        """Return what is read next; see `ways.Source`."""
        return self._positions.get(place)

    def unread(self) -> Iterator[tuple[KafkaPartition, int | None]]:
        """Yield how much is unread; see `ways.Source`."""
        for place, position in self._positions.items():
            end = self._high_watermark(place)
            yield place, None if end is None else max(0, end - position)

    def stop(self) -> None:
        """Do nothing: aiokafka's consumer stops by itself."""

    def _records(self, place: KafkaPartition, records: list[ConsumerRecord]) -> list[Record]:
        self._positions[place] = records[-1].offset + 1
        topic, partition = self._names[place.topic], place.partition
        return [
            _new(Record, (topic, partition, one.offset, one.timestamp * 1000, one.key, one.value, one.headers))
            for one in records
        ]

    def _high_watermark(self, place: KafkaPartition) -> int | None:
        end: int | None = self._consumer.highwater(place) if place in self._consumer.assignment() else None
        return end

    async def _look_up_positions(self) -> None:
        """Pass what is no record: marks of transactions, what was compacted, and what was deleted unread."""
        for place, position in [*self._positions.items()]:
            if self._high_watermark(place) in (None, position):
                continue
            try:
                async with asyncio.timeout(_POSITION_S):
                    found = await self._consumer.position(place)
            except (TimeoutError, IllegalStateError):
                _log.info("%s-%d: the position is not known now", *place)
                continue
            if self._positions.get(place) == position:  # else a rebalance came meanwhile
                self._positions[place] = found

    async def _poll_one_by_one(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, list[Record]]:
        """Read partition by partition: one of them has a batch that aiokafka cannot unpack."""
        found: dict[KafkaPartition, list[Record]] = {}
        wanted = [place for place in self._positions if not places or place in places]
        for place in wanted:  # what was drained when it raised is gone
            self.seek(place, self._positions[place])
        for place in wanted:
            if self._positions.get(place) in (None, self._high_watermark(place)):
                continue  # None: a rebalance has taken it away meanwhile
            if records := await self._read_alone(place):
                found[place] = records
        return {place: records for place, records in found.items() if place in self._positions}

    async def _read_alone(self, place: KafkaPartition) -> list[Record]:
        try:
            fetched = await self._consumer.getmany(place, timeout_ms=_TRY_MS)
        except Exception as fault:
            if not _is_of_a_batch(fault):
                raise
            return await self._unpacked_here(place)
        return self._records(place, fetched[place]) if place in fetched and place in self._positions else []

    async def _unpacked_here(self, place: KafkaPartition) -> list[Record]:
        """Fetch from the position on with a client of its own, and unpack that without aiokafka."""
        position = self._positions.get(place)
        if position is None:
            return []
        client = AIOKafkaClient(request_timeout_ms=self._settings.request_timeout_ms, **self._connection.options())
        try:
            await client.bootstrap()
            await client.set_topics([place.topic])
            data = await self._fetched(client, place, position)
        finally:
            await client.close()
        if self._positions.get(place) != position:  # a rebalance came meanwhile
            return []
        records, end = unpack(data, self._names[place.topic], place.partition, position)
        self.seek(place, end)
        return records

    async def _fetched(self, client: AIOKafkaClient, place: KafkaPartition, position: int) -> bytes:
        leader = client.cluster.leader_for_partition(place)
        if leader in (None, -1):
            raise LeaderNotAvailableError(str(place))
        limit = self._settings.partition_bytes
        wanted = [(place.topic, [(place.partition, position, limit)])]
        answer = await client.send(leader, FetchRequest(self._settings.wait_ms, 1, limit, 0, wanted))
        ((_, ((_, code, *_, data),)),) = answer.topics
        if code:
            raise for_code(code)(place)
        return bytes(data)


def _is_of_a_batch(fault: Exception) -> bool:
    """Whether the fault lies in what somebody has written, and not in the broker or the connection."""
    if isinstance(fault, CorruptRecordException):
        return _CHECKSUM not in str(fault)
    if isinstance(fault, KafkaError | ConsumerStoppedError):
        return isinstance(fault, UnsupportedCodecError)
    return type(fault) is not RuntimeError  # uvloop's, of a connection that was closed


class StockOutlet:
    """Implements `ways.Outlet`."""

    takes_finished = False

    def __init__(self, connection: KafkaConnection, clock: Clock, settings: ProducerSettings) -> None:
        self._clock = clock
        self._abandoned = asyncio.get_running_loop().create_future()
        self._producer = AIOKafkaProducer(
            acks="all",
            enable_idempotence=False,
            compression_type=settings.compression,
            max_batch_size=settings.batch_bytes,
            max_request_size=settings.request_bytes,
            request_timeout_ms=settings.request_timeout_ms,
            **connection.options(),
        )
        self.client: AIOKafkaClient = self._producer.client
        mend(self.client, connection.rest_s)

    async def start(self) -> None:
        """Connect; see `ways.Outlet`."""
        await self._producer.start()
        if not self.client.cluster.brokers():
            raise KafkaConnectionError("the broker knows of no broker, itself included: it is starting or stopping")

    def batch(self, emits: Sequence[Emit]) -> tuple[BatchBuilder, int]:
        """Build one record batch; see `ways.Outlet`."""
        now_ms = self._clock.now_us() // 1000
        batch = self._producer.create_batch()
        count = 0
        for _, _, key, value, _, headers, _ in emits:
            if batch.append(key=key, value=value, timestamp=now_ms, headers=[*headers]) is None:
                break
            count += 1
        batch.close()
        return batch, count

    async def send(self, place: KafkaPartition, batch: BatchBuilder) -> None:
        """Send a batch; see `ways.Outlet`."""
        answer = await self._producer.send_batch(batch, place.topic, partition=place.partition)
        await asyncio.wait([answer, self._abandoned], return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.add_done_callback(_seen)
            raise KafkaConnectionError("the producer was stopped")
        await answer

    def post(self, place: KafkaPartition, batch: BatchBuilder) -> None:
        """Leave all to `send`; see `ways.Outlet`."""

    def depart(self) -> None:
        """Do nothing; see `ways.Outlet`."""

    def abandon(self) -> None:
        """End every wait for an answer; see `ways.Outlet`."""
        if not self._abandoned.done():
            self._abandoned.set_result(None)

    async def close(self) -> None:
        """Disconnect; see `ways.Outlet`."""
        self.abandon()
        await self._producer.stop()


def _seen(answer: asyncio.Future[object]) -> None:
    """Read a result that no task awaits, so that asyncio does not complain."""
    if not answer.cancelled():
        answer.exception()
