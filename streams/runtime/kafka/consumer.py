"""A member of a consumer group, on aiokafka; `source` says how its records are fetched.

What this adapter makes up for (each measured, aiokafka 0.14):

- An exception in a poll loses records whose position has advanced. So positions are set back to what was handed out.
- A cancelled `getmany()` disables `max_poll_interval` for good. So polls are never cancelled.
- Records can be fetched while the assignment callback still decides where to start. So they are held back until then.
- Exceptions of rebalance callbacks are swallowed. So they are kept, and the next poll raises them.
- Commit and stop wait for a dead broker without end. So both get a limit.
- A static member never leaves its group. So it becomes a dynamic one for its last request, unless it is to stay.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, TypeVar

from aiokafka import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    ConsumerStoppedError,
    GroupLoadInProgressError,
    KafkaError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownError,
)

from streams.operators.contract import end_of
from streams.runtime.errors import BrokerUnavailableError, LogSetBackError, StuckError
from streams.runtime.kafka import private
from streams.runtime.kafka.clients import consumer_on, source_of
from streams.runtime.kafka.connection import LOST
from streams.runtime.kafka.error_codes import unwrapped
from streams.runtime.kafka.refusals import refusal, translated
from streams.runtime.kafka.served import Unserved, served
from streams.runtime.kafka.transport_ports import NOWHERE, FetchSettings
from streams.runtime.ports import Vitals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence

    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Batch, Record
    from streams.runtime.clock import Clock
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.transport_ports import RecordSource
    from streams.runtime.ports import Rebalanced, TopicPartition

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

# What is wrong in a broker, such as replicas that do not answer it: another process would be told the same.
_BROKERS_OWN = (GroupLoadInProgressError, RebalanceInProgressError, UnknownError)
_NOWHERE_MS = 50  # of a poll while the start positions are awaited


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a group member behaves.

    Attributes:
        fetch_wait_ms: how long the broker holds a fetch without data. Latency does not depend on it as long as every
            poll takes everything (5 and 500 measured alike), idle cost does; but a partition that was left out of a
            long fetch waits for its end, hence not the default of 500.
        merge_ms: for how long records are gathered at most, if many come and the loop is pressed (`merging`).
        is_ahead: whether records are asked for before they are polled (`ways.FetchSettings`).
        session_timeout_ms: a killed member's partitions move after this.
        rebalance_timeout_ms: how long members may take to hand over; a role does so within 5 s.
        request_timeout_ms: how long an answer is waited for, longer than any join is held back. A connection that was
            made while a broker came up can stay silent (seen once in some hundred restarts): with aiokafka's 40 s
            nothing was committed for as long.
        fetch_partition_bytes: per partition and fetch; bounds what one poll can return.
        metadata_age_ms: new partitions, and topics that this broker did not know yet, are noticed after this.
        failures: polls in a row that may raise (a corrupt batch raises for ever) before the process gives up.
        commit_s: limit of one commit; aiokafka alone retries for ever.
        member: a name that makes this a static member (KIP-345): whoever joins under the name of a killed member has
            its partitions at once, without waiting for its session to end and without a rebalance of the others. No two
            processes of a group may have it at the same time: they would take the partitions from each other for ever.
        leave: the group when it is told to stop. Otherwise a static member only falls silent: the next one of its name
            has its partitions back without a rebalance, and where none comes they wait for the end of its session.
    """

    fetch_wait_ms: int = 200
    merge_ms: int = 5
    is_ahead: bool = True
    session_timeout_ms: int = 10_000
    heartbeat_ms: int = 2_000
    rebalance_timeout_ms: int = 12_000
    request_timeout_ms: int = 15_000
    fetch_partition_bytes: int = 1 << 20
    metadata_age_ms: int = 10_000
    failures: int = 20
    backoff_s: float = 0.25
    commit_s: float = 5.0
    member: str | None = None
    leave: bool = True


