"""Which states wait to be written, and how many go into one attempt: merged, and bounded in states and in bytes."""

from __future__ import annotations

import uuid
from collections import deque
from itertools import count as numbers
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from streams.runtime.stores.base import size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, KeysView

    from streams.operators.contract import WriteStates
    from streams.runtime.stores.base import Verdict

# States written in one script, which holds Redis itself for about 7 us a state.
WRITE_STATES = 2_000
# Bytes that an attempt aims at: 30 ms at 300 Mbit/s. What a kernel wants written in one step is never split.
WRITE_BYTES = 1_000_000
LEAST_BYTES = 10_000
# Bytes that may wait, as they are stored; in memory a state has about four times as many (32 B a number).
WAITING_BYTES = 32_000_000


class Attempt(NamedTuple):
    """One call: what it writes, in place of how many of the waiting writes, its size, and the token that names it."""

    write: WriteStates
    replaces: int
    size_bytes: int
    token: str


class WriteQueue:
    """The writes of one partition in order, and the attempts at its head that have no answer yet."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[WriteStates, int]] = deque()
        self.waiting_bytes = 0
        self._tried: list[Attempt] = []

    def ask(self, write: WriteStates) -> None:
        """Append a write."""
        size = sum(map(size_bytes, write.states.values()))
        self.waiting.append((write, size))
        self.waiting_bytes += size

    def attempt(self, most: int, limit_bytes: int, token: str) -> Attempt:
        """Return what to write next, of at most so many waiting writes.

        An attempt without an answer may have happened. It is repeated as it was, unless it has become too large.
        """
        last = self._tried[-1] if self._tried else None
        if last is not None and (last.replaces == 1 or last.size_bytes <= limit_bytes):
            return last
        write, count, size = merged([write for write, _ in islice(self.waiting, most)], limit_bytes)
        self._tried.append(Attempt(write, count, size, token))
        return self._tried[-1]

    def succeeded(self, verdict: Verdict) -> Attempt | None:
        """Take out what the verdict shows to be stored; None: none of the attempts is."""
        done = next((attempt for attempt in self._tried if attempt.token == verdict.token), None)
        if done is None:
            return None
        for _ in range(done.replaces):
            self.waiting_bytes -= self.waiting.popleft()[1]
        self._tried.clear()
        return done


class Writes:
    """The queues of all partitions, and how much goes into one attempt."""

    def __init__(self) -> None:
        self._queues: dict[int, WriteQueue] = {}
        self._limit_bytes = WRITE_BYTES
        self._name = uuid.uuid4().hex
        self._numbers = numbers()

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, partition: int) -> bool:
        return partition in self._queues

    @property
    def partitions(self) -> KeysView[int]:
        """Those with something to write."""
        return self._queues.keys()

    @property
    def waiting_bytes(self) -> int:
        """What waits to be written."""
        return sum(queue.waiting_bytes for queue in self._queues.values())

    def ask(self, write: WriteStates) -> None:
        """Queue a write."""
        self._queues.setdefault(write.partition, WriteQueue()).ask(write)

    def queue(self, partition: int) -> WriteQueue | None:
        """Return a partition's queue, if anything waits in it."""
        return self._queues.get(partition)

    def attempt(self, queue: WriteQueue, most: int) -> Attempt:
        """Return what to write next."""
        return queue.attempt(most, self._limit_bytes, f"{self._name}-{next(self._numbers)}")

    def answered(self, partition: int, queue: WriteQueue) -> None:
        """Let attempts grow again; forget a queue that is empty."""
        self._limit_bytes = min(2 * self._limit_bytes, WRITE_BYTES)
        if not queue.waiting and self._queues.get(partition) is queue:
            del self._queues[partition]

    def failed(self) -> None:
        """Make the next attempts half as large."""
        self._limit_bytes = max(self._limit_bytes // 2, LEAST_BYTES)

    def forget(self, partitions: Iterable[int]) -> None:
        """Drop what waits for these partitions."""
        for partition in partitions:
            self._queues.pop(partition, None)


def merged(writes: Iterable[WriteStates], limit_bytes: int = WRITE_BYTES) -> tuple[WriteStates, int, int]:
    """Make one write of the first of those that follow each other on one partition; the later states win.

    Returns:
        The write, how many it replaces (one at least), and its size in bytes.
    """
    first, *others = writes
    states, completes, count = dict(first.states), list(first.completes), 1
    size, offset = sum(map(size_bytes, states.values())), first.offset
    for then in others:
        grown = sum(
            size_bytes(state) - (size_bytes(states[name]) if name in states else 0)
            for name, state in then.states.items()
        )
        if len(states) >= WRITE_STATES or size + grown > limit_bytes:
            break
        states |= then.states
        completes += then.completes
        size, offset, count = size + grown, then.offset, count + 1
    return first._replace(offset=offset, states=states, completes=tuple(completes)), count, size
