"""The loop of one role: reads records, calls the kernel, performs its effects, commits complete offsets.

    consumer ──▶ reader ───▶ kernel.on_records ─┐           ┌─▶ accumulator ─▶ acknowledged ─▶ tracker ─▶ commit
    broadcast ─▶ follower ─▶ kernel.on_records ─┼▶ perform ─┼─▶ state queue ─▶ store ────────▶ tracker
                 timer ────▶ kernel.on_timer ───┤           ├─▶ skipped ─────────────────────▶ tracker
    executors ──▶ on_predicted, on_loaded ──────┘           └─▶ executors

Everything runs on one event loop. Kernel calls and `perform()` never wait, so nothing changes in the middle of them.
What models answer in the same turn is performed when all that was decided before has been.
The timer does not depend on the reader: a poll may hang for seconds in a rebalance (5 s measured), deadlines may not.
"""

from __future__ import annotations

import asyncio
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.errors import SchemaError
from schemas.records import STOPPED
from streams.operators.contract import NO_GROUP_NEEDS, NONE_UNREAD, Emit, Phase
from streams.operators.statistics import UNSERVED, render
from streams.runtime.clock import off_ms
from streams.runtime.errors import BrokerUnavailableError
from streams.runtime.metrics import Composer
from streams.runtime.offsets import OffsetTracker
from streams.runtime.ports import ExecutorEvents
from streams.runtime.role.accumulator import Accumulator, AccumulatorEvents
from streams.runtime.role.batch_watch import BatchWatch
from streams.runtime.role.dead_letters import DeadLetters
from streams.runtime.role.effects import Performer
from streams.runtime.role.feature_reader import FeatureReader
from streams.runtime.role.follower import Follower
from streams.runtime.role.kernel_calls import Guard, KernelCaller, Timer
from streams.runtime.role.poll_buffer import PollBuffer
from streams.runtime.role.reader import Reader
from streams.runtime.role.rebalance import RebalanceHandler
from streams.runtime.role.state_queue import StateQueue, StateQueueEvents
from streams.runtime.role.watchdog import Watchdog
from streams.runtime.stopping import AFTER_COMMIT_S, AFTER_LEAVING_S, AFTER_WORK_S, Stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from schemas.records import PolicyState
    from streams.operators.contract import (
        Effects,
        GroupNeeds,
        Loaded,
        Operator,
        Position,
        Predict,
        Ran,
        Record,
        Span,
        StateKey,
        Unread,
    )
    from streams.runtime.errors import RecordRefusedError
    from streams.runtime.role.definition import Ports, Role

_log = logging.getLogger(__name__)

NOTHING_MORE: Final[Mapping[str, float]] = MappingProxyType({})
BACKOFF_S = 0.5
# How long a role waits for the policy states that its configuration names before it takes queries. A store that is slow
# or being connected to has answered by then; without one that is down the role goes on.
STATES_S = 5.0
# How long a role may get ready before it takes queries all the same: a model whose loading hangs, or takes minutes,
# keeps no other one out for longer.
READY_S = 90.0


