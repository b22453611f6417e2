"""The producer side of Kafka: one aiokafka producer a process, sending ready-made batches.

Not idempotent on purpose: an idempotent aiokafka producer can break for good (aiokafka #1017), and every effect behind
it is idempotent anyway. Batches are at least once.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaProducer, errors
from aiokafka.errors import (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from streams.runtime.errors import (
    BrokerUnavailableError,
    MisconfiguredError,
    RecordTooLargeError,
    UnknownPartitionError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokafka.producer.message_accumulator import BatchBuilder

    from streams.operators.contract import Emit
    from streams.runtime.clock import Clock
    from streams.runtime.kafka_client import KafkaConnection

_log = logging.getLogger(__name__)

_REFUSED = (AuthenticationFailedError, ClusterAuthorizationFailedError, TopicAuthorizationFailedError)
_TOO_LARGE = (MessageSizeTooLargeError, errors.RecordTooLargeError)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How the producer behaves.

    Attributes:
        batch_bytes: of one batch; half the topics' `max.message.bytes`, which bounds batches, not records.
        record_bytes: larger records are refused here, before the broker closes the connection over them.
        request_timeout_ms: until an unanswered request counts as failed; also how long a batch may wait for a leader.
        topic_timeout_s: until a topic that is in no broker's metadata counts as missing.
        failures: consecutive failures after which the producer is replaced, in case it does not recover (#1018).
        answer_s: until a batch counts as failed although the client says nothing: aiokafka may wait for up to twice the
            request timeout, and a producer that was replaced may leave its batches without an answer.
        stop_s: how long stopping may take; with a dead broker aiokafka hangs (measured: more than 15 s).
        compression: None, `snappy` or `zstd`; never lz4, which costs 3.6 times the whole hop.
    """

    batch_bytes: int = 1 << 20
    record_bytes: int = 2_000_000
    request_timeout_ms: int = 10_000
    topic_timeout_s: float = 3.0
    failures: int = 10
    answer_s: float = 30.0
    stop_s: float = 3.0
    compression: str | None = None


class KafkaTransport:
    """Sends one batch to one partition; safe to share by all lanes of a process."""

    def __init__(self, connection: KafkaConnection, clock: Clock, settings: ProducerSettings | None = None) -> None:
        self._connection = connection
        self._clock = clock
        self._settings = settings or ProducerSettings()
        self._producer: AIOKafkaProducer | None = None
        self._replacing = asyncio.Lock()
        self._failures = 0
        self._stopped = False
        self._leaving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Connect.

        Raises:
            BrokerUnavailableError: no broker answered.
            MisconfiguredError: the broker knows us and says no.
        """
        producer = AIOKafkaProducer(
            acks="all",
            linger_ms=0,
            max_batch_size=self._settings.batch_bytes,
            max_request_size=self._settings.record_bytes,
            request_timeout_ms=self._settings.request_timeout_ms,
            compression_type=self._settings.compression,
            **self._connection.options(),
        )
        try:
            await producer.start()
        except KafkaError as fault:
            await self._close(producer)
            raise _translated(fault) from fault
        self._producer = producer

    async def send(self, topic: str, partition: int, emits: Sequence[Emit]) -> int:
        """Send as many of the leading records as fit into one batch; see `ports.Transport`."""
        if len(emits[0].value) + len(emits[0].key or b"") > self._settings.record_bytes:
            raise RecordTooLargeError(
                f"{len(emits[0].value)} bytes for {topic}; the limit is {self._settings.record_bytes}"
            )
        producer = self._producer or await self._reconnected()
        try:
            count = await self._deliver(producer, self._connection.real(topic), partition, emits)
        except KafkaError as fault:
            await self._failed(producer, fault)
            raise _translated(fault) from fault
        self._failures = 0
        return count

    async def stop(self) -> None:
        """Disconnect within `stop_s`; what is in flight is abandoned (flush the lanes first)."""
        self._stopped = True
        if self._producer is not None:
            await self._close(self._producer)
            self._producer = None

    async def _deliver(self, producer: AIOKafkaProducer, topic: str, partition: int, emits: Sequence[Emit]) -> int:
        await self._find(producer, topic, partition)
        now_ms = self._clock.now_us() // 1000
        limit = len(emits)
        while True:
            batch = producer.create_batch()
            count = 0
            for _, _, key, value, _, headers in emits[:limit]:
                if batch.append(timestamp=now_ms, key=key, value=value, headers=[*headers]) is None:
                    break
                count += 1
            try:
                await self._sent(producer, batch, topic, partition)
            except _TOO_LARGE:
                if count == 1:
                    raise
                limit = count // 2  # the topic's limit is lower than ours: find the record that is over it
            else:
                return count

    async def _sent(self, producer: AIOKafkaProducer, batch: BatchBuilder, topic: str, partition: int) -> None:
        try:
            async with asyncio.timeout(self._settings.answer_s):
                await (await producer.send_batch(batch, topic, partition=partition))
        except TimeoutError as fault:
            raise KafkaTimeoutError(f"no answer for {topic}-{partition} in {self._settings.answer_s} s") from fault

    async def _find(self, producer: AIOKafkaProducer, topic: str, partition: int) -> None:
        try:
            async with asyncio.timeout(self._settings.topic_timeout_s):
                partitions = await producer.partitions_for(topic)
        except TimeoutError as fault:
            raise UnknownPartitionError(f"topic {topic} is not there; create it (`skysail topics create`)") from fault
        if partition not in partitions:
            raise UnknownPartitionError(f"topic {topic} has partitions {sorted(partitions)}, not {partition}")

    async def _failed(self, producer: AIOKafkaProducer, fault: KafkaError) -> None:
        """Count a failure; replace the producer if it is dead, or fails again and again."""
        self._failures += 1
        dead = not fault.retriable and not isinstance(fault, (*_TOO_LARGE, *_REFUSED, KafkaTimeoutError))
        if dead or self._failures >= self._settings.failures:
            await self._replace(producer)

    async def _replace(self, broken: AIOKafkaProducer) -> None:
        async with self._replacing:
            if self._producer is not broken:
                return  # another lane did it meanwhile
            _log.warning("replacing the producer after %d failures in a row", self._failures)
            self._producer = None
            self._failures = 0
            await self._close(broken)

    async def _reconnected(self) -> AIOKafkaProducer:
        async with self._replacing:
            if self._stopped:
                raise BrokerUnavailableError("the producer was stopped")
            if self._producer is None:
                await self.start()
            return self._producer

    async def _close(self, producer: AIOKafkaProducer) -> None:
        """Stop a producer, but wait for it no longer than `stop_s`: aiokafka waits for a dead broker."""
        leaving = asyncio.create_task(producer.stop(), name="producer leaving")
        self._leaving.add(leaving)
        leaving.add_done_callback(self._left)
        await asyncio.wait([leaving], timeout=self._settings.stop_s)

    def _left(self, leaving: asyncio.Task[None]) -> None:
        self._leaving.discard(leaving)
        if not leaving.cancelled() and leaving.exception() is not None:
            _log.warning("the producer did not stop cleanly: %r", leaving.exception())


def _translated(fault: KafkaError) -> BrokerUnavailableError | MisconfiguredError | RecordTooLargeError:
    if isinstance(fault, _REFUSED):
        return MisconfiguredError(f"{fault!r}: grant this role the right to write, or correct its credentials")
    if isinstance(fault, _TOO_LARGE):
        return RecordTooLargeError(repr(fault))
    if isinstance(fault, UnknownTopicOrPartitionError):
        return UnknownPartitionError(repr(fault))
    return BrokerUnavailableError(repr(fault))
