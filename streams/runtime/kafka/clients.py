"""Makes aiokafka's consumers, chooses where their records come from, and runs those that are outside any group."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from aiokafka import AIOKafkaConsumer

from streams.runtime.kafka import private
from streams.runtime.kafka.aiokafka_fixes import mend
from streams.runtime.kafka.fast.source import FastSource
from streams.runtime.kafka.stock import StockSource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Record
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.transport_ports import FetchSettings, RecordSource

_log = logging.getLogger(__name__)


def consumer_on(
    connection: KafkaConnection, topics: Iterable[str], settings: FetchSettings, **options: object
) -> AIOKafkaConsumer:
    """Return a consumer that commits nothing by itself and begins with the oldest records.

    It speaks Kafka's classic group protocol: aiokafka knows no other, which brokers up to Kafka 4 understand.

    Args:
        connection: where Kafka is.
        topics: logical names.
        settings: how brokers are asked for records.
        options: aiokafka's.

    Raises:
        MisconfiguredError: the connection's properties cannot be right.
    """
    names = [connection.real(topic) for topic in topics]
    known = {**options, **settings.for_records(connection.record_bytes).options(), **connection.options()}
    consumer = AIOKafkaConsumer(*names, enable_auto_commit=False, auto_offset_reset="earliest", **known)
    if private.supported() is None:
        mend(private.client_of(consumer), connection.rest_s)
    return consumer


def source_of(
    consumer: AIOKafkaConsumer,
    connection: KafkaConnection,
    names: Mapping[str, str],
    settings: FetchSettings,
    batched: frozenset[str] = frozenset(),
) -> RecordSource:
    """Return where the records of a consumer come from.

    Args:
        consumer: started or not.
        connection: where Kafka is.
        names: logical topics by real ones; more may come.
        settings: how brokers are asked.
        batched: logical topics whose plain record batches are handed out whole. The stock way has none.
    """
    settings = settings.for_records(connection.record_bytes)
    if connection.is_fast:
        return FastSource(consumer, names, connection, settings, batched)
    return StockSource(consumer, names, connection, settings)


class LogReader:
    """Reads partitions from where `seek` says.

    Args:
        connection: where Kafka is.
        topics: logical names.
        settings: how brokers are asked.
        places: the partitions; by default all of the topics.
        batched: logical topics whose plain record batches stay whole; `source` hands them out, `poll` is not for them.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Iterable[str],
        settings: FetchSettings,
        places: Sequence[KafkaPartition] | None = None,
        batched: frozenset[str] = frozenset(),
    ) -> None:
        topics = tuple(topics)
        self.consumer = consumer_on(connection, topics if places is None else (), settings)
        names = {connection.real(topic): topic for topic in topics}
        self.source = source_of(self.consumer, connection, names, settings, batched)
        self._places = places
        self._assigned: frozenset[KafkaPartition] = frozenset()

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaError: no broker answers, or a topic is not there.
        """
        await self.consumer.start()
        if self._places:
            self.consumer.assign(self._places)
        await self.source.start()
        self._own()

    def has_grown(self) -> bool:
        """Whether there are other partitions than when this was asked before; `seek` says where they begin."""
        if self.consumer.assignment() is self._assigned:
            return False
        self._own()
        return True

    def seek(self, offsets: Mapping[KafkaPartition, int]) -> None:
        """Continue from these offsets."""
        for place, offset in offsets.items():
            self.source.seek(place, offset)

    async def poll(self, places: Collection[KafkaPartition], timeout_ms: int) -> Mapping[KafkaPartition, list[Record]]:
        """Return all records that have come; see `ways.Source`."""
        fetched = await self.source.poll(places, timeout_ms)
        return cast("Mapping[KafkaPartition, list[Record]]", fetched)  # no topic's batches were to stay whole

    async def stop(self, timeout_s: float) -> None:
        """Disconnect, but wait no longer than this."""
        self.source.stop()
        leaving = asyncio.create_task(self.consumer.stop(), name="reader leaving")
        await asyncio.wait([leaving], timeout=timeout_s)
        if leaving.done() and not leaving.cancelled() and leaving.exception() is not None:
            _log.warning("a reader did not stop cleanly: %r", leaving.exception())

    def _own(self) -> None:
        self._assigned = self.consumer.assignment()
        self.source.own(self._assigned)
