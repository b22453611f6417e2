"""The producer side of Kafka: one client a process, sending ready-made batches through an `Outlet`.

Not idempotent on purpose: an idempotent aiokafka producer can break for good (aiokafka #1017), and every effect behind
it is idempotent anyway. Batches are at least once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from aiokafka import errors
from aiokafka.errors import (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from streams.operators.contract import EmitBatch
from streams.runtime.errors import (
    BrokerUnavailableError,
    MisconfiguredError,
    RecordRefusedError,
    RecordTooLargeError,
    UnknownPartitionError,
)
from streams.runtime.kafka.error_codes import InvalidRecordError
from streams.runtime.kafka.fast.outlet import FastOutlet
from streams.runtime.kafka.stock import StockOutlet
from streams.runtime.kafka.transport_ports import ProducerSettings
from streams.runtime.ports import Posted, size_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from aiokafka.client import AIOKafkaClient
    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Emit
    from streams.runtime.clock import Clock
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.transport_ports import Outlet

__all__ = ["KafkaTransport", "ProducerSettings"]

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_NO_RIGHT = "this user has no right Write on topic {}: `skysail topics acl` prints who needs which"
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
_METADATA_S = 0.1  # between two looks for a topic that has not been there yet


class KafkaTransport:
    """Sends one batch to one partition; safe to share by all lanes of a process."""

    def __init__(self, connection: KafkaConnection, clock: Clock, settings: ProducerSettings | None = None) -> None:
        self._connection = connection
        self._clock = clock
        self._settings = settings or ProducerSettings().for_records(connection.record_bytes)
        self._outlet: Outlet | None = None
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
        kind = FastOutlet if self._connection.is_fast else StockOutlet
        outlet = kind(self._connection, self._clock, self._settings)
        try:
            await outlet.start()
        except KafkaError as fault:
            await self._close(outlet)
            raise _translated(fault) from fault
        if self._stopped:
            await self._close(outlet)
            raise BrokerUnavailableError("the producer was stopped")
        self._outlet = outlet

    async def send(self, topic: str, partition: int, emits: Sequence[Emit]) -> int:
        """Send as many of the leading records as fit into one batch; see `ports.Transport`."""
        size = size_of(emits[0])
        if size > self._settings.record_bytes:
            raise RecordTooLargeError(f"{size} bytes for {topic}; the limit is {self._settings.record_bytes}")
        outlet = self._outlet or await self._reconnected()
        return await self._counted(outlet, topic, self._deliver(outlet, topic, partition, emits))

    async def send_batch(self, batch: EmitBatch) -> None:
        """Send one finished batch; see `ports.Transport`. Only the fast way does, where nothing is compressed."""
        size = len(batch.data)
        if size > self._settings.batch_bytes:
            raise RecordTooLargeError(
                f"a batch of {size} bytes for {batch.topic}; {self._settings.batch_bytes} at most"
            )
        outlet = self._outlet or await self._reconnected()
        if not outlet.takes_finished:
            raise RecordRefusedError("batches are made here, of records")
        await self._counted(outlet, batch.topic, self._deliver_finished(outlet, batch))

    def post(self, offers: Sequence[Sequence[Emit] | EmitBatch]) -> Sequence[Posted | None]:
        """Send offers without waiting; see `ports.Transport`."""
        outlet = self._outlet
        if outlet is None:
            return [None] * len(offers)
        posted = [self._post(outlet, offer) for offer in offers]
        outlet.depart()
        return posted

    def _post(self, outlet: Outlet, offer: Sequence[Emit] | EmitBatch) -> Posted | None:
        if isinstance(offer, EmitBatch):
            if not outlet.takes_finished or len(offer.data) > self._settings.batch_bytes:
                return None
            place, batch, count = self._connection.kafka_partition(offer[:2]), offer.data, 1
        else:
            if size_of(offer[0]) > self._settings.record_bytes:
                return None
            place = self._connection.kafka_partition(offer[0][:2])
            if _leader(outlet.client, place) is None:
                return None  # before the work is done
            batch, count = outlet.batch(offer)
        answer = outlet.post(place, batch)
        return None if answer is None else Posted(count, answer)

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return how many partitions these topics have, without those that are not there or not for this user."""
        client = (self._outlet or await self._reconnected()).client
        real = {self._connection.real(topic): topic for topic in topics}
        try:
            async with asyncio.timeout(self._settings.topic_timeout_s):
                await asyncio.gather(*map(client.add_topic, real))
        except (KafkaError, TimeoutError) as fault:
            _log.debug("how many partitions there are is not known: %r", fault)
        counts = {topic: len(client.cluster.partitions_for_topic(name) or ()) for name, topic in real.items()}
        return {topic: count for topic, count in counts.items() if count}

    async def stop(self) -> None:
        """Disconnect within `stop_s`; what is in flight is abandoned (flush the lanes first)."""
        self._stopped = True
        if self._outlet is not None:
            await self._leave(self._outlet)

    async def _counted(self, outlet: Outlet, topic: str, delivery: Coroutine[object, object, _T]) -> _T:
        """Wait for what is sent through an outlet; count its failures, and translate them."""
        try:
            result = await delivery
        except KafkaError as fault:
            await self._failed(outlet)
            if isinstance(fault, TopicAuthorizationFailedError):
                raise MisconfiguredError(_NO_RIGHT.format(self._connection.real(topic))) from fault
            raise _translated(fault) from fault
        self._failures = 0
        return result

    async def _known(self, client: AIOKafkaClient, topic: str, partition: int) -> KafkaPartition:
        """Return a partition in Kafka's words, once it is known who leads it."""
        place = self._connection.kafka_partition((topic, partition))
        if _leader(client, place) is None:
            await self._find(client, place)
        return place

    async def _deliver(self, outlet: Outlet, topic: str, partition: int, emits: Sequence[Emit]) -> int:
        place = await self._known(outlet.client, topic, partition)
        limit = len(emits)
        while True:
            batch, count = outlet.batch(emits[:limit])
            try:
                await outlet.send(place, batch)
            except _NEVER as fault:
                if count == 1:
                    raise _refused(fault) from fault
                limit = count // 2  # find the record that is meant
            else:
                return count

    async def _deliver_finished(self, outlet: Outlet, batch: EmitBatch) -> None:
        place = await self._known(outlet.client, batch.topic, batch.partition)
        try:
            await outlet.send(place, batch.data)
        except (*_NEVER, errors.CorruptRecordException) as fault:
            raise _refused(fault) from fault

    async def _find(self, client: AIOKafkaClient, place: KafkaPartition) -> None:
        """Learn who leads a partition that is not known yet."""
        topic, partition = place
        try:
            async with asyncio.timeout(self._settings.topic_timeout_s):
                await _make_known(client, topic)
        except TimeoutError as fault:
            raise UnknownPartitionError(f"topic {topic} is not there; create it (`skysail topics create`)") from fault
        partitions = client.cluster.partitions_for_topic(topic)
        if partition not in partitions:  # it may have been added since the client looked
            await client.force_metadata_update()
            partitions = client.cluster.partitions_for_topic(topic)
        if partition not in partitions:
            raise UnknownPartitionError(f"topic {topic} has partitions {sorted(partitions)}, not {partition}")
        if _leader(client, place) is None:
            client.force_metadata_update()
            raise errors.LeaderNotAvailableError(f"{topic}-{partition}")

    async def _failed(self, outlet: Outlet) -> None:
        """Count a failure; replace the client if it fails again and again."""
        if self._outlet is not outlet:
            return  # it was replaced, and what was on its way through it has failed for that reason
        self._failures += 1
        if self._failures < self._settings.failures:
            return
        async with self._replacing:
            if self._outlet is not outlet:
                return  # another lane did it meanwhile
            _log.warning("replacing the producer after %d failures in a row", self._failures)
            self._failures = 0
            await self._leave(outlet)

    async def _reconnected(self) -> Outlet:
        async with self._replacing:
            if self._stopped:
                raise BrokerUnavailableError("the producer was stopped")
            if self._outlet is None:
                await self.start()
            assert self._outlet is not None
            return self._outlet

    async def _leave(self, outlet: Outlet) -> None:
        """Give up what is unanswered and disconnect."""
        self._outlet = None
        outlet.abandon()
        await self._close(outlet)

    async def _close(self, outlet: Outlet) -> None:
        """Disconnect, but wait for it no longer than `stop_s`: aiokafka waits for a dead broker."""
        leaving = asyncio.create_task(outlet.close(), name="producer leaving")
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
