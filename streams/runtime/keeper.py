"""Performs `FetchStates` and `WriteStates`, in the order asked for, without holding up anything else.

What piles up while the store is busy (or down) is merged: reads into one round trip, writes of a partition into one
compare-and-set. Nothing is given up: a kernel that asked gets its answer when the store is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from streams.operators.contract import FetchStates, WriteStates
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.store import merged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from schemas.records import PolicyState
    from streams.operators.contract import Position, StateKey
    from streams.runtime.store import StateStore

_log = logging.getLogger(__name__)

# States read in one round trip: 5.6 us of client time each (measured), so a full one holds the event loop for 3 ms.
READ_KEYS = 500
# States written in one script, which holds Redis itself for about 7 us a state.
WRITE_STATES = 2_000
BACKOFF_S = 0.05
BACKOFF_MAX_S = 1.0


class KeeperEvents(NamedTuple):
    """What the keeper tells.

    Attributes:
        states: the answer to reads.
        stored: a write is done; these positions are complete.
        refused: a write was refused; what the store has instead.
    """

    states: Callable[[Mapping[StateKey, PolicyState | None]], None]
    stored: Callable[[tuple[Position, ...]], None]
    refused: Callable[[int, int | None], Awaitable[None]]


class Keeper:
    """One queue in front of one store; `run()` works it off."""

    def __init__(self, store: StateStore, events: KeeperEvents) -> None:
        self._store = store
        self._events = events
        self._writes: dict[int, deque[WriteStates]] = {}
        self._trying: dict[int, tuple[WriteStates, int]] = {}
        self._reads: dict[StateKey, None] = {}
        self._letters: dict[int, set[Position]] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.counters: Counter[str] = Counter()

    def ask(self, effect: FetchStates | WriteStates) -> None:
        """Queue a read or a write; a read sees every write asked for before it."""
        if type(effect) is WriteStates:
            self._writes.setdefault(effect.partition, deque()).append(effect)
        elif type(effect) is FetchStates:
            self._reads.update(dict.fromkeys(effect.keys))
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
        for partition in partitions:
            self._writes.pop(partition, None)
            self._trying.pop(partition, None)
            self._letters.pop(partition, None)
        self._reads = {key: None for key in self._reads if key.partition not in partitions}
        self._wake.set()  # there may be nothing left to do, for which somebody waits

    async def flush(self, timeout_s: float) -> bool:
        """Wait until nothing is queued; False if that took longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Work off the queue until cancelled."""
        failures = 0
        while True:
            if not self._is_workable():
                if not self._writes and not self._reads:
                    self._idle.set()
                self._wake.clear()
                await self._wake.wait()
            try:
                await self._write_all()
                await self._read_some()
                failures = 0
            except StoreUnavailableError as fault:
                failures += 1
                self.counters["store_failures_total"] += 1
                if failures % 60 == 1:  # once a minute: it may also be a refused password
                    _log.warning("%s; trying again until it does", fault)
                await asyncio.sleep(min(BACKOFF_S * 2.0 ** min(failures - 1, 10), BACKOFF_MAX_S))

    def _is_workable(self) -> bool:
        """Tell whether something can be written or read now."""
        return not self._writes.keys() <= self._letters.keys() or any(
            k.partition not in self._writes for k in self._reads
        )

    async def _write_all(self) -> None:
        """Write what is queued now; what is asked for meanwhile waits for the next round, after the reads."""
        for partition, queue in list(self._writes.items()):
            asked = len(queue)
            while asked > 0 and self._writes.get(partition) is queue and partition not in self._letters:
                asked -= await self._write(partition, queue, asked)

    async def _write(self, partition: int, queue: deque[WriteStates], asked: int) -> int:
        """Write the first of the queue, merged with those that follow; return how many that were.

        An attempt without an answer may have happened: it is repeated as it was, so that it is recognised.
        """
        write, count = self._trying.get(partition) or _first(queue, asked)
        self._trying[partition] = write, count
        verdict = await self._store.write(write)
        self._trying.pop(partition, None)
        self.counters["store_writes_total"] += 1
        current = self._writes.get(partition) is queue
        if current:
            for _ in range(count):
                queue.popleft()
            if not queue:
                del self._writes[partition]
        if verdict.accepted:
            self._events.stored(write.completes)
        elif current:
            await self._refused(write, verdict.stored)
        return count

    async def _refused(self, write: WriteStates, stored: int | None) -> None:
        self._writes.pop(write.partition, None)
        self.counters["store_refusals_total"] += 1
        _log.warning("partition %d: expected offset %s, the store has %s", write.partition, write.expected, stored)
        await self._events.refused(write.partition, stored)

    async def _read_some(self) -> None:
        free = (key for key in self._reads if key.partition not in self._writes)
        keys = tuple(islice(free, READ_KEYS))
        if not keys:
            return
        states = await self._store.read(keys)
        self.counters["store_reads_total"] += 1
        wanted = {key: state for key, state in states.items() if key in self._reads}
        for key in wanted:
            del self._reads[key]
        self._events.states(wanted)


def _first(queue: deque[WriteStates], asked: int) -> tuple[WriteStates, int]:
    """Merge the head of a queue into one write of bounded size; return it and how many writes it replaces."""
    write, count = queue[0], 1
    while count < asked and len(write.states) < WRITE_STATES:
        write, count = merged(write, queue[count]), count + 1
    return write, count
