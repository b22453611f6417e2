"""Which policy states are to be read, and how many in one call: bounded in keys and in bytes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from streams.operators.contract import StateKey

# States read in one round trip: 5.6 us of client time each (measured), so a full one holds the event loop for 3 ms.
READ_KEYS = 500
# Bytes that a read aims at: 30 ms at 300 Mbit/s, and a few ms of decoding.
READ_BYTES = 1_000_000
# Keys of the first read: nothing is known yet of how large the states are; each read that is done doubles it.
FIRST_KEYS = 16
# Keys that wait while the store is away, some 200 B each. Who is forgotten asks again with its next query.
WAITING_KEYS = 20_000


class ReadQueue:
    """Keys in the order of asking; those of a call that failed go behind the others.

    Args:
        is_needed: tells whether a key's partition waits for its states and does not ask twice: it is never forgotten.
    """

    def __init__(self, is_needed: Callable[[int], bool]) -> None:
        self._is_needed = is_needed
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
        while len(self._keys) > WAITING_KEYS and not self._is_needed((oldest := next(iter(self._keys))).partition):
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
