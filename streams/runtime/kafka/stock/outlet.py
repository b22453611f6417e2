"""The stock way out: aiokafka's producer sends, and tries again by itself until the request's time is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, UnknownError

from streams.runtime.kafka.mends import mend
from streams.runtime.kafka.outlet import InvalidRecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokafka.client import AIOKafkaClient
    from aiokafka.producer.message_accumulator import BatchBuilder
    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Emit
    from streams.runtime.clock import Clock
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.outlet import ProducerSettings

# aiokafka knows no code above 72: an invalid record (87) looks like a failure of the broker, and is tried this often.
_TRIES = 3


class StockOutlet:
    """Implements `outlet.Outlet`."""

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
        """Connect; see `outlet.Outlet`."""
        await self._producer.start()
        if not self.client.cluster.brokers():
            raise KafkaConnectionError("the broker knows of no broker, itself included: it is starting or stopping")

    def batch(self, emits: Sequence[Emit]) -> tuple[BatchBuilder, int]:
        """Build one record batch; see `outlet.Outlet`."""
        now_ms = self._clock.now_us() // 1000
        batch = self._producer.create_batch()
        count = 0
        for _, _, key, value, _, headers in emits:
            if batch.append(key=key, value=value, timestamp=now_ms, headers=[*headers]) is None:
                break
            count += 1
        batch.close()
        return batch, count

    async def send(self, place: KafkaPartition, batch: BatchBuilder) -> None:
        """Send a batch; see `outlet.Outlet`."""
        for _ in range(_TRIES):
            answer = await self._producer.send_batch(batch, place.topic, partition=place.partition)
            await asyncio.wait([answer, self._abandoned], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                answer.add_done_callback(_seen)
                raise KafkaConnectionError("the producer was stopped")
            fault = answer.exception()
            if not isinstance(fault, UnknownError):
                break
        else:
            raise InvalidRecordError(f"the broker has refused a batch {_TRIES} times without saying why")
        if fault is not None:
            raise fault

    def abandon(self) -> None:
        """End every wait for an answer; see `outlet.Outlet`."""
        if not self._abandoned.done():
            self._abandoned.set_result(None)

    async def close(self) -> None:
        """Disconnect; see `outlet.Outlet`."""
        self.abandon()
        await self._producer.stop()


def _seen(answer: asyncio.Future[object]) -> None:
    """Read a result that no task awaits, so that asyncio does not complain."""
    if not answer.cancelled():
        answer.exception()
