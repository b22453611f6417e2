"""The last record batches of some topics, whole, within a bound of bytes, to look for bytes in them."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from streams.operators.contract import Batch, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


# Of a batch's bytes: the times of its first record, and the latest.
_FIRST, _LAST = slice(27, 35), slice(35, 43)
_MS = 1_000
_RECORD_BYTES = 300  # of a record's tuple, headers apart
_SLOT_US = 100_000
_MOST_SLOTS = 600  # a minute; a batch that spans more is found by its last one


class _HeldFetch(NamedTuple):
    first_us: int
    last_us: int
    fetched: Record | Batch


class _HeldPlace(NamedTuple):
    fetched_us: int
    place: tuple[str, int]
    slots: range
    size: int


class HeldBatches:
    """Holds what was fetched last; what is too much goes, the oldest first.

    Args:
        unpack: returns the records of a batch.
        most_bytes: that are held.

    Attributes:
        bytes: that are held.
        let_go: batches that went though somebody might still have asked for them.
    """

    def __init__(self, unpack: Callable[[Batch], Sequence[Record]], most_bytes: int) -> None:
        self._unpack = unpack
        self._most_bytes = most_bytes
        # By place, and by each tenth of a second that the batch has times of.
        self._by_place: defaultdict[tuple[str, int], dict[int, deque[_HeldFetch]]] = defaultdict(dict)
        self._order: deque[_HeldPlace] = deque()
        self.bytes = 0
        self.let_go = 0

    def add(self, fetched: Record | Batch, now_us: int) -> None:
        """Hold what was fetched."""
        place = fetched[0], fetched[1]
        if isinstance(fetched, Batch):
            first_us, last_us = (int.from_bytes(fetched.data[at], "big") * _MS for at in (_FIRST, _LAST))
            size = len(fetched.data)
        else:
            first_us = last_us = fetched.timestamp_us
            size = len(fetched.value or b"") + _RECORD_BYTES
        first, last = first_us // _SLOT_US, max(first_us, last_us) // _SLOT_US
        slots = range(max(first, last - _MOST_SLOTS), last + 1)
        held = _HeldFetch(first_us, last_us, fetched)
        for slot in slots:
            self._by_place[place].setdefault(slot, deque()).append(held)
        self._order.append(_HeldPlace(now_us, place, slots, size))
        self.bytes += size
        while self.bytes > self._most_bytes:
            self._drop()
            self.let_go += 1

    def forget(self, before_us: int) -> None:
        """Let go what was fetched before a time."""
        while self._order and self._order[0].fetched_us < before_us:
            self._drop()

    def find(self, topic: str, partition: int | None, needle: bytes, since_us: int, until_us: int) -> Iterator[Record]:
        """Yield records with some bytes in their values, of batches with any of between two times.

        Args:
            topic: logical.
            partition: of it; None = all.
            needle: the bytes.
            since_us: by records' times.
            until_us: likewise.
        """
        places = [(topic, partition)] if partition is not None else [one for one in self._by_place if one[0] == topic]
        for place in places:
            slots = self._by_place.get(place, {})
            seen = set[int]()
            # Of the slots that are there: a record's times are what somebody wrote, and may lie an age apart.
            for slot in sorted(one for one in slots if since_us // _SLOT_US <= one <= until_us // _SLOT_US):
                for held in slots[slot]:
                    if held.first_us <= until_us and held.last_us >= since_us and id(held) not in seen:
                        seen.add(id(held))
                        yield from self._with(held.fetched, needle)

    def _with(self, fetched: Record | Batch, needle: bytes) -> Iterator[Record]:
        if not isinstance(fetched, Batch):
            records: Sequence[Record] = (fetched,)
        elif needle in fetched.data:
            records = self._unpack(fetched)
        else:
            return
        for record in records:
            if needle in (record.value or b""):
                yield record

    def _drop(self) -> None:
        entry = self._order.popleft()
        self.bytes -= entry.size
        by_slot = self._by_place[entry.place]
        for slot in entry.slots:
            by_slot[slot].popleft()  # of a place, in the order in which they were added
            if not by_slot[slot]:
                del by_slot[slot]
        if not by_slot:
            del self._by_place[entry.place]
