"""The loop of one role: reads, lets the kernel decide, performs what it asks for, commits what is done.

    consumer ─▶ reader ─▶ kernel.on_records ─▶ effects ─┬─▶ lanes ──▶ acknowledged ─▶ tracker ─▶ committer
    timer ────────────▶ kernel.on_timer ───────┤        ├─▶ keeper ─▶ store
    broadcast ────────▶ kernel.on_records ─────┘        └─▶ skipped ─────────────────▶ tracker

Everything runs on one event loop; kernel calls and `perform()` never wait, so nothing changes in the middle of them.
The timer does not depend on the reader: a poll may hang for seconds in a rebalance (5 s measured), deadlines may not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from schemas import topics
from streams.operators.contract import DeadLetter, Emit
from streams.runtime.dead_letters import DeadLetters
from streams.runtime.errors import BrokerUnavailableError
from streams.runtime.keeper import Keeper, KeeperEvents
from streams.runtime.lanes import LaneEvents, Lanes
from streams.runtime.metrics import Composer
from streams.runtime.offsets import OffsetTracker
from streams.runtime.ownership import Ownership
from streams.runtime.performer import Performer
from streams.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping

    from schemas.records import PolicyState
    from streams.operators.contract import Effects, Operator, Position, Record, StateKey
    from streams.runtime.ports import Broadcast, TopicPartition
    from streams.runtime.roles import Ports, Role

_log = logging.getLogger(__name__)

COMMIT_S = 0.5
REPORT_S = 1.0
# asyncio and uvloop round timers to a millisecond and may fire early; waiting at least half of one avoids spinning.
TIMER_MIN_S = 0.0005
STOP_S = 5.0
BACKOFF_S = 0.5


class RoleLoop:
    """Runs one kernel; see the module's picture. One object, one run.

    Args:
        role: what is read, and within which bounds.
        kernel: decides.
        ports: the outside.
        watchdog: ends the process when the consumer is stuck.
        companions: further tasks of the role (a worker's predictor), given the loop, ended with it.

    Attributes:
        ready: set when partitions have been assigned for the first time.
    """

    def __init__(
        self,
        role: Role,
        kernel: Operator,
        ports: Ports,
        watchdog: Watchdog | None = None,
        companions: tuple[Callable[[RoleLoop], Coroutine[Any, Any, None]], ...] = (),
    ) -> None:
        self._role = role
        self._kernel = kernel
        self._ports = ports
        self._watchdog = watchdog or Watchdog()
        self._companions = companions
        self._tracker = OffsetTracker()
        self._composer = Composer(role.instance, role.name)
        self._counters: Counter[str] = Counter()
        self._hand: list[Record] = []
        self._careful: dict[TopicPartition, int] = {}  # below these offsets, one record at a time
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us: int | None = None
        self._drain_until_us: int | None = None
        self._followed = asyncio.Event()
        self._joined = False
        self._relief = asyncio.Event()
        self.ready = asyncio.Event()

    @property
    def name(self) -> str:
        """The role's name."""
        return self._role.name

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then finish what is in hand, commit and leave.

        Raises:
            ExceptionGroup: of the one cause that ended the role.
        """
        async with asyncio.TaskGroup() as tasks:
            self._lanes = Lanes(self._ports.transport, LaneEvents(self._complete, self._refuse), tasks)
            self._keeper = self._make_keeper()
            dead_letters = DeadLetters(self._role.name, self._ports.version)
            self._performer = Performer(self._lanes, self._tracker, dead_letters, self._keeper)
            self._ownership = Ownership(
                self._role, self._kernel, self._ports, self._tracker, self._lanes, self._keeper, self._drop, self.ready
            )
            helpers = [tasks.create_task(job) for job in self._jobs()]
            try:
                await self._start(stop)
                await self._read(stop)
                await self._finish()
            finally:
                await self._leave()
            for helper in helpers:
                helper.cancel()
            self._lanes.abandon()

    def perform(self, effects: Effects) -> None:
        """Perform effects that a companion has found out."""
        self._performer.perform(effects)
        self._arm()

    async def _start(self, stop: asyncio.Event) -> None:
        """Read what is followed to its end, then join the group; a broker that is not up yet is waited for."""
        await _either(stop, self._followed)
        while not stop.is_set():
            try:
                await self._ports.consumer.start(self._ownership)
            except BrokerUnavailableError as fault:
                _log.warning("%s: Kafka is not there yet: %s", self._role.name, fault)
                await asyncio.sleep(BACKOFF_S)
            else:
                self._joined = True
                return

    async def _finish(self) -> None:
        """Wait for what is on its way, then commit."""
        self._report()
        if self._keeper is not None:
            await self._keeper.flush(STOP_S)
        await self._lanes.flush(STOP_S)
        if self._joined:
            await self._ownership.commit()

    async def _leave(self) -> None:
        await self._ports.consumer.stop(STOP_S)
        if self._ports.broadcast is not None:
            await self._ports.broadcast.stop(STOP_S)

    def _jobs(self) -> list[Coroutine[Any, Any, None]]:
        jobs = [self._fire(), self._commit(), self._report_regularly()]
        jobs += [companion(self) for companion in self._companions]
        if self._keeper is not None:
            jobs.append(self._keeper.run())
        if self._ports.broadcast is None:
            self._followed.set()
        else:
            jobs.append(self._follow(self._ports.broadcast))
        return jobs

    def _make_keeper(self) -> Keeper | None:
        if self._ports.store is None:
            return None
        return Keeper(self._ports.store, KeeperEvents(self._on_states, self._complete, self._on_refused))

    async def _follow(self, broadcast: Broadcast) -> None:
        """Keep the kernel's view of the followed topics up to date; their records are never completed."""
        started = False
        while not started:
            started = await self._started(broadcast)
        while True:
            records = await broadcast.poll(POLL_MS)
            if records and self._offer(records) is not None:
                for record in records:
                    fault = self._offer([record])
                    if fault is not None:
                        _log.error("kernel failed on %s@%d", record.topic, record.offset, exc_info=fault)
            if broadcast.caught_up:
                self._followed.set()

    async def _started(self, broadcast: Broadcast) -> bool:
        try:
            await broadcast.start()
        except BrokerUnavailableError as fault:
            _log.warning("%s: cannot follow %s yet: %s", self._role.name, ", ".join(self._role.follows), fault)
            await asyncio.sleep(BACKOFF_S)
            return False
        return True

    async def _fire(self) -> None:
        """Call the kernel when it is due."""
        while True:
            await self._due.wait()
            self._due.clear()
            self._timer_us = None
            self.perform(self._kernel.on_timer(self._ports.clock.now_us()))

    def _arm(self) -> None:
        """Set the timer to the kernel's next deadline."""
        deadline_us = self._kernel.next_deadline()
        if deadline_us == self._timer_us:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_us = deadline_us
        if deadline_us is not None:
            delay_s = max((deadline_us - self._ports.clock.now_us()) / 1_000_000, TIMER_MIN_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._due.set)

    async def _commit(self) -> None:
        """Commit twice a second, and look whether the consumer lives."""
        while True:
            await asyncio.sleep(COMMIT_S)
            if self._joined:
                await self._ownership.commit()
                throttled = self._only() is not None
                self._watchdog.check(self._ports.consumer.vitals(), self._ports.clock.now_us(), throttled=throttled)

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            self._report()

    def _report(self) -> None:
        report = self._composer.compose(
            self._ports.clock.now_us(), self._kernel.statistics(), *self._runtime_statistics()
        )
        for hook in self._ports.hooks:
            hook(report)
        value = self._ports.encode(report)
        self._lanes.send([Emit(topics.REPORTS, 0, self._role.instance.encode(), value)])

    def _runtime_statistics(self) -> list[Mapping[str, float]]:
        gauges = {
            "outstanding": float(self._tracker.outstanding()),
            "pressure": self._lanes.pressure(),
            "completions_ignored_total": float(self._tracker.ignored_total),
        }
        if self._joined:
            vitals = self._ports.consumer.vitals()
            gauges |= {"lag": float(vitals.lag), "partitions": float(vitals.assigned)}
        keeper = self._keeper.counters if self._keeper is not None else {}
        return [gauges, self._counters, self._lanes.counters, self._performer.counters, keeper]

    def _on_states(self, states: Mapping[StateKey, PolicyState | None]) -> None:
        self.perform(self._kernel.on_states(states, self._ports.clock.now_us()))

    async def _on_refused(self, partition: int, stored: int | None) -> None:
        await self._ownership.on_refused(partition, stored)

    def _refuse(self, emit: Emit) -> None:
        self._performer.refuse(emit)


async def _either(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
