"""Every implementation of the runtime's ports, so that one list of tests holds for all: in memory, stock, fast."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from aiokafka import AIOKafkaProducer
from confluent_kafka import TopicPartition as AdminPartition

from deploy.local.admin import admin_client
from deploy.local.embedded import EmbeddedBroker
from load.harness.topics import delete
from streams.runtime.kafka.admin import create
from streams.runtime.kafka.consumer import ConsumerSettings, KafkaConsumer
from streams.runtime.kafka.producer import KafkaTransport, ProducerSettings
from streams.testing import virtual
from streams.testing.broker import FakeBroker
from streams.testing.connections import Process, SimulatedTransport
from streams.testing.consumers import SimulatedConsumer
from tests.batches import AnswerColumn, batch
from tests.kafka import CLOCK, put_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from streams.operators.contract import Record
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.ports import Consumer, TopicPartition, Transport

# Groups are quick, and a member that cannot reach its broker gives up soon.
QUICK = ConsumerSettings(
    fetch_wait_ms=20, session_timeout_ms=6_000, heartbeat_ms=200, rebalance_timeout_ms=6_000, commit_s=1.0
)
SENDING = ProducerSettings(request_timeout_ms=2_000, topic_timeout_s=1.0, stop_s=0.5)


class Place(Protocol):
    """Somewhere to run an implementation: a broker, and clients of it."""

    name: str

    def run(self, scene: Coroutine[Any, Any, None]) -> None:
        """Run a scene to its end."""
        ...

    async def topics(self, counts: Mapping[str, int], configs: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Create topics."""
        ...

    def consumer(self, topics: tuple[str, ...], group: str = "group") -> Consumer:
        """Return a new member of a group."""
        ...

    async def transport(self) -> Transport:
        """Return a transport that is connected."""
        ...

    async def write(self, topic: str, partition: int, said: list[AnswerColumn]) -> None:
        """Append records as a foreign producer may write them."""
        ...

    async def end_transaction(self, topic: str, *, aborted: bool) -> None:
        """Leave the mark of a transaction at the end of partition 0, behind one record `b"within"`."""
        ...

    async def retain_nothing(self, topic: str) -> None:
        """Delete all that a topic of one partition has."""
        ...

    async def make_anew(self, topic: str) -> None:
        """Delete a topic of one partition while it is read, and create it again."""
        ...

    async def close(self) -> None:
        """Stop what was started, and forget the topics."""
        ...


_P = TypeVar("_P", bound=Place)


