"""Performs `FetchStates` and `WriteStates`, in the order asked for, without holding up anything else.

While the store is busy or down, requests are merged: reads into one round trip, a partition's writes into one
compare-and-set. No write is dropped, and no read of an owned partition: its kernel gets the answer when the store is
back. Other reads may be dropped while the store is away; the kernel asks for them again.

The queue knows which offset an owned partition's states must stand for. States of another offset count as a refused
write, and the partition starts over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from streams.operators.contract import FetchStates, WriteStates
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.role.state_batches import WAITING_BYTES, WAITING_KEYS, ReadQueue, WriteQueues
from streams.topology import application_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from schemas.records import PolicyState
    from streams.operators.contract import Position, Span, StateKey
    from streams.runtime.role.state_batches import WriteQueue
    from streams.runtime.stores.base import StatesRead, StateStore

_log = logging.getLogger(__name__)

BACKOFF_S = 0.05
BACKOFF_MAX_S = 1.0
# How often a state that cannot be read is tried again: a person has to act, who should not have to restart the role.
UNREADABLE_S = 5.0
REMIND_S = 60.0


class StateQueueEvents(NamedTuple):
    """What the keeper tells.

    Attributes:
        states: the answer to reads.
        stored: a write is done; these positions and spans are complete.
        refused: a write was refused, or states stand for another offset; what the store has instead.
        blocked: a state of an owned partition cannot be read; the partition waits until `refused` starts it over.
    """

    states: Callable[[Mapping[StateKey, PolicyState | None]], None]
    stored: Callable[[tuple[Position, ...], tuple[Span, ...]], None]
    refused: Callable[[int, int | None], Awaitable[None]]
    blocked: Callable[[int], None]


class StateQueue:
    """One queue in front of one store; `run()` works it off.

    Args:
        store: that it asks.
        events: what it tells.
        records: that the role may have in hand. Each may wait for a state of its own, whose key is never forgotten.
    """

    def __init__(self, store: StateStore, events: StateQueueEvents, records: int = 0) -> None:
        self._store = store
        self._events = events
        self._owned: dict[int, int | None] = {}  # the offset that a partition's states must stand for
        self._writes = WriteQueues()
        self._reads = ReadQueue(self._owned.__contains__, records + WAITING_KEYS)
        self._letters: dict[int, set[Position]] = {}
        self._blocked: dict[int, StateKey] = {}
        self._retry_s = self._reminded_s = float("-inf")
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._quiet = asyncio.Event()  # no write is under way
        self._quiet.set()
        self._counters: Counter[str] = Counter()
        self._failures = 0  # in a row

    def own(self, starts: Mapping[int, int | None]) -> None:
        """Take partitions whose states stand for these offsets; None = nothing is stored."""
        for partition, start in starts.items():
            self._owned[partition] = start or None
            self._blocked.pop(partition, None)

    def ask(self, effect: FetchStates | WriteStates) -> None:
        """Queue a read or a write; a read sees every write asked for before it."""
        if type(effect) is WriteStates:
            self._writes.ask(effect)
        elif type(effect) is FetchStates and (forgotten := self._reads.ask(effect.keys)):
            self._counters["store_reads_forgotten_total"] += forgotten
        self._idle.clear()
        self._wake.set()

    def hold(self, position: Position) -> None:
        """Write nothing of a partition until the dead letter of this record is there.

        The offset of a write says that everything before it has its outcome: nobody would read the record again.
        """
        self._letters.setdefault(position.partition, set()).add(position)

    def release(self, positions: Iterable[Position]) -> None:
        """Take back what was said by `hold`; other positions change nothing."""
        if not self._letters:
            return
        for position in positions:
            held = self._letters.get(position[1])
            if held is not None:
                held.discard(position)
                if not held:
                    del self._letters[position[1]]
                    self._wake.set()

    def forget(self, partitions: Collection[int]) -> None:
        """Drop what is queued for partitions that are no longer ours, or start over."""
        self._writes.forget(partitions)
        self._reads.forget(partitions)
        for partition in partitions:
            self._owned.pop(partition, None)
            self._letters.pop(partition, None)
            self._blocked.pop(partition, None)
        self._wake.set()  # there may be nothing left to do, for which somebody waits

    async def settle(self, timeout_s: float) -> None:
        """Wait for the write under way, if there is one, for a bounded time.

        Until it has arrived, who takes a partition over finds the offset from before it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()

    async def flush(self, timeout_s: float) -> bool:
        """Wait until nothing is queued; False if that took longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def pressure(self) -> float:
        """Return how full it is: from 1 on, nothing more should be asked for."""
        return self._writes.waiting_bytes / WAITING_BYTES

    def statistics(self) -> Mapping[str, float]:
        """Return counters, and what waits for the store."""
        return {
            **self._counters,
            "store_waiting_bytes": float(self._writes.waiting_bytes),
            "store_waiting_reads": float(len(self._reads)),
            "store_blocked_partitions": float(len(self._blocked)),
            **({"store_away": 1.0} if self._failures else {}),
        }

    async def run(self) -> None:
        """Work off the queue until cancelled."""
        while True:
            await self._wait_for_work()
            try:
                await self._write_all()
                await self._read_some()
                self._failures = 0
            except StoreUnavailableError as fault:
                self._failures = failures = self._failures + 1
                self._counters["store_failures_total"] += 1
                if failures % 60 == 1:  # once a minute: it may also be a refused password
                    _log.warning("%s; trying again until it does", fault)
                await asyncio.sleep(min(BACKOFF_S * 2.0 ** min(failures - 1, 10), BACKOFF_MAX_S))

    async def _wait_for_work(self) -> None:
        """Wait until something can be written or read; what cannot be read is asked for again now and then."""
        now_s = asyncio.get_running_loop().time()
        if self._blocked and now_s >= self._retry_s:
            self._retry_s = now_s + UNREADABLE_S
            self._reads.ask(self._blocked.values())
        if self._is_workable():
            return
        if not self._writes and not self._reads:
            self._idle.set()
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UNREADABLE_S if self._blocked else None):
                await self._wake.wait()

    def _is_workable(self) -> bool:
        """Tell whether something can be written or read now."""
        return not self._writes.partitions <= self._letters.keys() or any(
            key.partition not in self._writes for key in self._reads
        )

    async def _write_all(self) -> None:
        """Write what is queued now; what is asked for meanwhile waits for the next round, after the reads."""
        for partition in list(self._writes.partitions):
            queue = self._writes.queue(partition)
            asked = len(queue.waiting) if queue is not None else 0
            while asked > 0 and self._is_current(partition, queue) and partition not in self._letters:
                assert queue is not None
                asked -= await self._write(partition, queue, asked)

    def _is_current(self, partition: int, queue: WriteQueue | None) -> bool:
        return queue is not None and self._writes.queue(partition) is queue

    async def _write(self, partition: int, queue: WriteQueue, asked: int) -> int:
        """Write the first of the queue, merged with those that follow; return how many that were."""
        attempt = self._writes.attempt(queue, asked)
        self._quiet.clear()
        try:
            verdict = await self._store.write(attempt.write, attempt.token)
        except StoreUnavailableError:
            self._writes.failed()
            raise
        finally:
            self._quiet.set()
        self._counters["store_writes_total"] += 1
        current = self._is_current(partition, queue)
        done = queue.succeeded(verdict)
        self._writes.answered(partition, queue)
        if done is not None:
            if current and partition in self._owned:
                self._owned[partition] = verdict.stored
            self._events.stored(done.write.completes, done.write.spans)
            return done.replaces
        if current:
            await self._refuse(partition, attempt.write.expected, verdict.stored)
        return attempt.replaces

    async def _refuse(self, partition: int, expected: int | None, stored: int | None) -> None:
        self._writes.forget([partition])
        self._reads.forget([partition])
        self._owned.pop(partition, None)
        self._blocked.pop(partition, None)
        self._counters["store_refusals_total"] += 1
        _log.warning("partition %d: expected offset %s, the store has %s", partition, expected, stored)
        await self._events.refused(partition, stored)

    async def _read_some(self) -> None:
        keys = self._reads.batch(lambda key: key.partition in self._writes)
        if not keys:
            return
        owned = {key.partition: self._owned[key.partition] for key in keys if key.partition in self._owned}
        try:
            found = await self._store.read(keys)
        except StoreUnavailableError:
            self._reads.failed(keys)
            raise
        self._counters["store_reads_total"] += 1
        # A partition that was begun anew meanwhile, from elsewhere, asks again if it wants these.
        changed = {number for number, start in owned.items() if self._owned.get(number, start) != start}
        wanted = [key for key in keys if key in self._reads and key.partition not in changed]
        self._reads.done(wanted, found.size_bytes)
        await self._deliver(wanted, found)

    async def _deliver(self, keys: list[StateKey], found: StatesRead) -> None:
        """Hand out what was read; of owned partitions only what stands for the offset that it is to be folded on."""
        refused = {}
        states: dict[StateKey, PolicyState | None] = {}
        for key in keys:
            number = key.partition
            if number in self._owned and (self._owned[number] != found.offsets[number] or self._is_mended(key, found)):
                refused[number] = self._owned[number], found.offsets[number]
            elif key in found.unreadable:
                self._note(key, found.unreadable[key])
                if number in self._owned:
                    self._block(key)
                else:
                    states[key] = None
            else:
                states[key] = found.states[key]
        if states:
            self._events.states({key: state for key, state in states.items() if key.partition not in self._blocked})
        for number, (expected, stored) in refused.items():
            await self._refuse(number, expected, stored)

    def _is_mended(self, key: StateKey, found: StatesRead) -> bool:
        """Tell whether a partition that waited for a readable state can start over."""
        return self._blocked.get(key.partition) == key and key not in found.unreadable

    def _block(self, key: StateKey) -> None:
        """Stop a partition until this state of it can be read; nothing else may be folded meanwhile."""
        if key.partition not in self._blocked:
            self._blocked[key.partition] = key
            self._retry_s = asyncio.get_running_loop().time() + UNREADABLE_S
            self._writes.forget([key.partition])
            self._reads.forget([key.partition])
            self._events.blocked(key.partition)

    def _note(self, key: StateKey, fault: str) -> None:
        """Count a state that cannot be read; name one a minute."""
        self._counters["store_unreadable_total"] += 1
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._reminded_s + REMIND_S:
            self._reminded_s = now_s
            waits = "its partition waits" if key.partition in self._owned else "queries are decided without it"
            application = application_of(key.name)  # behind it stands a context, which no log holds
            _log.error("partition %d: a policy state of %r %s; %s", key.partition, application, fault, waits)
