"""The producer side of Kafka: one client a process, sending ready-made batches.

Not idempotent on purpose: an idempotent aiokafka producer can break for good (aiokafka #1017), and every effect behind
it is idempotent anyway. Batches are at least once.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aiokafka import errors
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streams.runtime.errors import (
    BrokerUnavailableError,
    MisconfiguredError,
    RecordRefusedError,
    RecordTooLargeError,
    UnknownPartitionError,
)
from streams.runtime.kafka.fast.produce_queue import InvalidRecordError, Requests
from streams.runtime.kafka.fast.requests import Calls
from streams.runtime.ports import size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Emit
    from streams.runtime.clock import Clock
    from streams.runtime.kafka.connection import KafkaConnection

_log = logging.getLogger(__name__)

_REFUSED = (AuthenticationFailedError, ClusterAuthorizationFailedError, TopicAuthorizationFailedError)
_MISCONFIGURED = (
    errors.InvalidRequiredAcksError,
    errors.InvalidTopicError,
    errors.PolicyViolationError,
    errors.UnsupportedVersionError,
)
_TOO_LARGE = (MessageSizeTooLargeError, errors.RecordListTooLargeError, errors.RecordTooLargeError)
# One record of the batch is meant, and the broker does not say which.
_NEVER = (*_TOO_LARGE, InvalidRecordError, errors.InvalidTimestampError, errors.UnsupportedForMessageFormatError)
# aiokafka's numbers for compression, as they stand in a batch's attributes.
_COMPRESSION = {None: 0, "snappy": 2, "zstd": 4}
_NO_HEADERS: list[tuple[str, bytes]] = []
_METADATA_S = 0.1  # between two looks for a topic that has not been there yet


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How the producer behaves.

    Attributes:
        batch_bytes: of one batch; no more than any topic's `max.message.bytes`, which bounds batches, not records.
        record_bytes: larger records, keys and headers included, are refused here; the largest dead letter is smaller.
        request_bytes: of one request; the broker's limit (`socket.request.max.bytes`) is 100 MiB.
        in_flight: requests to one broker that may be unanswered.
        request_timeout_ms: until an unanswered request counts as failed; also how long a leader may wait for replicas.
        topic_timeout_s: until a topic that is in no broker's metadata counts as missing.
        failures: consecutive failures after which the client is replaced, in case it does not recover (#1018).
        stop_s: how long stopping may take; with a dead broker aiokafka hangs (measured: more than 15 s).
        compression: None, `snappy` or `zstd`; never lz4, which costs 3.6 times the whole hop.
    """

    batch_bytes: int = 1 << 20
    record_bytes: int = 4_000_000
    request_bytes: int = 16 << 20
    in_flight: int = 4
    request_timeout_ms: int = 10_000
    topic_timeout_s: float = 3.0
    failures: int = 10
    stop_s: float = 3.0
    compression: str | None = None


class _Link(NamedTuple):
    """A client and what is on its way through it: replaced together."""

    client: AIOKafkaClient
    requests: Requests


