"""Which policy states are read or written next, and how many in one call: bounded in states and in bytes.

ReadQueue     keys to read, in the order of asking
WriteQueue    one partition's writes; those that follow each other are merged into one attempt
WriteQueues   all partitions' writes, and the size of the next attempt
"""

from __future__ import annotations

import uuid
from collections import deque
from itertools import count as numbers
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from streams.runtime.stores.base import size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, KeysView

    from streams.operators.contract import StateKey, WriteStates
    from streams.runtime.stores.base import WriteResult

# States read in one round trip: 5.6 us of client time each (measured), so a full one holds the event loop for 3 ms.
READ_KEYS = 500
# Bytes that a read aims at: 30 ms at 300 Mbit/s, and a few ms of decoding.
READ_BYTES = 1_000_000
# Keys of the first read: nothing is known yet of how large the states are; each read that is done doubles it.
FIRST_KEYS = 16
# Keys that wait beside those of records in hand, some 200 B each: states that are in use, to be read again. Who is
# forgotten asks again with its next query.
WAITING_KEYS = 20_000

# States written in one script, which holds Redis itself for about 7 us a state.
WRITE_STATES = 2_000
# Bytes that an attempt aims at: 30 ms at 300 Mbit/s. A kernel's write of one step is never split.
WRITE_BYTES = 1_000_000
LEAST_BYTES = 10_000
# Bytes that may wait, as they are stored; in memory a state has about four times as many (32 B a number).
WAITING_BYTES = 32_000_000


class ReadQueue:
    """Keys in the order of asking; those of a call that failed go behind the others.

    Args:
        is_needed: tells whether a key's partition waits for its states and does not ask twice: it is never forgotten.
        most: keys that may wait.
    """

    def __init__(self, is_needed: Callable[[int], bool], most: int = WAITING_KEYS) -> None:
        self._is_needed = is_needed
        self._most = most
        self._keys: dict[StateKey, None] = {}
        self._limit = FIRST_KEYS

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: StateKey) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[StateKey]:
        return iter(self._keys)

    def ask(self, keys: Iterable[StateKey]) -> int:
        """Queue keys; return how many of the oldest were forgotten for them."""
        self._keys.update(dict.fromkeys(keys))
        forgotten = 0
        while len(self._keys) > self._most and not self._is_needed((oldest := next(iter(self._keys))).partition):
            del self._keys[oldest]
            forgotten += 1
        return forgotten

    def batch(self, is_held: Callable[[StateKey], bool]) -> tuple[StateKey, ...]:
        """Return what to read now, without what is held up."""
        return tuple(islice((key for key in self._keys if not is_held(key)), self._limit))

    def done(self, keys: Collection[StateKey], size_bytes: int) -> None:
        """Take out keys that were read, and read as many the next time as `READ_BYTES` lets through."""
        for key in keys:
            self._keys.pop(key, None)
        if keys:
            fitting = READ_BYTES * len(keys) // max(size_bytes, 1)
            self._limit = max(1, min(2 * self._limit, fitting, READ_KEYS))

    def failed(self, keys: Collection[StateKey]) -> None:
        """Read half as many the next time, and others before these: one state must not stop all."""
        self._limit = max(1, min(self._limit, len(keys)) // 2)
        for key in keys:
            if key in self._keys:
                self._keys[key] = self._keys.pop(key)

    def forget(self, partitions: Collection[int]) -> None:
        """Drop the keys of these partitions."""
        self._keys = {key: None for key in self._keys if key.partition not in partitions}


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

    def succeeded(self, verdict: WriteResult) -> Attempt | None:
        """Take out what the verdict shows to be stored; None: none of the attempts is."""
        done = next((attempt for attempt in self._tried if attempt.token == verdict.token), None)
        if done is None:
            return None
        for _ in range(done.replaces):
            self.waiting_bytes -= self.waiting.popleft()[1]
        self._tried.clear()
        return done


class WriteQueues:
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
    states, completes, spans, count = dict(first.states), list(first.completes), list(first.spans), 1
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
        spans += then.spans
        size, offset, count = size + grown, then.offset, count + 1
    write = first._replace(offset=offset, states=states, completes=tuple(completes), spans=tuple(spans))
    return write, count, size