class RoleLoop:
    """Runs one kernel; see the module's picture. One object, one run.

    Args:
        role: what is read, and within which bounds.
        kernel: decides.
        ports: the outside.
        watchdog: ends the process when the consumer is stuck, or the clock.

    Attributes:
        ready: set when partitions have been assigned for the first time.
    """

    def __init__(
        self,
        role: Role,
        kernel: Operator,
        ports: Ports,
        watchdog: Watchdog | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self._role = role
        self._kernel = kernel
        self._ports = ports
        self._watchdog = watchdog or Watchdog()
        self._executors = None if ports.executors is None else BatchWatch(ports.executors)
        self._postponed: list[tuple[str, Callable[[], Effects]]] = []  # until the kernel has started over
        self._composer = Composer(role.instance, role.name, tells_process=role.tells_process)
        self._tracker = OffsetTracker()
        self._buffer = PollBuffer()
        self._guard = Guard(role.name, ports.clock, self.perform)
        self._timer = Timer(kernel, ports.clock, self._guard, self._unread)
        self._kernel_caller = KernelCaller(kernel, ports, self._guard)
        self._follower = Follower(ports.broadcast, self._kernel_caller, ports.prepare)
        self._joined = False
        self._group = NO_GROUP_NEEDS
        self._has_topics = asyncio.Event()  # set where the role says which they are
        self._is_ready = asyncio.Event()  # the kernel has prepared for queries
        self._waits_for = "models"  # until it has joined
        self._ends: Mapping[str, float] = NOTHING_MORE

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then finish what is in hand, commit and leave, each by its deadline.

        Raises:
            ExceptionGroup: of the one cause that ended the role.
        """
        stopping = Stopping(stop)
        async with asyncio.TaskGroup() as tasks:
            self._connect(tasks)
            helpers = [tasks.create_task(job) for job in self._jobs()]
            try:
                async with stopping.limit(AFTER_WORK_S):
                    await self._join(stop)
                    await self._reader.run(stop)
                await self._finish(stopping)
            finally:
                self._accumulator.abandon()
                for helper in helpers:
                    helper.cancel()
                await self._leave(stopping)

    @property
    def pressure(self) -> float:
        """How full the buffers to Kafka are, 1 = full."""
        return self._accumulator.pressure()

    def perform(self, effects: Effects) -> None:
        """Perform effects; then quick batches run, whose outcomes are performed in the same way before this returns."""
        self._performer.perform(effects)
        needs = self._kernel.needs()
        self._timer.set(needs.deadline_us)
        if needs.group is not self._group:
            self._regroup(needs.group)
        self._reader.relieve(needs.held)
        if self._postponed and not self._guard.failed:
            postponed, self._postponed = self._postponed, []
            for what, decide in postponed:
                self._call(what, decide)
        if self._executors is not None:
            self._executors.go_on()

    def _regroup(self, group: GroupNeeds) -> None:
        """Read the topics that the kernel wants now, spread as it wants; without any it goes on with those it had."""
        before, self._group = self._group, group
        if group.topics is not before.topics and group.topics:
            self._ports.consumer.subscribe(group.topics)
            self._has_topics.set()
        if group.spread is not before.spread and self._joined:
            self._ports.consumer.rejoin()
        if not group.is_getting_ready:
            self._is_ready.set()

    def _call(self, what: str, decide: Callable[[], Effects]) -> None:
        """Perform what the kernel decides about an outcome; one that fails meanwhile is told when it has started over.

        Raises:
            KernelError: it fails again and again.
        """
        if self._guard.failed:
            self._postponed.append((what, decide))
        else:
            self._guard.call(what, decide)

    def _connect(self, tasks: asyncio.TaskGroup) -> None:
        """Put the parts together; those with tasks of their own need the group."""
        role, kernel, ports, tracker = self._role, self._kernel, self._ports, self._tracker
        buffer = self._buffer
        accumulator = self._accumulator = Accumulator(
            ports.transport, AccumulatorEvents(self._complete, self._refuse), tasks, patient=role.patient
        )
        events = StateQueueEvents(self._on_states, self._complete, self._on_refused, self._on_blocked)
        state_queue = self._state_queue = StateQueue(ports.store, events, role.outstanding) if ports.store else None
        features = self._features = FeatureReader(ports.features, self._on_features) if ports.features else None
        if self._executors is not None:
            self._executors.connect(ExecutorEvents(self._on_predicted, self._on_loaded), tasks)
        self._performer = Performer(
            accumulator, tracker, DeadLetters(role.name, ports.version), state_queue, self._executors, features
        )
        self._rebalance = RebalanceHandler(role, kernel, ports, tracker, accumulator, state_queue, buffer, self.ready)
        self._reader = Reader(
            role,
            ports,
            buffer,
            self._kernel_caller,
            self.perform,
            self._guard,
            tracker,
            accumulator,
            self._rebalance.start_over,
            state_queue,
        )

    def _jobs(self) -> list[Coroutine[object, object, None]]:
        jobs = [self._timer.run(), self._follower.run(), self._commit_regularly(), self._report_regularly()]
        jobs += [part.run() for part in (self._state_queue, self._features, self._executors) if part is not None]
        return jobs

    async def _join(self, stop: asyncio.Event) -> None:
        """Join the group once models, what is followed, the states it asks for, and what it prepares are there.

        No query waits for a model that is not loaded. Who is not up is waited for.
        """
        if self._executors is not None:
            self._call("its start", lambda: self._kernel.on_timer(self._ports.clock.now_us()))
            await _first(stop.wait(), self._executors.loaded())
        self._waits_for = "configuration"
        await _first(stop.wait(), self._follower.caught_up.wait())
        if self._ports.broadcast is not None:
            self._call("what it follows", lambda: self._kernel.on_phase(Phase.CAUGHT_UP, self._ports.clock.now_us()))
        self._waits_for = "states"
        if self._state_queue is not None and not stop.is_set():
            await self._read_states(self._state_queue, stop)
        self._waits_for = "topics"
        self._regroup(self._kernel.needs().group)
        if self._group.topics is not None:
            await _first(stop.wait(), self._has_topics.wait())
        if self._group.is_getting_ready:
            await self._get_ready(stop)
        self._waits_for = "kafka"
        while not stop.is_set() and not self._joined:
            try:
                await self._ports.consumer.start(self._rebalance)
            except BrokerUnavailableError as fault:
                _log.warning("%s: Kafka is not there yet: %s", self._role.name, fault)
                await asyncio.sleep(BACKOFF_S)
            else:
                self._joined = True
        self._waits_for = "partitions"

    async def _get_ready(self, stop: asyncio.Event) -> None:
        """Wait until the kernel has prepared for queries, but not for ever."""
        self._is_ready.clear()
        _log.info("%s gets ready; it takes queries in %g s at the latest", self._role.name, READY_S)
        try:
            async with asyncio.timeout(READY_S):
                await _first(stop.wait(), self._is_ready.wait())
        except TimeoutError:
            _log.warning("%s is not ready after %g s: takes queries all the same", self._role.name, READY_S)

    async def _read_states(self, state_queue: StateQueue, stop: asyncio.Event) -> None:
        """Wait for what has been asked of the store."""
        reading, stopping = asyncio.create_task(state_queue.flush(STATES_S)), asyncio.create_task(stop.wait())
        await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
        if reading.done() and not reading.result():
            _log.warning("%s: no answer from the store in %g s; begins without its states", self._role.name, STATES_S)
        for task in (reading, stopping):
            task.cancel()

    async def _finish(self, stopping: Stopping) -> None:
        """Wait for what is on its way, then commit; each report from now on says that this ends."""
        self._ends = {STOPPED: 1.0}
        if not self._joined:
            self._report()
            return
        self._guard.call("its stop", lambda: self._kernel.on_phase(Phase.STOPPING, self._ports.clock.now_us()))
        self._report()
        if self._state_queue is not None:
            await self._state_queue.flush(stopping.left_s(AFTER_WORK_S))
        if not await self._accumulator.flush(stopping.left_s(AFTER_WORK_S)):
            _log.warning("%s: stops with unacknowledged records; their sources will be read again", self._role.name)
        if not await stopping.within(self._rebalance.commit(), AFTER_COMMIT_S):
            _log.warning("%s: stops without a last commit; what it has done since is read again", self._role.name)

    async def _leave(self, stopping: Stopping) -> None:
        """Leave the group, and disconnect from whatever is read beside it; models end first."""
        if self._executors is not None:
            await stopping.within(self._executors.stop(), AFTER_LEAVING_S)
        await self._ports.consumer.stop(stopping.left_s(AFTER_LEAVING_S))
        await self._follower.stop(stopping.left_s(AFTER_LEAVING_S))
        if self._ports.store is not None:
            await stopping.within(self._ports.store.close(), AFTER_LEAVING_S)
        if self._ports.features is not None:
            await stopping.within(self._ports.features.close(), AFTER_LEAVING_S)

    async def _commit_regularly(self) -> None:
        """Commit twice a second, and look whether the consumer lives."""
        while True:
            await asyncio.sleep(self._ports.rhythm.commit_s)
            if self._joined:
                await self._rebalance.commit()
                if self._kernel.needs().is_told_unread:
                    self._timer.fire()
                self._check_life()

    def _check_life(self) -> None:
        ports, throttled = self._ports, self._reader.throttled
        now_us = ports.clock.now_us()
        self._watchdog.check(ports.consumer.vitals(), now_us, throttled=throttled, ahead_ms=off_ms(ports.clock))

    def _unread(self) -> Unread:
        """Return how many records the kernel has not been given, by partition, if it wants to know."""
        if not self._joined or not self._kernel.needs().is_told_unread:
            return NONE_UNREAD
        unread = self._ports.consumer.unread()
        for partition, count in self._buffer.counts().items():
            unread[partition] = unread.get(partition, 0) + count
        return unread

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._ports.rhythm.report_s)
            self._report()

    def _report(self) -> None:
        """Give a report to the hooks and to the reports topic."""
        now_us = self._ports.clock.now_us()
        report = self._composer.compose(now_us, self._kernel.statistics(), *self._statistics(), self._ends)
        for hook in self._ports.hooks:
            hook(report)
        try:
            value = self._ports.encode(report)
        except SchemaError as fault:
            _log.error("a report cannot be written: %s", fault)  # the fault says all there is
            return
        self._accumulator.send([Emit(topics.REPORTS, 0, self._role.instance.encode(), value)])

    def _statistics(self) -> list[Mapping[str, float]]:
        own = {
            "outstanding": float(self._tracker.outstanding()),
            "pressure": self.pressure,
            "completions_ignored_total": float(self._tracker.ignored_total),
            "clock_off_ms": off_ms(self._ports.clock),
        }
        if self._reader.set_back_total:
            own["logs_set_back_total"] = float(self._reader.set_back_total)
        if self._role.owns_states:
            own["states_set_aside_total"] = float(self._rebalance.anew_total)
        if waits_for := self._awaited():
            own[render(("waits_for", "what", waits_for))] = 1.0
        if self._joined:
            vitals = self._ports.consumer.vitals()
            own |= {"lag": float(vitals.lag), "partitions": float(vitals.assigned)}
            own |= {render((UNSERVED, "topic", topic)): float(count) for topic, count in vitals.unserved.items()}
        state_queue = self._state_queue.statistics() if self._state_queue else {}
        models = self._executors.statistics() if self._executors else {}
        features = self._features.statistics() if self._features else {}
        counters = [self._guard.counters, self._accumulator.counters, self._performer.counters]
        return [own, *counters, state_queue, features, models]

    def _awaited(self) -> str:
        """Return in a word what the role waits for before it can work; "" = nothing."""
        if self._rebalance.asks_store:
            return "store"
        if not self.ready.is_set():
            return self._waits_for
        return "kafka" if self._accumulator.stands_still(topics.REPORTS) else ""

    def _complete(self, positions: Collection[Position], spans: Collection[Span] = ()) -> None:
        self._tracker.complete(positions)
        self._tracker.complete_spans(spans)
        if self._state_queue is not None:
            self._state_queue.release(positions)
        self._reader.relieve()

    def _refuse(self, emit: Emit, fault: RecordRefusedError) -> None:
        self._performer.refuse(emit, fault)

    def _on_states(self, states: Mapping[StateKey, PolicyState | None]) -> None:
        self._guard.call("policy states", lambda: self._kernel.on_states(states, self._ports.clock.now_us()))

    def _on_features(self, records: list[Record]) -> None:
        self._guard.call("features", lambda: self._kernel.on_records(records, self._ports.clock.now_us()))

    def _on_predicted(self, predict: Predict, ran: Ran) -> None:
        number, clock = predict.batch_id, self._ports.clock
        self._call("what a model answered", lambda: self._kernel.on_predicted(number, ran, clock.now_us()))

    def _on_loaded(self, loaded: Loaded) -> None:
        clock = self._ports.clock
        self._call("a model that was loaded", lambda: self._kernel.on_loaded(loaded, clock.now_us()))

    async def _on_refused(self, partition: int, stored: int | None) -> None:
        self._performer.counters["refused_writes_total"] += 1
        await self._rebalance.on_refused(partition, stored)

    def _on_blocked(self, partition: int) -> None:
        self._rebalance.on_blocked(partition)


async def _first(*waits: Coroutine[object, object, object]) -> None:
    """Return when one of them has ended; the others are cancelled."""
    waiting = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