class KafkaTransport:
    """Sends one batch to one partition; safe to share by all lanes of a process."""

    def __init__(self, connection: KafkaConnection, clock: Clock, settings: ProducerSettings | None = None) -> None:
        self._connection = connection
        self._clock = clock
        self._settings = settings or ProducerSettings()
        self._link: _Link | None = None
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
        given = self._settings
        client = AIOKafkaClient(request_timeout_ms=given.request_timeout_ms, **self._connection.options())
        try:
            await client.bootstrap()
        except KafkaError as fault:
            await self._close(client)
            raise _translated(fault) from fault
        if self._stopped:
            await self._close(client)
            raise BrokerUnavailableError("the producer was stopped")
        calls = Calls(client, given.request_timeout_ms / 1000)
        refresh = client.force_metadata_update
        requests = Requests(calls, refresh, given.in_flight, given.request_timeout_ms, given.request_bytes)
        self._link = _Link(client, requests)

    async def send(self, topic: str, partition: int, emits: Sequence[Emit]) -> int:
        """Send as many of the leading records as fit into one batch; see `ports.Transport`."""
        size = size_of(emits[0])
        if size > self._settings.record_bytes:
            raise RecordTooLargeError(f"{size} bytes for {topic}; the limit is {self._settings.record_bytes}")
        link = self._link or await self._reconnected()
        try:
            count = await self._deliver(link, topic, partition, emits)
        except KafkaError as fault:
            await self._failed(link)
            raise _translated(fault) from fault
        self._failures = 0
        return count

    async def stop(self) -> None:
        """Disconnect within `stop_s`; what is in flight is abandoned (flush the lanes first)."""
        self._stopped = True
        if self._link is not None:
            await self._leave(self._link)

    async def _deliver(self, link: _Link, topic: str, partition: int, emits: Sequence[Emit]) -> int:
        place = self._connection.kafka_partition((topic, partition))
        leader = _leader(link.client, place)
        if leader is None:
            leader = await self._find(link.client, place)
        limit = len(emits)
        while True:
            records, count = self._batch(emits[:limit])
            try:
                await link.requests.send(leader, place.topic, partition, records)
            except _NEVER as fault:
                if count == 1:
                    raise _refused(fault) from fault
                limit = count // 2  # find the record that is meant
            else:
                return count

    def _batch(self, emits: Sequence[Emit]) -> tuple[bytes, int]:
        """Build one record batch of as many of these as fit."""
        now_ms = self._clock.now_us() // 1000
        compression = _COMPRESSION[self._settings.compression]
        batch = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, 0, self._settings.batch_bytes)
        append = batch.append
        count = 0
        for _, _, key, value, _, headers in emits:
            if append(count, now_ms, key, value, [*headers] if headers else _NO_HEADERS) is None:
                break
            count += 1
        return batch.build(), count

    async def _find(self, client: AIOKafkaClient, place: KafkaPartition) -> int:
        """Return the leader of a partition that is not known yet."""
        topic, partition = place
        try:
            async with asyncio.timeout(self._settings.topic_timeout_s):
                await _make_known(client, topic)
        except TimeoutError as fault:
            raise UnknownPartitionError(f"topic {topic} is not there; create it (`skysail topics create`)") from fault
        partitions = client.cluster.partitions_for_topic(topic)
        if partition not in partitions:
            raise UnknownPartitionError(f"topic {topic} has partitions {sorted(partitions)}, not {partition}")
        leader = _leader(client, place)
        if leader is None:
            client.force_metadata_update()
            raise errors.LeaderNotAvailableError(f"{topic}-{partition}")
        return leader

    async def _failed(self, link: _Link) -> None:
        """Count a failure; replace the client if it fails again and again."""
        if self._link is not link:
            return  # it was replaced, and what was on its way through it has failed for that reason
        self._failures += 1
        if self._failures < self._settings.failures:
            return
        async with self._replacing:
            if self._link is not link:
                return  # another lane did it meanwhile
            _log.warning("replacing the producer after %d failures in a row", self._failures)
            self._failures = 0
            await self._leave(link)

    async def _reconnected(self) -> _Link:
        async with self._replacing:
            if self._stopped:
                raise BrokerUnavailableError("the producer was stopped")
            if self._link is None:
                await self.start()
            assert self._link is not None
            return self._link

    async def _leave(self, link: _Link) -> None:
        """Give up what is unanswered and disconnect."""
        self._link = None
        link.requests.abandon()
        await self._close(link.client)

    async def _close(self, client: AIOKafkaClient) -> None:
        """Close a client, but wait for it no longer than `stop_s`: aiokafka waits for a dead broker."""
        leaving = asyncio.create_task(client.close(), name="producer leaving")
        self._leaving.add(leaving)
        leaving.add_done_callback(self._left)
        await asyncio.wait([leaving], timeout=self._settings.stop_s)

    def _left(self, leaving: asyncio.Task[None]) -> None:
        self._leaving.discard(leaving)
        if not leaving.cancelled() and leaving.exception() is not None:
            _log.warning("the producer did not stop cleanly: %r", leaving.exception())


async def _make_known(client: AIOKafkaClient, topic: str) -> None:
    """Wait until the client knows a topic's partitions."""
    await client.add_topic(topic)
    while client.cluster.partitions_for_topic(topic) is None:
        if topic in client.cluster.unauthorized_topics:
            raise TopicAuthorizationFailedError(topic)
        # At once: if another partition's lane has asked for the topic first, this waits for that answer and no longer.
        await client.force_metadata_update()
        if client.cluster.partitions_for_topic(topic) is None:
            await asyncio.sleep(_METADATA_S)


def _leader(client: AIOKafkaClient, place: KafkaPartition) -> int | None:
    """Return the broker that leads a partition, as far as is known."""
    leader: int | None = client.cluster.leader_for_partition(place)
    return None if leader == -1 else leader


def _refused(fault: KafkaError) -> RecordRefusedError:
    return RecordTooLargeError(repr(fault)) if isinstance(fault, _TOO_LARGE) else RecordRefusedError(repr(fault))


def _translated(fault: KafkaError) -> BrokerUnavailableError | MisconfiguredError:
    if isinstance(fault, IncompatibleBrokerVersion):
        return MisconfiguredError(f"{fault}: Apache Kafka 2.3 or a later one is needed")
    if isinstance(fault, _REFUSED):
        return MisconfiguredError(f"{fault!r}: grant this role the right to write, or correct its credentials")
    if isinstance(fault, _MISCONFIGURED):
        return MisconfiguredError(f"{fault!r}: the topic or the broker's policies do not allow what this role writes")
    if isinstance(fault, UnknownTopicOrPartitionError):
        return UnknownPartitionError(repr(fault))
    return BrokerUnavailableError(repr(fault))