class KafkaConsumer(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Polls, commits and seeks; implements `ports.Consumer`.

    Args:
        connection: where Kafka is.
        topics: logical names.
        group: logical name.
        clock: for signs of life.
        settings: how it behaves.
        assignor: spreads partitions over the members; None = Kafka's usual one, by range.
        partitions: at most so many of each topic are read, the first ones, and the same of all (`served`); it replaces
            the assignor. None = whatever partitions there are.
        batched: topics whose plain record batches are handed out whole, on the fast way.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Iterable[str],
        group: str,
        clock: Clock,
        settings: ConsumerSettings | None = None,
        assignor: type[AbstractPartitionAssignor] | None = None,
        partitions: int | None = None,
        batched: frozenset[str] = frozenset(),
    ) -> None:
        self._connection = connection
        self._assignor = (assignor or RangePartitionAssignor) if partitions is None else served(partitions)
        self._names = {connection.real(topic): topic for topic in topics}
        # Where topics change, members divide all partitions of all topics; else the same numbers of every topic.
        self._is_changing = False
        self._wanted_topics: frozenset[str] = frozenset()
        self._absent: frozenset[str] = frozenset()  # of those that are wanted; looked for again from time to time
        self._look_us = 0
        self._group = connection.real(group)
        self._batched = batched
        self._unserved = None if partitions is None else Unserved(group, self._names, partitions)
        self._clock = clock
        self._settings = settings or ConsumerSettings()
        self._consumer: AIOKafkaConsumer | None = None
        self._source: RecordSource | None = None
        self._rebalanced: Rebalanced | None = None
        self._next: dict[KafkaPartition, int] = {}  # what to hand out next, of every partition we own
        self._ready = asyncio.Event()
        self._must_rejoin = False  # once the rebalance that is going on is over
        self._callbacks: set[asyncio.Task[None]] = set()
        self._leaving: asyncio.Task[None] | None = None
        self._generation = 0
        self._failures = 0
        self._polled_us = self._progressed_us = clock.now_us()

    @property
    def generation(self) -> int:
        """Number of the assignment."""
        return self._generation

    async def start(self, rebalanced: Rebalanced) -> None:
        """Join the group; see `ports.Consumer`."""
        settings = self._settings
        self._rebalanced = rebalanced
        fetching = FetchSettings(
            settings.fetch_wait_ms,
            merge_ms=settings.merge_ms,
            is_ahead=settings.is_ahead,
            partition_bytes=settings.fetch_partition_bytes,
            request_timeout_ms=settings.request_timeout_ms,
        )
        self._consumer = consumer_on(
            self._connection,
            (),
            fetching,
            group_id=self._group,
            group_instance_id=settings.member,
            partition_assignment_strategy=(self._assignor,),
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            max_poll_interval_ms=3_600_000,  # the watchdog's task: a loop under backpressure may rightly not poll
            metadata_max_age_ms=settings.metadata_age_ms,
        )
        try:
            await self._consumer.start()
            self._source = source_of(self._consumer, self._connection, self._names, fetching, self._batched)
            await self._source.start()
            known = await self._consumer.topics()
            await self._check_rights(self._names.keys() - known)
        except KafkaError as fault:
            await self.stop(settings.commit_s)
            raise translated(fault) from fault
        if self._is_changing:
            self._look_for(self._wanted_topics, known)
            return
        if missing := self._names.keys() - known:
            # Joining now would give no partitions, and aiokafka would look again only after `metadata_age_ms`.
            await self.stop(settings.commit_s)
            raise BrokerUnavailableError(f"no topic {', '.join(sorted(missing))}; run `skysail topics create`")
        self._consumer.subscribe(topics=list(self._names), listener=self)

    def subscribe(self, topics: frozenset[str]) -> None:
        """Read these topics from now on; see `ports.Consumer`."""
        self._is_changing = True
        self._wanted_topics = topics
        self._names |= {self._connection.real(topic): topic for topic in topics}
        self._look_us = 0

    def rejoin(self) -> None:
        """Have partitions spread anew; see `ports.Consumer`."""
        if not self._ready.is_set():
            self._must_rejoin = True  # in the rebalance that is going on they may have been spread already
            return
        consumer = self._running()
        if private.supported() is None:
            private.rejoin(consumer)
        elif topics := consumer.subscription():
            # The public way takes all partitions at once: what is not committed by now is read again.
            consumer.subscribe(topics=sorted(topics), listener=self)

    async def poll(self, timeout_ms: int, only: frozenset[str] | None = None) -> list[Record | Batch]:
        """Return everything fetched; see `ports.Consumer`."""
        if self._is_changing and self._clock.now_us() >= self._look_us:
            await self._look()
        wanted = self._wanted(only)
        if not self._ready.is_set() or (only is not None and not wanted):
            wanted, timeout_ms = [NOWHERE], min(timeout_ms, _NOWHERE_MS)
        try:
            fetched = await self._reading().poll(wanted, timeout_ms)
        except ConsumerStoppedError:
            return []
        except LOST as fault:
            await self._recover(fault)
            return []
        self._failures = 0
        self._polled_us = self._clock.now_us()
        self._check_callbacks()
        self._check_metadata()
        if self._unserved is not None:
            self._unserved.look(self._running(), self._polled_us)
        if not self._ready.is_set():
            return []  # fetched before the start positions were known; `_assigned` seeks, so they come again
        self._check_order(fetched)
        return self._hand_out(fetched)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit next offsets; see `ports.Consumer`."""
        consumer = self._running()
        owned = {self._connection.kafka_partition(partition): offset for partition, offset in offsets.items()}
        try:
            async with asyncio.timeout(self._settings.commit_s):
                await consumer.commit(owned)
        except (TimeoutError, *LOST) as fault:
            if (lasting := refusal(fault)) is not None:
                raise lasting from fault
            _log.warning("offsets not committed, they will be with the next ones: %r", fault)
            return False
        return True

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue from another offset; see `ports.Consumer`."""
        known = self._connection.kafka_partition(partition)
        if known in self._next:
            self._next[known] = offset
            self._set_back([known])

    def vitals(self) -> Vitals:
        """Return signs of life."""
        unserved = self._unserved.records if self._unserved is not None else {}
        return Vitals(len(self._next), self._lag(), self._polled_us, self._progressed_us, self._failures, unserved)

    def unread(self) -> dict[TopicPartition, int]:
        """Return how many records are to come; see `ports.Consumer`."""
        unread = self._source.unread() if self._source is not None else ()
        return {self._named(place): 1 if count is None else count for place, count in unread if count != 0}

    async def stop(self, timeout_s: float) -> None:
        """Leave the group, unless told to stay; see `ports.Consumer`."""
        if self._consumer is None:
            return
        if self._source is not None:
            self._source.stop()
        if self._unserved is not None:
            self._unserved.stop()
        if self._settings.leave and self._settings.member and private.supported() is None:
            private.become_dynamic(self._consumer)
        self._leaving = asyncio.create_task(self._consumer.stop(), name="consumer leaving")
        await asyncio.wait([self._leaving], timeout=timeout_s)
        if self._leaving.done() and not self._leaving.cancelled() and self._leaving.exception():
            _log.warning("the consumer did not stop cleanly: %r", self._leaving.exception())

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        """Called by aiokafka at the start of every rebalance."""
        self._ready.clear()
        self._generation += 1
        await self._kept(self._revoked([*revoked]))

    async def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        """Called by aiokafka at the end of every rebalance."""
        self._reading().own([*assigned])
        await self._kept(self._assigned([*assigned]))

    async def _revoked(self, revoked: list[KafkaPartition]) -> None:
        assert self._rebalanced is not None
        await self._rebalanced.on_revoked([self._named(partition) for partition in revoked])
        self._next.clear()
        self._reading().own([])

    async def _assigned(self, assigned: list[KafkaPartition]) -> None:
        assert self._rebalanced is not None
        consumer = self._running()
        asked = [self._insist(partial(consumer.committed, partition)) for partition in assigned]
        offsets: list[int | None] = await asyncio.gather(*asked)
        committed = dict(zip(map(self._named, assigned), offsets, strict=True))
        starts = {**committed, **await self._rebalanced.on_assigned(committed)}
        unknown = [partition for partition in assigned if starts[self._named(partition)] is None]
        oldest = await self._insist(partial(consumer.beginning_offsets, unknown)) if unknown else {}
        for partition in assigned:
            start = starts[self._named(partition)]
            self._next[partition] = oldest[partition] if start is None else start
        self._set_back(assigned)
        self._ready.set()
        if self._must_rejoin:
            self._must_rejoin = False
            self.rejoin()

    async def _check_rights(self, missing: Collection[str]) -> None:
        """Ask for topics by name: a list of all leaves out what this user may not see."""
        if not missing or private.supported() is not None:
            return
        client = private.client_of(self._running())
        await client.set_topics(missing)
        if hidden := client.cluster.unauthorized_topics & {*missing}:
            raise TopicAuthorizationFailedError(*sorted(hidden))

    async def _look(self) -> None:
        """Subscribe to what is wanted and there, if that has changed."""
        wanted = self._wanted_topics
        try:
            known = await self._running().topics()
        except LOST as fault:
            self._look_us = self._clock.now_us() + int(self._settings.backoff_s * 1e6)
            _log.warning("which topics there are is not known yet: %r", fault)
            return
        self._look_for(wanted, known)

    def _look_for(self, wanted: frozenset[str], known: Collection[str]) -> None:
        there = frozenset(topic for topic in wanted if self._connection.real(topic) in known)
        if (absent := wanted - there) and absent != self._absent:
            _log.warning("not read until they are there: %s", ", ".join(sorted(absent)))
        self._absent = absent
        is_known = not absent and wanted is self._wanted_topics
        self._look_us = maxsize if is_known else self._clock.now_us() + self._settings.metadata_age_ms * 1_000
        real = {self._connection.real(topic) for topic in there}
        if real and real != self._running().subscription():
            self._running().subscribe(topics=sorted(real), listener=self)

    async def _insist(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Ask the broker until it answers: without start positions there is nothing to do."""
        while True:
            try:
                return await ask()
            except LOST as fault:
                if (lasting := refusal(fault)) is not None:
                    raise lasting from fault
                _log.warning("start positions are not known yet: %r", fault)
                await asyncio.sleep(self._settings.backoff_s)

    async def _kept(self, callback: Coroutine[None, None, None]) -> None:
        """Run a rebalance callback; aiokafka swallows what it raises, so the next poll raises it."""
        task = asyncio.create_task(callback, name="rebalance")
        self._callbacks.add(task)
        await asyncio.wait([task])

    def _check_callbacks(self) -> None:
        for task in [task for task in self._callbacks if task.done()]:
            self._callbacks.discard(task)
            task.result()

    def _check_metadata(self) -> None:
        """Give up where the task that keeps the metadata has ended: nobody else looks at it."""
        task = private.metadata_keeper(self._running()) if private.supported() is None else None
        if task is not None and task.done():
            raise StuckError("aiokafka keeps its metadata no longer") from (
                None if task.cancelled() else task.exception()
            )

    async def _recover(self, fault: Exception) -> None:
        """Set every position back to what was handed out last: records drained before the exception are gone."""
        if isinstance(unwrapped(fault), _BROKERS_OWN):
            self.rejoin()  # aiokafka's heartbeat has ended with it, and only a rebalance begins it anew
        else:
            self._failures += 1
        if (lasting := refusal(fault)) is not None:
            raise lasting from fault
        if self._failures > self._settings.failures:
            raise StuckError(f"{self._failures} polls in a row failed, the last one with {fault!r}") from fault
        _log.warning("poll failed (%d in a row): %r", self._failures, fault)
        self._check_callbacks()
        if self._ready.is_set():
            self._set_back(list(self._next))
        await asyncio.sleep(self._settings.backoff_s)

    def _set_back(self, partitions: Iterable[KafkaPartition]) -> None:
        source, assigned = self._reading(), self._running().assignment()
        for partition in partitions:
            if partition in assigned:
                source.seek(partition, self._next[partition])
            else:
                _log.info("%s-%d was revoked before the seek", *partition)

    def _check_order(self, fetched: Mapping[KafkaPartition, Sequence[Record | Batch]]) -> None:
        """Hand nothing out where a log goes on below what was handed out; its reader has to start over there.

        Raises:
            LogSetBackError: it does.
        """
        starts = {place: records[0].offset for place, records in fetched.items()}
        back = {place: start for place, start in starts.items() if start < self._next.get(place, 0)}
        if back:
            self._next |= back
            self._set_back([*fetched])
            raise LogSetBackError({self._named(place): start for place, start in back.items()})

    def _hand_out(self, fetched: Mapping[KafkaPartition, Sequence[Record | Batch]]) -> list[Record | Batch]:
        handed: list[Record | Batch] = []
        for partition, records in fetched.items():
            self._next[partition] = end_of(records[-1])
            handed += records
        if handed or not self._lag():
            self._progressed_us = self._polled_us
        return handed

    def _wanted(self, only: frozenset[str] | None) -> list[KafkaPartition]:
        if only is None:
            return []
        return [partition for partition in self._next if self._names[partition.topic] in only]

    def _lag(self) -> int:
        unread = self._source.unread() if self._source is not None else ()
        return sum(count or 0 for _, count in unread)

    def _named(self, partition: KafkaPartition) -> TopicPartition:
        return self._names[partition.topic], partition.partition

    def _running(self) -> AIOKafkaConsumer:
        assert self._consumer is not None, "start() comes first"
        return self._consumer

    def _reading(self) -> RecordSource:
        assert self._source is not None, "start() comes first"
        return self._source
