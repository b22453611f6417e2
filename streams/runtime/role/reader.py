"""Polls records within the role's bounds and gives them to the kernel.

consumer ─▶ PollBuffer ─▶ KernelCaller ─▶ guard ─▶ kernel.on_records
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from itertools import groupby
from typing import TYPE_CHECKING

from streams.operators.contract import Batch, DeadLetter, count_of, end_of
from streams.runtime.errors import LogSetBackError
from streams.runtime.role.poll_buffer import partition_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from streams.operators.contract import Effects, Record
    from streams.runtime.offsets import OffsetTracker
    from streams.runtime.ports import TopicPartition
    from streams.runtime.role.accumulator import Accumulator
    from streams.runtime.role.definition import Ports, Role
    from streams.runtime.role.kernel_calls import Guard, KernelCaller
    from streams.runtime.role.poll_buffer import PollBuffer
    from streams.runtime.role.state_queue import StateQueue

_log = logging.getLogger(__name__)
# How long a poll waits where there is nothing; and while only replies are wanted: then it must notice that the pressure
# is gone, at the price of 20 wake-ups a second.
POLL_MS = 500
THROTTLED_POLL_MS = 50
# Of what a record has cost, the part that the last call says: one that was interrupted is no reason for ten small ones.
_SMOOTHING = 0.3


class _Slices:
    """How many records the kernel gets in one call, so that it takes no longer than others may wait for it.

    Args:
        most: records.
        slice_us: how long a call may take; 0 = any time.
    """

    def __init__(self, most: int, slice_us: int) -> None:
        self._most = most
        self._slice_us = slice_us
        self._record_us = 0.0  # what a record has cost lately; 0 = not known
        self._records = 1 if slice_us else most

    @property
    def records(self) -> int:
        """How many the next call gets. It is at most twice as many as the last one got: a cheap one may have lied."""
        return self._records

    def took(self, records: int, took_us: int) -> None:
        """Learn from a call."""
        if not self._slice_us:
            return
        cost_us = max(took_us / records, 0.01)
        self._record_us += (cost_us - self._record_us) * (_SMOOTHING if self._record_us else 1.0)
        self._records = max(1, min(self._most, 2 * records, int(self._slice_us / self._record_us)))


class Reader:
    """Polls until told to stop.

    Args:
        role: what is read, and how much may be in hand.
        ports: consumer and clock are used.
        buffer: where a poll's records are kept while slices of them are given to the kernel.
        kernel_caller: gives them.
        perform: takes dead letters.
        guard: tells when the kernel has to start over.
        tracker: gets the delivered positions.
        accumulator: their pressure counts as being full.
        start_over: reads again what is not complete, after a kernel failed; some partitions from where it is told.
        state_queue: of states; its pressure counts, too.

    Attributes:
        set_back_total: how often a partition's log went on below what was read of it.
    """

    def __init__(
        self,
        role: Role,
        ports: Ports,
        buffer: PollBuffer,
        kernel_caller: KernelCaller,
        perform: Callable[[Effects], None],
        guard: Guard,
        tracker: OffsetTracker,
        accumulator: Accumulator,
        start_over: Callable[[Mapping[TopicPartition, int]], Awaitable[None]],
        state_queue: StateQueue | None = None,
    ) -> None:
        self._role = role
        self._ports = ports
        self._state_queue = state_queue
        self._buffer = buffer
        self._kernel_caller = kernel_caller
        self._perform = perform
        self._guard = guard
        self._tracker = tracker
        self._accumulator = accumulator
        self._start_over = start_over
        self._slices = _Slices(role.at_once, role.slice_us)
        self._suspects: dict[TopicPartition, int] = {}  # below these offsets, one record at a time
        self._drain_until_us: int | None = None
        self._relief = asyncio.Event()
        self._held = 0
        self.set_back_total = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Read until `stop` is set and what is in hand has got its outcome, or `drain_s` is over."""
        while not self._drained(stop):
            await self._start_over_if_failed()
            only = self._only()
            if only is not None and not only:
                await self._wait_relief()
                continue
            records = await self._polled(only)
            if records and not self._guard.failed:  # what was polled is read again when the kernel has started over
                pause_s = 0.0 if self._is_behind(count_of(records)) else self._pause_s()
                await self._take(records)
                await asyncio.sleep(pause_s)

    async def _polled(self, only: frozenset[str] | None) -> list[Record | Batch]:
        """Poll; a partition whose log was set back starts over from what is there, and the others go on."""
        try:
            return await self._ports.consumer.poll(POLL_MS if only is None else THROTTLED_POLL_MS, only)
        except LogSetBackError as fault:
            _log.warning("%s: %s", self._role.name, fault)
            self.set_back_total += len(fault.starts)
            await self._start_over(fault.starts)
            return []

    @property
    def throttled(self) -> bool:
        """Whether less than everything is read, on purpose."""
        needs = self._kernel_caller.needs
        return self._is_pressed(needs.held) or bool(needs.paused)

    def relieve(self, held: int | None = None) -> None:
        """Look at the bounds again: something was completed, or the kernel has so much in hand now."""
        if held is not None:
            self._held = held
        if not self._full(self._held):
            self._relief.set()

    def _pause_s(self) -> float:
        strain = self._ports.strain
        return self._role.linger_s * (1.0 if strain is None else max(self._role.idle_share, strain().need))

    def _is_behind(self, polled: int) -> bool:
        """Tell whether a poll that has just returned brought much and left something: the next is full without a pause.

        A partition that cannot be read is behind, too, and its neighbours bring little.
        """
        return polled > self._role.at_once and self._ports.consumer.vitals().lag > 0

    def _full(self, held: int) -> bool:
        return max(self._tracker.outstanding(), held) >= self._role.outstanding

    def _is_pressed(self, held: int) -> bool:
        pressure = max(self._accumulator.pressure(), self._state_queue.pressure() if self._state_queue else 0.0)
        return self._drain_until_us is not None or self._full(held) or pressure >= 1

    def _only(self) -> frozenset[str] | None:
        """Return the topics to read from; None = from all."""
        needs = self._kernel_caller.needs
        paused = needs.paused
        if self._is_pressed(needs.held):
            return self._role.replies - paused
        return (needs.group.topics or frozenset(self._role.topics)) - paused if paused else None

    def _drained(self, stop: asyncio.Event) -> bool:
        if not stop.is_set():
            return False
        now_us = self._ports.clock.now_us()
        if self._drain_until_us is None:
            self._drain_until_us = now_us + int(self._role.drain_s * 1_000_000)
        return self._tracker.outstanding() == 0 or now_us >= self._drain_until_us

    async def _wait_relief(self) -> None:
        """Wait until there is less in hand. It looks again soon, as neither pressure nor a stop wakes it."""
        self._relief.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(THROTTLED_POLL_MS / 1000):
                await self._relief.wait()

    async def _take(self, records: list[Record | Batch]) -> None:
        """Give records to the kernel in slices, so that timers and acknowledgements get their turn in between."""
        buffer = self._buffer
        buffer.fill(records)
        now_us = self._ports.clock.now_us
        while len(buffer) and not self._guard.failed:
            left = len(buffer)
            part = buffer.take(1 if self._suspects and self._is_suspect(buffer.first) else self._slices.records)
            taken = left - len(buffer)
            for partition, run in groupby(part, key=partition_of):
                self._deliver(partition, [*run])
            began_us = now_us()
            fault = self._kernel_caller(part)
            self._slices.took(taken, now_us() - began_us)
            if fault is not None:
                await self._blame(part, fault)
            if len(buffer):
                await asyncio.sleep(0)  # after the last slice comes the pause

    def _deliver(self, partition: TopicPartition, run: list[Record | Batch]) -> None:
        if Batch not in map(type, run):
            self._tracker.delivered(partition, [record.offset for record in run])
            return
        for one in run:
            self._tracker.delivered(partition, range(one.offset, end_of(one)))

    async def _start_over_if_failed(self) -> None:
        """Read again what is not complete, after a failure that no record can be blamed for."""
        if self._guard.failed:
            await self._start_over({})
            self._guard.failed = False
            self._perform([])  # sets the alarm

    async def _blame(self, records: list[Record | Batch], fault: Exception) -> None:
        """Find the record a kernel fails on: read again what is not complete, one by one; the culprit is a dead letter.

        The records are not simply offered again: the kernel may have taken some of them before it failed, and what it
        wanted done for those is lost. Those of a batch come as records then.
        """
        record = records[0]
        if len(records) == 1 and not isinstance(record, Batch):
            _log.error("kernel failed on %s-%d@%d", record.topic, record.partition, record.offset, exc_info=fault)
            self._perform([DeadLetter(record, "bug", repr(fault))])
            return
        _log.error("kernel failed on %d records, reading them again one by one: %r", count_of(records), fault)
        for one in records:
            self._suspects[partition_of(one)] = end_of(one)
        await self._start_over({})

    def _is_suspect(self, record: Record | Batch) -> bool:
        """Tell whether a record was in a slice that failed; forget slices that were passed."""
        partition = partition_of(record)
        if record.offset < self._suspects.get(partition, 0):
            return True
        self._suspects.pop(partition, None)
        return False
