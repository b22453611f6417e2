"""Makes aiokafka's consumers, and chooses where their records come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer

from streams.runtime.kafka import private
from streams.runtime.kafka.fast.source import FastSource
from streams.runtime.kafka.mends import mend
from streams.runtime.kafka.stock.source import StockSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.source import FetchSettings, Source


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
    known = {**options, **settings.options(), **connection.options()}
    consumer = AIOKafkaConsumer(*names, enable_auto_commit=False, auto_offset_reset="earliest", **known)
    if private.supported() is None:
        mend(private.client_of(consumer), connection.rest_s)
    return consumer


def source_of(
    consumer: AIOKafkaConsumer, connection: KafkaConnection, topics: Iterable[str], settings: FetchSettings
) -> Source:
    """Return where the records of a consumer of these logical topics come from."""
    names = {connection.real(topic): topic for topic in topics}
    kind = FastSource if connection.is_fast else StockSource
    return kind(consumer, names, connection, settings)
