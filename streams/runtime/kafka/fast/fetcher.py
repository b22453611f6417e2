"""What a consumer fetches: aiokafka's fetcher with a short way for the request it makes hundreds of times a second.

    ask ──▶ one fetch a broker ──▶ answer ──▶ held, unread ──▶ drained by a poll ──▶ ask

Fetches are incremental (`fetch_sessions`). aiokafka makes each with a task and a dozen futures, and an object for each
field, a quarter of what a role at low rates spends its CPU on (measured). Kept from it: the group, offsets and where to
begin, and its rule that a broker is not asked again before all it sent has been drained: a partition left out of a long
fetch waits for its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import errors
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition as KafkaPartition

from streams.runtime.kafka.fast.fetch_sessions import FORGOTTEN, FetchSessions
from streams.runtime.kafka.fast.protocol import FETCH, Fetched, fetch_request
from streams.runtime.kafka.fast.record_batches import unpack
from streams.runtime.kafka.fast.requests import Calls

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterator, Mapping

    from aiokafka import AIOKafkaConsumer
    from aiokafka.consumer.subscription_state import Assignment, TopicPartitionState

    from streams.operators.contract import Record
    from streams.runtime.kafka.fast.protocol import FetchAnswer, Place

_log = logging.getLogger(__name__)

_UNKNOWN = -1  # the leader of a partition, as aiokafka puts it
# A partition that cannot be read is asked for again after the client's backoff, doubled each time, at most after this.
_REST_MAX_S = 2.0
_OLD_METADATA = (errors.NotLeaderForPartitionError, errors.UnknownTopicOrPartitionError)


class _Held(NamedTuple):
    """What a broker sent for a partition and no poll has drained; or why it sent nothing."""

    assignment: Assignment
    offset: int
    records: bytes
    until_s: float  # then the broker's other partitions wait no longer for this one
    fault: KafkaError | None = None


class _Asked(NamedTuple):
    """A partition in a request."""

    state: TopicPartitionState
    offset: int


class _Rest(NamedTuple):
    """A partition that could not be read, and until when it is left alone."""

    until_s: float
    wait_s: float


class DirectFetcher(Fetcher):  # type: ignore[misc]  # aiokafka has no types
    """Fetches for a consumer; its records are ours, with the topics' logical names."""

    def __init__(
        self, names: Mapping[str, str], calls: Calls, *options: Any, quiet_wait_ms: int | None = None, **named: Any
    ) -> None:
        """Begin to wait for an assignment.

        Args:
            names: logical topics by real ones.
            calls: on the consumer's client.
            options: aiokafka's.
            quiet_wait_ms: how long a broker may hold a fetch after one that brought nothing; None = as long as any.
            named: aiokafka's.
        """
        self._names = names
        self._calls = calls
        self._quiet_wait_ms = quiet_wait_ms
        self._quiet: set[int] = set()  # brokers whose last answer brought nothing, for all that is asked of them
        self._busy: dict[int, asyncio.Future[Any]] = {}  # brokers that have not answered yet
        self._resting: dict[int, float] = {}  # brokers that failed, and until when they are left alone
        self._rests: dict[Place, _Rest] = {}  # partitions that failed, until they can be read
        self._timer: asyncio.TimerHandle | None = None  # runs while something is held
        self._held: dict[KafkaPartition, _Held] = {}
        self._turn = 0
        self._sessions = FetchSessions()
        super().__init__(*options, **named)

    @classmethod
    async def install(
        cls, consumer: AIOKafkaConsumer, names: Mapping[str, str], quiet_wait_ms: int | None = None
    ) -> DirectFetcher:
        """Put one in the place of a started consumer's own fetcher, and return it."""
        old = consumer._fetcher  # noqa: SLF001 - there is no public way to choose it
        await old.close()
        client = old._client  # noqa: SLF001
        calls = Calls(client, client._request_timeout_ms / 1000)  # noqa: SLF001
        consumer._fetcher = fetcher = cls(  # noqa: SLF001
            names,
            calls,
            client,
            consumer._subscription,  # noqa: SLF001
            fetch_min_bytes=old._fetch_min_bytes,  # noqa: SLF001
            fetch_max_bytes=old._fetch_max_bytes,  # noqa: SLF001
            fetch_max_wait_ms=old._fetch_max_wait_ms,  # noqa: SLF001
            max_partition_fetch_bytes=old._max_partition_fetch_bytes,  # noqa: SLF001
            fetcher_timeout=old._fetcher_timeout,  # noqa: SLF001
            retry_backoff_ms=old._retry_backoff * 1000,  # noqa: SLF001
            auto_offset_reset="earliest",
            quiet_wait_ms=quiet_wait_ms,
        )
        return fetcher

    def lag(self) -> int:
        """Return how much is unread, as far as the brokers have said.

        Counted from the position, which passes what is no record: marks of transactions, and what was deleted unread.
        """
        return sum(unread or 0 for _, unread in self._assigned())

    async def fetched_records(
        self,
        partitions: Collection[KafkaPartition],
        timeout: float = 0,  # noqa: ASYNC109 - as aiokafka calls it
        max_records: int | None = None,
    ) -> dict[KafkaPartition, list[Record]]:
        """Return all records that are held for these partitions (none = all); wait for some, at most `timeout` s.

        Raises:
            KafkaError: why a partition cannot be read.
        """
        del max_records  # a poll always takes everything: see `kafka_consumer`
        while True:
            # Until a new assignment is there, what was fetched may belong to somebody else.
            if self._subscriptions.reassignment_in_progress:
                await self._subscriptions.wait_for_assignment()
            drained = self._drain(partitions)
            if drained or not timeout or not await self._arrival(timeout):
                return drained

    def unread(self) -> frozenset[KafkaPartition]:
        """Return the partitions with records to come, as far as the brokers have said; those they have not told of."""
        return frozenset(place for place, unread in self._assigned() if unread != 0)

    def _assigned(self) -> Iterator[tuple[KafkaPartition, int | None]]:
        """Yield each partition with how much of it is unread; None = the broker has not told."""
        subscription = self._subscriptions.subscription
        assignment = subscription.assignment if subscription is not None else None
        if assignment is None:
            return
        for place in assignment.tps:
            state = assignment.state_value(place)
            is_known = state.has_valid_position and state.highwater is not None
            yield place, max(0, state.highwater - state.position) if is_known else None

    async def _arrival(self, timeout_s: float) -> bool:
        """Wait for records; returns whether any came in time."""
        waiter = self._create_fetch_waiter()
        timer = self._loop.call_later(timeout_s, _settle, waiter, True)
        try:
            is_late = await waiter
        finally:
            timer.cancel()
        return not is_late and not self._closed

    def _drain(self, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, list[Record]]:
        drained: dict[KafkaPartition, list[Record]] = {}
        wanted = [place for place in self._held if not partitions or place in partitions]
        for place in wanted:
            if drained and self._held[place].fault:
                break  # the next poll raises it
            held = self._held.pop(place)
            self._wake()
            records = self._taken(place, held)
            if records:
                drained[place] = records
        return drained

    def _taken(self, place: KafkaPartition, held: _Held) -> list[Record]:
        """Unpack what is held, unless the position was moved meanwhile, and move it behind."""
        if held.fault is not None:
            raise held.fault
        if not held.assignment.active:
            return []
        state = held.assignment.state_value(place)
        if not state.has_valid_position or state.position != held.offset:
            return []
        records, end = unpack(held.records, self._names[place.topic], place.partition, held.offset)
        state.consumed_to(end)
        return records

    async def _fetch_requests_routine(self) -> None:
        """Started by aiokafka as a task."""
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                assignment = await self._next_assignment()
                await self._serve(assignment)

    async def _next_assignment(self) -> Assignment:
        while True:
            subscription = self._subscriptions.subscription
            assignment = subscription.assignment if subscription is not None else None
            if assignment is not None and assignment.active:
                return assignment
            with contextlib.suppress(KafkaError):  # polls raise what is wrong with the group
                await self._subscriptions.wait_for_assignment()

    async def _serve(self, assignment: Assignment) -> None:
        """Keep the brokers of an assignment asked until it ends."""
        self._held.clear()
        self._resting.clear()
        self._rests.clear()
        self._sessions.clear()
        self._quiet.clear()
        states = {place: assignment.state_value(place) for place in assignment.tps}
        assignment.unassign_future.add_done_callback(self._wake)
        try:
            while assignment.active:
                self._wait_consume_future = self._loop.create_future()
                wait_s = self._ask(assignment, states)
                timer = self._loop.call_later(wait_s, self._wake)
                await self._wait_consume_future
                timer.cancel()
        finally:
            busy, self._busy = self._busy, {}
            for answer in busy.values():
                answer.cancel()

    def _ask(self, assignment: Assignment, states: Mapping[KafkaPartition, TopicPartitionState]) -> float:
        """Ask every broker that has nothing to answer and nothing undrained; returns for how long that will do (s)."""
        now_s = self._loop.time()
        wait_s: float = self._fetcher_timeout
        self._resting = {node: until_s for node, until_s in self._resting.items() if until_s > now_s}
        left_alone = dict(self._resting)
        for rest in self._rests.values():
            if rest.until_s > now_s:
                wait_s = min(wait_s, rest.until_s - now_s)
        for node, places in self._due(states, now_s, left_alone).items():
            if node in left_alone:
                wait_s = min(wait_s, left_alone[node] - now_s)
            elif node == _UNKNOWN:
                self._client.force_metadata_update()
                wait_s = min(wait_s, self._retry_backoff)
            else:
                self._ask_broker(assignment, node, places)
        return wait_s

    def _due(
        self, states: Mapping[KafkaPartition, TopicPartitionState], now_s: float, left_alone: dict[int, float]
    ) -> dict[int, dict[Place, TopicPartitionState]]:
        """Return what can be asked for, by broker; note which brokers sent what is not drained."""
        due: dict[int, dict[Place, TopicPartitionState]] = {}
        leader = self._client.cluster.leader_for_partition
        for place, state in states.items():
            node = leader(place)
            held = self._held.get(place)
            if held is not None:
                if held.until_s > now_s:
                    left_alone[node] = max(left_alone.get(node, 0.0), held.until_s)
            elif node not in self._busy and (not self._rests or self._is_rested(place, now_s)):
                due.setdefault(_UNKNOWN if node is None else node, {})[place] = state
        return due

    def _is_rested(self, place: Place, now_s: float) -> bool:
        rest = self._rests.get(place)
        return rest is None or rest.until_s <= now_s

    def _ask_broker(self, assignment: Assignment, node: int, places: dict[Place, TopicPartitionState]) -> None:
        unplaced = [place for place, state in places.items() if not state.has_valid_position]
        if unplaced:
            self._begin(node, self._update_fetch_positions(assignment, node, unplaced))
        elif not self._calls.connected(node):
            self._begin(node, self._connect(node))
        else:
            self._fetch(assignment, node, {place: _Asked(state, state.position) for place, state in places.items()})

    def _begin(self, node: int, job: Coroutine[Any, Any, Any]) -> None:
        """Look again when a broker's slow work is done: connecting, or finding out where to begin."""
        work = self._busy[node] = self._loop.create_task(job)
        work.add_done_callback(partial(self._done, node))

    def _done(self, node: int, work: asyncio.Future[Any]) -> None:
        if self._busy.get(node) is work:
            del self._busy[node]
            if not work.cancelled() and work.exception() is not None:
                _log.error("broker %d: %r", node, work.exception())
                self._rest(node)
            elif not work.cancelled() and work.result():
                self._arrived()
            self._wake()

    async def _connect(self, node: int) -> None:
        if not await self._calls.connect(node):
            self._rest(node)

    def _fetch(self, assignment: Assignment, node: int, asked: dict[Place, _Asked]) -> None:
        said = self._sessions.ask(node, {place: partition.offset for place, partition in asked.items()})
        wanted = [*said.offsets.items()]
        if said.is_whole:
            # A broker may exceed its limits for the first partition with records only, so each must be first at times;
            # within a session it takes turns by itself.
            self._turn += 1
            first = self._turn % len(asked)
            wanted = wanted[first:] + wanted[:first]
        body = fetch_request(
            wanted,
            self._quiet_wait_ms or self._fetch_max_wait_ms if node in self._quiet else self._fetch_max_wait_ms,
            self._fetch_min_bytes,
            self._fetch_max_bytes,
            self._max_partition_fetch_bytes,
            (said.session, said.epoch),
        )
        try:
            answer = self._calls.post(node, FETCH, body)
        except KafkaError as fault:
            self._failed(assignment, node, asked, fault)
            return
        self._busy[node] = answer
        answer.add_done_callback(partial(self._answered, assignment, node, asked))

    def _answered(
        self, assignment: Assignment, node: int, asked: Mapping[Place, _Asked], answer: asyncio.Future[FetchAnswer]
    ) -> None:
        if self._busy.get(node) is not answer:
            return  # it was asked for an assignment that has ended
        del self._busy[node]
        self._quiet.discard(node)
        fault = answer.exception()
        if isinstance(fault, KafkaError):
            self._failed(assignment, node, asked, fault)
        elif fault is not None:
            raise fault
        elif code := answer.result().code:
            self._refused_whole(assignment, node, asked, code)
        else:
            self._sessions.answered(node, answer.result().session, {at: one.offset for at, one in asked.items()})
            if self._hold(assignment, node, asked, answer.result().partitions):
                self._arrived()
            else:
                if not self._held:
                    self._quiet.add(node)
                self._wake()

    def _refused_whole(self, assignment: Assignment, node: int, asked: Mapping[Place, _Asked], code: int) -> None:
        """Begin a new session at once where the broker has forgotten the old one; else as after any failure."""
        if code in FORGOTTEN:
            self._sessions.end(node)
            self._wake()
        else:
            self._failed(assignment, node, asked, errors.for_code(code)())

    def _hold(
        self, assignment: Assignment, node: int, asked: Mapping[Place, _Asked], partitions: list[Fetched]
    ) -> bool:
        """Keep what was sent until it is drained; returns whether there is anything."""
        until_s = self._loop.time() + self._prefetch_backoff
        has_any = False
        for place, code, high_watermark, records in partitions:
            state, offset = asked[place]
            if not state.has_valid_position or state.position != offset:
                continue  # moved meanwhile
            if code:
                fault = self._refused(place, state, errors.for_code(code)(place))
                if fault is None:
                    continue
                self._held[_place(place)] = _Held(assignment, offset, b"", until_s, fault)
            else:
                if self._rests:
                    self._rests.pop(place, None)
                state.highwater = high_watermark
                if not records:
                    continue
                self._held[_place(place)] = _Held(assignment, offset, records, until_s)
            has_any = True
        return has_any

    def _refused(self, place: Place, state: TopicPartitionState, fault: KafkaError) -> KafkaError | None:
        """Do something about a partition that cannot be read; returns what a poll must be told.

        It rests alone: for hours, it may be, while its neighbours are read as ever.
        """
        if isinstance(fault, errors.OffsetOutOfRangeError):
            _log.warning("%s-%d: offset %d is out of range, beginning with the oldest", *place, state.position)
            state.await_reset(self._default_reset_strategy)
            return None
        if isinstance(fault, errors.TopicAuthorizationFailedError):
            return fault
        if isinstance(fault, _OLD_METADATA):
            self._client.force_metadata_update()
        else:
            _log.warning("%s-%d cannot be read: %r", *place, fault)
        before = self._rests.get(place)
        wait_s = min(2 * before.wait_s, _REST_MAX_S) if before is not None else self._retry_backoff
        self._rests[place] = _Rest(self._loop.time() + wait_s, wait_s)
        return None

    def _failed(self, assignment: Assignment, node: int, asked: Mapping[Place, _Asked], fault: KafkaError) -> None:
        """Try a broker again later; a poll is told what later will not mend."""
        self._sessions.end(node)
        if fault.retriable:
            _log.warning("fetch from broker %d failed: %r", node, fault)
            self._rest(node)
            self._wake()
            return
        until_s = self._loop.time() + self._prefetch_backoff
        for place, partition in asked.items():
            self._held[_place(place)] = _Held(assignment, partition.offset, b"", until_s, fault)
        self._arrived()

    def _rest(self, node: int) -> None:
        self._resting[node] = self._loop.time() + self._retry_backoff

    def _arrived(self) -> None:
        """Wake the poll; if there is none, the broker's other partitions are asked for after a while all the same."""
        for waiter in self._fetch_waiters:
            _settle(waiter, is_late=False)
        if self._timer is None:
            self._timer = self._loop.call_later(self._prefetch_backoff, self._undrained)

    def _undrained(self) -> None:
        self._timer = None
        if self._held:
            self._wake()

    def _wake(self, _: object = None) -> None:
        """Have `_serve` look again."""
        if not self._wait_consume_future.done():
            self._wait_consume_future.set_result(None)


def _settle(waiter: asyncio.Future[bool], is_late: bool) -> None:
    if not waiter.done():
        waiter.set_result(is_late)


def _place(place: Place) -> KafkaPartition:
    return KafkaPartition(*place)
