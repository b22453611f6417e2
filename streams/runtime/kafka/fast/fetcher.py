"""Fetches what a consumer owns: no task and no object per field for a request that is made hundreds of times a second.

    ask ──▶ one fetch a broker ──▶ answer ──▶ held, unread ──▶ drained by a poll ──▶ ask, or with the next poll

Fetches are incremental (`fetch_sessions`). A broker is not asked again before all it sent has been drained, as in
aiokafka: a partition that is left out of a long fetch waits for its end. aiokafka's own fetcher makes each fetch with a
task and a dozen futures: a quarter of what a role at low rates spent its CPU on (measured).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aiokafka import errors
from aiokafka.errors import KafkaError

from streams.operators.contract import count_of
from streams.runtime.kafka.error_codes import fault_of
from streams.runtime.kafka.fast.fetch_sessions import FORGOTTEN, FetchSessions
from streams.runtime.kafka.fast.protocol import FETCH, fetch_request
from streams.runtime.kafka.fast.record_batches import split
from streams.runtime.kafka.merging import NONE, ArrivalRate, Merging, StrainGauge, merging

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping

    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Batch, Record
    from streams.runtime.kafka.fast.protocol import FetchAnswer, Fetched, Place
    from streams.runtime.kafka.fast.requests import Calls
    from streams.runtime.kafka.transport_ports import FetchSettings

_log = logging.getLogger(__name__)

_UNKNOWN = -1  # stands for the leader of a partition that has none
_MOST_BYTES = 50 << 20  # of an answer
# How long undrained records of one partition may delay the other partitions of their broker (s).
_HOLD_S = 0.1
# A broker answers when a fetch has waited long enough, and so much later at most (s), unless it is in trouble.
_PROMPT_S = 1.0
# Without being woken, the fetcher looks around after this (s).
_LOOK_S = 1.0
# A partition that cannot be read is asked for again after the client's rest, doubled each time, at most after this.
_REST_MAX_S = 2.0
_OLD_METADATA = (errors.NotLeaderForPartitionError, errors.UnknownTopicOrPartitionError)


@dataclass(slots=True)
class _FetchedPartition:
    """How far a partition was read; without a position the log has to say where it begins.

    What is read again, below `passed`, is handed out record by record: somebody stumbled over it.
    """

    place: KafkaPartition
    position: int | None
    passed: int = 0
    high_watermark: int | None = None
    heard_s: float = 0.0  # when its broker last answered


class _Held(NamedTuple):
    """What a broker sent for a partition and no poll has drained; or why it sent nothing."""

    offset: int
    records: bytes
    until_s: float  # then the broker's other partitions wait no longer for this one
    fault: KafkaError | None = None


class _Rest(NamedTuple):
    """Until when a partition that could not be read is left alone."""

    until_s: float
    wait_s: float


_Asked = dict["Place", tuple[_FetchedPartition, int]]  # the partitions in a request, and from which offset on


class Fetcher:
    """Fetches for one consumer on one event loop; its records are ours, with the topics' logical names."""

    def __init__(
        self,
        calls: Calls,
        names: Mapping[str, str],
        settings: FetchSettings,
        rest_s: float,
        oldest: Callable[[list[KafkaPartition]], Awaitable[Mapping[KafkaPartition, int]]],
        batched: frozenset[str] = frozenset(),
        *,
        gauge: StrainGauge | None = None,
    ) -> None:
        """Nothing is fetched before the first `seek`.

        Args:
            calls: on the consumer's client.
            names: logical topics by real ones.
            settings: how brokers are asked.
            rest_s: after a failure.
            oldest: looks up where partitions begin.
            batched: logical topics whose plain record batches are handed out whole.
            gauge: says how hard pressed the event loop is; None = one of its own.
        """
        self._calls = calls
        self._names = names
        self._settings = settings
        self._silence_s = _PROMPT_S + 2 * max(settings.wait_ms, settings.quiet_wait_ms or 0) / 1e3
        self._rest_s = rest_s
        self._oldest = oldest
        self._batched = batched
        self._loop = asyncio.get_running_loop()
        self._partitions: dict[KafkaPartition, _FetchedPartition] = {}
        self._held: dict[Place, _Held] = {}
        self._quiet: set[int] = set()  # brokers whose last answer brought nothing, for all that is asked of them
        self._giving: set[int] = set()  # brokers whose last answer brought records
        self._rate = ArrivalRate()
        self._gauge = gauge or StrainGauge()
        # Brokers that have not answered yet.
        self._busy: dict[int, asyncio.Future[None] | asyncio.Future[FetchAnswer]] = {}
        self._resting: dict[int, float] = {}  # brokers that failed, and until when they are left alone
        self._rests: dict[Place, _Rest] = {}  # partitions that failed, until they can be read
        self._sessions = FetchSessions()
        self._turn = 0
        self._waiters: set[asyncio.Future[bool]] = set()  # polls
        self._is_woken = False
        self._is_pausing = False  # until the next poll nobody is asked
        self._next_look: asyncio.TimerHandle | None = None
        self._hold: asyncio.TimerHandle | None = None  # runs while something is held
        self._is_stopped = False

    def keep(self, places: Collection[KafkaPartition]) -> None:
        """Forget all partitions but these, and what is on its way."""
        self._partitions = {place: state for place, state in self._partitions.items() if place in places}
        self._held.clear()
        self._rests.clear()
        self._resting.clear()
        self._quiet.clear()
        self._giving.clear()
        self._sessions.clear()
        busy, self._busy = self._busy, {}
        for answer in busy.values():
            answer.cancel()
        self._wake()

    def seek(self, place: KafkaPartition, offset: int) -> None:
        """Read a partition from this offset on."""
        state = self._partitions.get(place)
        if state is None:
            self._partitions[place] = _FetchedPartition(place, offset)
        else:
            state.passed = max(state.passed, state.position or 0)
            state.position = offset
        self._held.pop(place, None)
        self._wake()

    def position(self, place: KafkaPartition) -> int | None:
        """Return the offset behind what was drained, and behind what is no record."""
        state = self._partitions.get(place)
        return None if state is None else state.position

    def unread(self) -> Iterator[tuple[KafkaPartition, int | None]]:
        """Yield each partition with how much of it is unread; None = the broker has not told, or not lately.

        Counted from the position, which passes what is no record: marks of transactions, and what was deleted unread.
        On a connection that has fallen silent the last end that was told says nothing.
        """
        since_s = self._loop.time() - self._silence_s
        for place, state in self._partitions.items():
            is_known = state.position is not None and state.high_watermark is not None and state.heard_s >= since_s
            yield place, max(0, state.high_watermark - state.position) if is_known else None  # type: ignore[operator]

    async def poll(
        self, places: Collection[KafkaPartition], timeout_s: float
    ) -> dict[KafkaPartition, list[Record | Batch]]:
        """Return all records that are held for these partitions (none = all); wait for some, at most `timeout_s`.

        Raises:
            KafkaError: why a partition cannot be read.
        """
        until_s = self._loop.time() + timeout_s
        if self._is_pausing:
            self._is_pausing = False
            self._look()
        while True:
            drained = self._drain(places)
            left_s = until_s - self._loop.time()
            if drained or left_s <= 0 or not await self._arrival(left_s):
                return drained

    def stop(self) -> None:
        """Fetch nothing any more; polls that wait return."""
        self._is_stopped = True
        self.keep(())
        for timer in (self._next_look, self._hold):
            if timer is not None:
                timer.cancel()
        for waiter in self._waiters:
            _settle(waiter, has_come=False)

    async def _arrival(self, timeout_s: float) -> bool:
        """Wait for records; returns whether any came in time."""
        waiter: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, _settle, waiter, False)
        self._waiters.add(waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    def _drain(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, list[Record | Batch]]:
        drained: dict[KafkaPartition, list[Record | Batch]] = {}
        if not self._held:
            return drained
        for place in [place for place in self._held if not places or place in places]:
            if drained and self._held[place].fault:
                break  # the next poll raises it
            held = self._held.pop(place)
            self._wake()
            state = self._partitions[place]
            records = self._taken(state, held)
            if records:
                drained[state.place] = records
        if drained:
            self._gauge.taken()
            self._is_pausing = not self._settings.is_ahead and all(count == 0 for _, count in self.unread())
            self._look()  # not in the next turn: the broker gathers the next records while these are worked on
        return drained

    def _taken(self, state: _FetchedPartition, held: _Held) -> list[Record | Batch]:
        """Unpack what is held and move the position behind it."""
        if held.fault is not None:
            raise held.fault
        topic, partition = self._names[state.place.topic], state.place.partition
        whole_from = state.passed if topic in self._batched else None
        records, state.position = split(held.records, topic, partition, held.offset, whole_from)
        self._rate.add(count_of(records), len(held.records), self._loop.time())
        return records

    def _wake(self) -> None:
        """Look, in the next turn of the loop, whether a broker can be asked."""
        if not self._is_woken and not self._is_stopped:
            self._is_woken = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_woken = False
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        if self._partitions and not self._is_stopped and not self._is_pausing:
            self._next_look = self._loop.call_later(self._ask(), self._wake)

    def _ask(self) -> float:
        """Ask every broker that has nothing to answer and nothing undrained; returns for how long that will do (s)."""
        now_s = self._loop.time()
        wait_s = _LOOK_S
        self._resting = {node: until_s for node, until_s in self._resting.items() if until_s > now_s}
        left_alone = dict(self._resting)
        for rest in self._rests.values():
            if rest.until_s > now_s:
                wait_s = min(wait_s, rest.until_s - now_s)
        for node, states in self._due(now_s, left_alone).items():
            if node in left_alone:
                wait_s = min(wait_s, left_alone[node] - now_s)
            elif node == _UNKNOWN:
                self._calls.refresh()
                wait_s = min(wait_s, self._rest_s)
            else:
                self._ask_broker(node, states)
        return wait_s

    def _due(self, now_s: float, left_alone: dict[int, float]) -> dict[int, list[_FetchedPartition]]:
        """Return what can be asked for, by broker; note which brokers sent what is not drained."""
        due: dict[int, list[_FetchedPartition]] = {}
        leader = self._calls.leader
        for place, state in self._partitions.items():
            node = leader(place)
            held = self._held.get(place)
            if held is not None:
                if held.until_s > now_s and node is not None:
                    left_alone[node] = max(left_alone.get(node, 0.0), held.until_s)
            elif node not in self._busy and (not self._rests or self._is_rested(place, now_s)):
                due.setdefault(_UNKNOWN if node is None else node, []).append(state)
        return due

    def _is_rested(self, place: Place, now_s: float) -> bool:
        rest = self._rests.get(place)
        return rest is None or rest.until_s <= now_s

    def _ask_broker(self, node: int, states: list[_FetchedPartition]) -> None:
        unplaced = [state for state in states if state.position is None]
        if unplaced:
            self._begin(node, self._find_begin(unplaced))
        elif not self._calls.connected(node):
            self._begin(node, self._connect(node))
        else:
            self._fetch(node, {state.place: (state, state.position or 0) for state in states})

    def _begin(self, node: int, job: Coroutine[object, object, None]) -> None:
        """Look again when a broker's slow work is done: connecting, or finding out where to begin."""
        work = self._busy[node] = self._loop.create_task(job)
        work.add_done_callback(partial(self._done, node))

    def _done(self, node: int, work: asyncio.Future[None]) -> None:
        fault = None if work.cancelled() else work.exception()
        if self._busy.get(node) is work:
            del self._busy[node]
            if fault is not None:
                _log.error("broker %d: %r", node, fault)
                self._rest(node)
            self._wake()

    async def _connect(self, node: int) -> None:
        if not await self._calls.connect(node):
            self._rest(node)

    async def _find_begin(self, states: list[_FetchedPartition]) -> None:
        """Begin with the oldest records of partitions whose position is not there any more."""
        found = await self._oldest([state.place for state in states])
        for state in states:
            if state.position is None:  # nobody has moved it meanwhile
                state.position = found[state.place]

    def _fetch(self, node: int, asked: _Asked) -> None:
        said = self._sessions.ask(node, {place: offset for place, (_, offset) in asked.items()})
        wanted = [*said.offsets.items()]
        if said.is_whole:
            # A broker may exceed its limits for the first partition with records only, so each must be first at times;
            # within a session it takes turns by itself.
            self._turn += 1
            first = self._turn % len(asked)
            wanted = wanted[first:] + wanted[:first]
        wait_ms, least_bytes = self._patience(node)
        body = fetch_request(
            wanted,
            wait_ms,
            least_bytes,
            _MOST_BYTES,
            self._settings.partition_bytes,
            (said.session, said.epoch),
        )
        try:
            answer = self._calls.post(node, FETCH, body)
        except KafkaError as fault:
            self._failed(node, asked, fault)
            return
        self._busy[node] = answer
        answer.add_done_callback(partial(self._answered, node, asked))

    def _patience(self, node: int) -> Merging:
        """Return for how long a broker may hold a fetch, and for how few bytes; one without records waits for any."""
        given, rate = self._settings, self._rate
        if node in self._giving:
            merged = merging(rate.per_s, rate.bytes_per_s, self._gauge.strain(), given.merge_ms)
            if merged is not NONE:
                return merged
        wait_ms = given.quiet_wait_ms or given.wait_ms if node in self._quiet else given.wait_ms
        return Merging(wait_ms, NONE.least_bytes)

    def _answered(self, node: int, asked: _Asked, answer: asyncio.Future[FetchAnswer]) -> None:
        if self._busy.get(node) is not answer:
            return  # it was asked for what is not ours any more
        del self._busy[node]
        self._quiet.discard(node)
        self._giving.discard(node)
        fault = answer.exception()
        if isinstance(fault, KafkaError):
            self._failed(node, asked, fault)
        elif fault is not None:
            raise fault
        elif code := answer.result().code:
            self._refused_whole(node, asked, code)
        else:
            self._sessions.answered(node, answer.result().session, {at: offset for at, (_, offset) in asked.items()})
            now_s = self._loop.time()
            for state, _ in asked.values():
                state.heard_s = now_s
            if self._keep_all(asked, answer.result().partitions):
                self._giving.add(node)
                self._arrived()
            else:
                if not self._held:
                    self._quiet.add(node)
                self._wake()

    def _refused_whole(self, node: int, asked: _Asked, code: int) -> None:
        """Begin a new session at once where the broker has forgotten the old one; else as after any failure."""
        if code in FORGOTTEN:
            self._sessions.end(node)
            self._wake()
        else:
            self._failed(node, asked, fault_of(code))

    def _keep_all(self, asked: _Asked, partitions: list[Fetched]) -> bool:
        """Keep what was sent until it is drained; returns whether there is anything."""
        until_s = self._loop.time() + _HOLD_S
        has_any = False
        for place, code, high_watermark, records in partitions:
            state, offset = asked[place]
            if state.position != offset:
                continue  # moved meanwhile
            if code:
                fault = self._refused(state, fault_of(code, place))
                if fault is None:
                    continue
                self._held[place] = _Held(offset, b"", until_s, fault)
            else:
                if self._rests:
                    self._rests.pop(place, None)
                state.high_watermark = high_watermark
                if not records:
                    continue
                self._held[place] = _Held(offset, records, until_s)
            has_any = True
        return has_any

    def _refused(self, state: _FetchedPartition, fault: KafkaError) -> KafkaError | None:
        """Do something about a partition that cannot be read; returns what a poll must be told.

        It rests alone, for hours perhaps, while its neighbours are read.
        """
        place = state.place
        if isinstance(fault, errors.OffsetOutOfRangeError):
            _log.warning("%s-%d: offset %d is out of range, beginning with the oldest", *place, state.position)
            state.position = None
            return None
        if isinstance(fault, errors.TopicAuthorizationFailedError):
            return fault
        if isinstance(fault, _OLD_METADATA):
            self._calls.refresh()
        else:
            _log.warning("%s-%d cannot be read: %r", *place, fault)
        before = self._rests.get(place)
        wait_s = min(2 * before.wait_s, _REST_MAX_S) if before is not None else self._rest_s
        self._rests[place] = _Rest(self._loop.time() + wait_s, wait_s)
        return None

    def _failed(self, node: int, asked: _Asked, fault: KafkaError) -> None:
        """Try a broker again later; a poll is told what later will not mend."""
        self._sessions.end(node)
        if fault.retriable:
            _log.warning("fetch from broker %d failed: %r", node, fault)
            self._rest(node)
            self._wake()
            return
        until_s = self._loop.time() + _HOLD_S
        for place, (_, offset) in asked.items():
            self._held[place] = _Held(offset, b"", until_s, fault)
        self._arrived()

    def _rest(self, node: int) -> None:
        self._resting[node] = self._loop.time() + self._rest_s

    def _arrived(self) -> None:
        """Wake the poll; if there is none, the broker's other partitions are asked for after a while all the same."""
        self._gauge.came()
        for waiter in self._waiters:
            _settle(waiter, has_come=True)
        if self._hold is None:
            self._hold = self._loop.call_later(_HOLD_S, self._undrained)

    def _undrained(self) -> None:
        self._hold = None
        if self._held:
            self._wake()


def _settle(waiter: asyncio.Future[bool], has_come: bool) -> None:
    if not waiter.done():
        waiter.set_result(has_come)
