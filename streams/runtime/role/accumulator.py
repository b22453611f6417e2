"""The accumulator: what is to be produced, by partition, one batch in flight on each.

    send() ──▶ [pending of (topic, partition)] ──▶ one batch in flight ──▶ acknowledged(positions, spans)
                everything that piled up meanwhile goes into the next batch, finished batches, too;
                if that is refused these go one by one, and one that is refused alone record by record

Nobody waits for a record: no future, no task and no await per record. The batch grows by itself as the broker slows
down, so no linger is needed. `create_batch()/send_batch()` underneath costs 2 us a record, `send()` 15 (measured).

What gathers in one turn of the event loop leaves in the next one, of all lanes together, and its answer is a callback.
Only a lane that has to wait for something else has a task: for a connection, a leader, another attempt, or patience.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, cast

from streams.operators.contract import EmitBatch
from streams.runtime.errors import BrokerUnavailableError, RecordRefusedError, UnknownPartitionError
from streams.runtime.kafka.fast.whole_batches import emits_of, gathered
from streams.runtime.ports import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence

    from streams.operators.contract import Emit, Position, Span
    from streams.runtime.ports import TopicPartition, Transport

_log = logging.getLogger(__name__)

# What one record costs beyond its value: the tuple, its positions, its place in the list (measured: 150-200), the key,
# which is an id that stands in the value, too.
_OVERHEAD_BYTES = 250
# More than any batch holds at 1 MiB and 100 bytes a record; bounds the slice that is offered to the transport.
_OFFERED = 10_000
# Finished batches are put together up to so many bytes: then a request costs little beside what it carries.
GATHERED_BYTES = 1 << 18
_place = itemgetter(0, 1)
# How long records for patient readers are gathered: a request costs about a millisecond of CPU whatever it carries.
PATIENCE_S = 0.1
BACKOFF_S = 0.05  # first wait after a failure, doubled each time
BACKOFF_MAX_S = 2.0  # a broker that comes back is noticed within this
_DOUBLINGS = 10  # more of them change nothing, and a thousand are no number any more
# After so long without an acknowledgement a lane stands still: longer than a leader takes to move, or a broker to
# collect its garbage, and longer than most who would get what is sent would wait for it.
STANDS_STILL_S = 1.0
# What one topic may have pending in lanes that stand still, as a share of the bound: a model's topic whose leader is
# silent must leave room for the others, and for answers.
_TOPIC_SHARE = 0.25


class AccumulatorEvents(NamedTuple):
    """What lanes tell.

    Attributes:
        acknowledged: the broker has what completes these positions and spans.
        refused: this record can never be produced, and why.
    """

    acknowledged: Callable[[Sequence[Position], Sequence[Span]], None]
    refused: Callable[[Emit, RecordRefusedError], None]


class _Offer(NamedTuple):
    """What a lane sends next: records, or a batch that stands for so many of what is pending."""

    said: list[Emit] | EmitBatch
    stands_for: int = 0


class _SendLane:
    __slots__ = ("active", "alone", "failures", "moved_s", "pending", "pending_bytes")

    def __init__(self) -> None:
        self.alone = 0  # of what is pending, so many are not put together: they were refused so
        self.pending: deque[Emit | EmitBatch] = deque()
        self.pending_bytes = 0
        self.active = False
        self.failures = 0
        self.moved_s = 0.0  # when something was acknowledged last, or there was nothing to send


class Accumulator:
    """All lanes of one loop; its tasks live in the task group that the loop owns.

    Args:
        transport: sends one batch.
        events: receives the outcomes.
        tasks: owner of the lanes' tasks: at most one a partition, and only while that partition has to wait.
        bound_bytes: pending bytes at which `pressure()` is 1.
        patient: topics whose records nobody waits for: they are sent some time later, together.
    """

    def __init__(
        self,
        transport: Transport,
        events: AccumulatorEvents,
        tasks: asyncio.TaskGroup,
        bound_bytes: int = 64 << 20,
        patient: Collection[str] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()  # to ask for it costs a system call each time
        self._patient = frozenset(patient)
        self._transport = transport
        self._events = events
        self._tasks = tasks
        self._bound_bytes = bound_bytes
        self._topic_bytes = _TOPIC_SHARE * bound_bytes
        self._lanes: dict[TopicPartition, _SendLane] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._due: list[tuple[TopicPartition, _SendLane]] = []  # lanes that send in the next turn
        self._active = 0
        self._is_abandoned = False
        self._pending_bytes = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.counters: Counter[str] = Counter()

    def send(self, emits: Iterable[Emit | EmitBatch]) -> None:
        """Queue records, and batches of them; never waits. Order within a partition is kept.

        Dropped is only what completes nothing, where its topic's lanes have too much in hand and stand still.
        """
        for (topic, partition), run in groupby(emits, _place):
            lane = self._lanes.get((topic, partition))
            if lane is None:
                lane = self._lanes[topic, partition] = _SendLane()
            queued = [*run]
            if self._pending_bytes > self._topic_bytes and self._stands_still(lane) and self._has_too_much(topic):
                queued = self._awaited(queued, topic)
            lane.pending.extend(queued)
            self._hold(lane, queued)
            if not lane.active:
                self._begin((topic, partition), lane)

    def pressure(self) -> float:
        """Return pending bytes as a share of the bound; from 1 on the caller should take in less."""
        return self._pending_bytes / self._bound_bytes

    def stands_still(self, topic: str) -> bool:
        """Tell whether something of a topic has waited for long, and nothing of its partition was acknowledged."""
        return any(self._stands_still(lane) for (name, _), lane in self._lanes.items() if name == topic)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until nothing is pending; False if that took longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def abandon(self) -> None:
        """Give up what is pending; its sources were not completed and will be read again."""
        self._is_abandoned = True
        for task in self._running:
            task.cancel()

    def _has_too_much(self, topic: str) -> bool:
        held = (lane.pending_bytes for (name, _), lane in self._lanes.items() if name == topic)
        return sum(held) > self._topic_bytes

    def _stands_still(self, lane: _SendLane) -> bool:
        return lane.active and self._loop.time() - lane.moved_s > STANDS_STILL_S

    def _begin(self, place: TopicPartition, lane: _SendLane) -> None:
        lane.active = True
        lane.moved_s = self._loop.time()
        self._active += 1
        self._idle.clear()
        if place[0] in self._patient:
            self._wait(place, lane)
        else:
            self._go_on(place, lane)

    def _go_on(self, place: TopicPartition, lane: _SendLane) -> None:
        if not self._due:
            self._loop.call_soon(self._depart)
        self._due.append((place, lane))

    def _end(self, lane: _SendLane) -> None:
        lane.active = False
        self._active -= 1
        if not self._active:
            self._idle.set()

    def _wait(self, place: TopicPartition, lane: _SendLane) -> None:
        self._run(self._drain(*place, lane), f"lane {place[0]}-{place[1]}")

    def _run(self, job: Coroutine[object, object, None], name: str) -> None:
        task = self._tasks.create_task(job, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _depart(self) -> None:
        """Send what lanes have that wait for no answer; where that cannot be done in one go, a task does it."""
        due, self._due = self._due, []
        if self._is_abandoned:
            return
        try:
            offers = [_offered(lane) for _, lane in due]
            posted = self._transport.post([offer.said for offer in offers])
        except Exception as fault:  # noqa: BLE001  # whatever it is, it ends the role as it would in a task
            self._run(_raised(fault), "lanes")
            return
        for (place, lane), offer, left in zip(due, offers, posted, strict=True):
            if left is None:
                self._wait(place, lane)
            else:
                count = offer.stands_for or left.sent
                left.answer.add_done_callback(partial(self._answered, place, lane, count))

    def _answered(self, place: TopicPartition, lane: _SendLane, count: int, answer: asyncio.Future[None]) -> None:
        has_failed = answer.cancelled() or answer.exception() is not None
        if self._is_abandoned:
            return
        if has_failed:
            self.counters["lane_retries_total"] += 1
            self._wait(place, lane)  # finds out what is wrong
            return
        try:
            self._succeeded(lane, count)
        except Exception as fault:  # noqa: BLE001  # as above
            self._run(_raised(fault), "lanes")
            return
        if lane.pending:
            self._go_on(place, lane)
        else:
            self._end(lane)

    async def _drain(self, topic: str, partition: int, lane: _SendLane) -> None:
        try:
            while lane.pending:
                if topic in self._patient:
                    await asyncio.sleep(PATIENCE_S)
                await self._advance(topic, partition, lane)
        finally:
            self._end(lane)

    async def _advance(self, topic: str, partition: int, lane: _SendLane) -> None:
        """Send one batch, or wait before the next attempt."""
        said, count = _offered(lane)
        try:
            if isinstance(said, EmitBatch):
                await self._transport.send_batch(said)
            else:
                count = await self._transport.send(topic, partition, said)
        except RecordRefusedError as fault:
            lane.failures = 0
            lane.moved_s = self._loop.time()
            if count > 1:
                lane.alone = count
            else:
                self._refuse(lane, fault)
        except UnknownPartitionError as fault:
            self._shed(topic, lane)
            await self._back_off(topic, partition, lane, fault)
        except BrokerUnavailableError as fault:
            if self._stands_still(lane):
                self._shed(topic, lane)
            await self._back_off(topic, partition, lane, fault)
        else:
            self._succeeded(lane, count)

    def _succeeded(self, lane: _SendLane, count: int) -> None:
        lane.failures = 0
        lane.moved_s = self._loop.time()
        self._acknowledge(self._take(lane, count))

    def _refuse(self, lane: _SendLane, fault: RecordRefusedError) -> None:
        """Give back the first record; of a batch send one record after the other, and so find the one that is meant."""
        (first,) = self._take(lane, 1)
        if not isinstance(first, EmitBatch):
            self._events.refused(first, fault)
            self.counters["lane_refused_total"] += 1
            return
        emits = emits_of(first)
        lane.pending.extendleft(reversed(emits))
        lane.alone += len(emits)
        self._hold(lane, emits)
        self.counters["lane_unpacked_total"] += 1

    def _acknowledge(self, sent: Sequence[Emit | EmitBatch]) -> None:
        positions: list[Position] = []
        spans: list[Span] = []
        for one in sent:
            if isinstance(one, EmitBatch):
                self.counters["lane_records_total"] += one.count - 1
                spans += one.completes
            else:
                positions += one.completes
        self.counters["lane_batches_total"] += 1
        self.counters["lane_records_total"] += len(sent)
        if positions or spans:
            self._events.acknowledged(positions, spans)

    def _hold(self, lane: _SendLane, emits: Collection[Emit | EmitBatch]) -> None:
        size = _size(emits)
        lane.pending_bytes += size
        self._pending_bytes += size

    def _take(self, lane: _SendLane, count: int) -> list[Emit | EmitBatch]:
        taken = [lane.pending.popleft() for _ in range(count)]
        lane.alone = max(0, lane.alone - count)
        self._release(lane, taken)
        return taken

    def _release(self, lane: _SendLane, emits: Collection[Emit | EmitBatch]) -> None:
        size = _size(emits)
        lane.pending_bytes -= size
        self._pending_bytes -= size

    def _shed(self, topic: str, lane: _SendLane) -> None:
        """Drop records without a waiter: a topic that cannot be written to (a model's) must not stop other lanes."""
        kept = self._awaited(lane.pending, topic)
        self._release(lane, [emit for emit in lane.pending if not _is_awaited(emit)])
        lane.pending = deque(kept)
        lane.alone = min(lane.alone, len(kept))

    def _awaited(self, emits: Collection[Emit | EmitBatch], topic: str) -> list[Emit | EmitBatch]:
        """Return those that complete something, or are a part of what does, and count the others as dropped."""
        kept = [emit for emit in emits if _is_awaited(emit)]
        self.counters[f"lane_shed_total{{topic={topic}}}"] += len(emits) - len(kept)
        return kept

    async def _back_off(self, topic: str, partition: int, lane: _SendLane, fault: BrokerUnavailableError) -> None:
        lane.failures += 1
        self.counters["lane_retries_total"] += 1
        wait_s = min(BACKOFF_S * 2.0 ** min(lane.failures - 1, _DOUBLINGS), BACKOFF_MAX_S)
        if lane.failures.bit_count() == 1:  # 1, 2, 4, ...: a broker that is away for an hour fills no log
            _log.warning("%s-%s: %s; attempt %d, next in %.2f s", topic, partition, fault, lane.failures, wait_s)
        await asyncio.sleep(wait_s)


async def _raised(fault: Exception) -> None:
    raise fault


def _offered(lane: _SendLane) -> _Offer:
    """Return the first records; if a finished batch is among what has gathered, that as one batch."""
    offered = [*islice(lane.pending, _OFFERED)]
    kinds = [*map(type, offered)]
    if EmitBatch not in kinds:
        return _Offer(cast("list[Emit]", offered))
    count = 1 if lane.alone else _fitting(offered)
    if count > 1 and EmitBatch in kinds[:count]:
        return _Offer(gathered(offered[:count]), count)
    first = offered[0]
    if isinstance(first, EmitBatch):
        return _Offer(first, 1)
    return _Offer(cast("list[Emit]", offered[: kinds.index(EmitBatch)]))


def _fitting(offered: list[Emit | EmitBatch]) -> int:
    """Return how many of the first ones may be put together."""
    room = GATHERED_BYTES
    for count, one in enumerate(offered):
        room -= _size((one,))
        if room < 0:
            return count
    return len(offered)


def _is_awaited(emit: Emit | EmitBatch) -> bool:
    return bool(emit.completes) or (not isinstance(emit, EmitBatch) and emit.is_part)


def _size(emits: Collection[Emit | EmitBatch]) -> int:
    sizes = [
        len(one.data) if isinstance(one, EmitBatch) else size_of(one) if one.headers else len(one.value)
        for one in emits
    ]
    return sum(sizes) + _OVERHEAD_BYTES * len(emits)