@dataclass
class Memory:
    """The broker in memory of `streams.testing`, in virtual time."""

    name: str = "memory"
    broker: FakeBroker = field(default_factory=FakeBroker)
    _count: int = 0

    def run(self, scene: Coroutine[Any, Any, None]) -> None:
        """Run in virtual time; see `Place`."""
        virtual.run(scene)

    async def topics(self, counts: Mapping[str, int], configs: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Create topics; see `Place`."""
        self.broker.partitions.update(counts)

    def consumer(self, topics: tuple[str, ...], group: str = "group") -> Consumer:
        """Return a member; see `Place`."""
        return SimulatedConsumer(self._process(), topics, group)

    async def transport(self) -> Transport:
        """Return a transport; see `Place`."""
        return SimulatedTransport(self._process())

    async def write(self, topic: str, partition: int, said: list[AnswerColumn]) -> None:
        """Append records; see `Place`."""
        for number, (key, value, headers) in enumerate(said):
            self.broker.append(topic, partition, key, value, (1_000 + number) * 1_000, tuple(headers))  # type: ignore[arg-type]

    async def end_transaction(self, topic: str, *, aborted: bool) -> None:
        """Leave a mark; see `Place`."""
        self.broker.put(topic, 0, b"within")
        self.broker.mark(topic, 0)

    async def retain_nothing(self, topic: str) -> None:
        """Delete all; see `Place`."""
        self.broker.retain_nothing(topic)

    async def make_anew(self, topic: str) -> None:
        """Delete it and create it again; see `Place`."""
        self.broker.make_anew(topic)

    def go_away(self) -> None:
        """Have the broker answer nobody."""
        self.broker.weather.away += 1

    def come_back(self) -> None:
        """Have it answer again."""
        self.broker.weather.away -= 1

    async def close(self) -> None:
        """Do nothing; see `Place`."""

    def _process(self) -> Process:
        self._count += 1
        return Process(f"p{self._count}", self.broker, Random(self._count), virtual.VirtualClock())


@dataclass
class OnKafka:
    """Our adapters on a broker: over aiokafka's public interface (stock), or with our own requests (fast)."""

    name: str
    connection: KafkaConnection
    started: list[KafkaTransport] = field(default_factory=list)

    def run(self, scene: Coroutine[Any, Any, None]) -> None:
        """Run on a loop of asyncio; see `Place`."""
        asyncio.run(scene)

    async def topics(self, counts: Mapping[str, int], configs: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Create topics; see `Place`."""
        real = self.connection.real
        # Records of `tests.batches` are of 1970: a broker would delete them as soon as it looks.
        named = {real(topic): {"retention.ms": "-1", **(configs or {}).get(topic, {})} for topic in counts}
        admin = admin_client(self.connection.bootstrap)
        await asyncio.to_thread(create, admin, {real(name): count for name, count in counts.items()}, configs=named)

    def consumer(self, topics: tuple[str, ...], group: str = "group") -> Consumer:
        """Return a member; see `Place`."""
        return KafkaConsumer(self.connection, topics, group, CLOCK, QUICK)

    async def transport(self) -> Transport:
        """Return a transport; see `Place`."""
        transport = KafkaTransport(self.connection, CLOCK, SENDING)
        await transport.start()
        self.started.append(transport)
        return transport

    async def write(self, topic: str, partition: int, said: list[AnswerColumn]) -> None:
        """Append one batch of records; see `Place`."""
        await put_batch(self.connection, batch(0, said), partition, topic)

    async def end_transaction(self, topic: str, *, aborted: bool) -> None:
        """Leave a mark; see `Place`."""
        real = self.connection.real(topic)
        producer = AIOKafkaProducer(bootstrap_servers=self.connection.bootstrap, transactional_id=real)
        async with producer:
            await producer.begin_transaction()
            await producer.send_and_wait(real, b"within", partition=0)
            await (producer.abort_transaction() if aborted else producer.commit_transaction())

    async def retain_nothing(self, topic: str) -> None:
        """Delete all; see `Place`."""
        admin = admin_client(self.connection.bootstrap)
        place = AdminPartition(self.connection.real(topic), 0, -1)  # -1 = up to its end
        for deleted in admin.delete_records([place]).values():
            await asyncio.to_thread(deleted.result, 10)

    async def make_anew(self, topic: str) -> None:
        """Delete it and create it again; see `Place`."""
        admin = admin_client(self.connection.bootstrap)
        for deleted in admin.delete_topics([self.connection.real(topic)]).values():
            await asyncio.to_thread(deleted.result, 10)
        await self.topics({topic: 1})

    async def close(self) -> None:
        """Stop; see `Place`."""
        for transport in self.started:
            await transport.stop()
        await asyncio.to_thread(delete, self.connection.bootstrap, self.connection.prefix)


@dataclass
class OnEmbedded(OnKafka):
    """The same on a broker inside this process, which can go away and refuse things."""

    embedded: EmbeddedBroker = field(default_factory=EmbeddedBroker)

    async def topics(self, counts: Mapping[str, int], configs: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Create topics; see `Place`."""
        self.embedded.create_topics({self.connection.real(name): count for name, count in counts.items()})

    def go_away(self) -> None:
        """Have the broker answer nobody."""
        self.embedded.cluster.broker_down()

    def come_back(self) -> None:
        """Have it answer again."""
        self.embedded.cluster.broker_up()

    async def close(self) -> None:
        """Stop; see `Place`."""
        for transport in self.started:
            await transport.stop()


@dataclass
class Member:
    """A consumer, what it was told, and what it has read."""

    consumer: Consumer
    starts: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    committed: dict[TopicPartition, int | None] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    assignments: deque[frozenset[TopicPartition]] = field(default_factory=deque)

    async def on_assigned(self, committed: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, int | None]:
        """Note what is ours; say where to begin."""
        self.committed = dict(committed)
        self.assignments.append(frozenset(committed))
        return {place: start for place, start in self.starts.items() if place in committed}

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Note that nothing is ours."""
        self.assignments.append(frozenset())

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What is ours now."""
        return self.assignments[-1] if self.assignments else frozenset()

    def offsets(self, partition: int = 0) -> list[int]:
        """Return the offsets that were read of a partition of topic `in`."""
        return [record.offset for record in self.records if record[:2] == ("in", partition)]

    async def read(self, done: Callable[[], bool], only: frozenset[str] | None = None, timeout_s: float = 60.0) -> None:
        """Poll until something is so."""
        async with asyncio.timeout(timeout_s):
            while not done():
                self.records += cast("list[Record]", await self.consumer.poll(100, only))  # no topic is batched

    async def read_count(self, count: int) -> None:
        """Poll until so many records were read."""
        await self.read(lambda: len(self.records) >= count)


async def joined(
    place: Place,
    topics: tuple[str, ...] = ("in",),
    starts: Mapping[TopicPartition, int | None] | None = None,
    group: str = "group",
) -> Member:
    """Return a member that has been assigned partitions."""
    member = Member(place.consumer(topics, group), starts or {})
    await member.consumer.start(member)
    await member.read(lambda: bool(member.owned))
    return member


def play(place: _P, act: Callable[[_P], Coroutine[Any, Any, None]]) -> None:
    """Play an act at a place, and tidy up behind it."""

    async def scene() -> None:
        try:
            await act(place)
        finally:
            await place.close()

    place.run(scene())
