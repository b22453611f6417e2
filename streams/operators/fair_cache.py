"""Entries on shelves, one shelf for each owner: bounded together, by number and by bytes.

If there are too many, the owner that has most loses those that it used longest ago. So whoever has many drives out its
own, and the entries of others stay.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heapreplace
from sys import maxsize
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable

_Owner = TypeVar("_Owner", bound="Hashable")
_Key = TypeVar("_Key", bound="Hashable")
_Entry = TypeVar("_Entry")


class Shelf(Generic[_Key, _Entry]):
    """The entries of one owner, those used longest ago first, and the bytes that they take."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self.size = 0


class FairCache(Generic[_Owner, _Key, _Entry]):
    """The shelves of all owners.

    Args:
        size_of: the bytes that an entry takes; the sum of what `put` was told of its key.
        capacity: of entries.
        capacity_bytes: that they may take.

    Attributes:
        size: the bytes that all entries take.
    """

    __slots__ = ("_capacity", "_capacity_bytes", "_length", "_shelves", "_size_of", "size")

    def __init__(
        self, size_of: Callable[[_Key, _Entry], int], capacity: int = maxsize, capacity_bytes: int = maxsize
    ) -> None:
        self._size_of = size_of
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._shelves: dict[_Owner, Shelf[_Key, _Entry]] = {}
        self._length = 0
        self.size = 0

    def __len__(self) -> int:
        return self._length

    @property
    def is_large(self) -> bool:
        """Whether they take too many bytes."""
        return self.size > self._capacity_bytes

    @property
    def is_over(self) -> bool:
        """Whether a bound is passed; a single entry may be as large as it likes."""
        return self._length > 1 and (self._length > self._capacity or self.size > self._capacity_bytes)

    def find(self, owner: _Owner) -> Shelf[_Key, _Entry] | None:
        """Return the shelf of an owner that has entries; the order of its entries may be changed, nothing else."""
        return self._shelves.get(owner)

    def put(self, owner: _Owner, key: _Key, entry: _Entry, more: int) -> None:
        """Store an entry; it takes so many bytes more than what was under its key. A new one is the one used last."""
        shelf = self._shelves.get(owner)
        if shelf is None:
            shelf = self._shelves[owner] = Shelf()
        before = len(shelf.entries)
        shelf.entries[key] = entry
        self._length += len(shelf.entries) - before
        shelf.size += more
        self.size += more

    def drop(self, is_gone: Callable[[_Owner], bool]) -> None:
        """Forget the entries of some owners."""
        for owner in [owner for owner in self._shelves if is_gone(owner)]:
            shelf = self._shelves.pop(owner)
            self._length -= len(shelf.entries)
            self.size -= shelf.size

    def trim(self, kept: Container[_Key] = ()) -> None:
        """Take entries away until there are not too many; those of these keys stay, whatever they take."""
        if not self.is_over:
            return
        heap = [(-shelf.size, number, owner) for number, (owner, shelf) in enumerate(self._shelves.items())]
        heapify(heap)
        spared: dict[_Owner, int] = {}
        while heap and self.is_over:
            _, number, owner = heap[0]
            shelf = self._shelves[owner]
            self._take_oldest(shelf, kept, spared, owner)
            if spared.get(owner, 0) < len(shelf.entries):
                heapreplace(heap, (-shelf.size, number, owner))
            else:
                heappop(heap)
                if not shelf.entries:
                    del self._shelves[owner]

    def _take_oldest(
        self, shelf: Shelf[_Key, _Entry], kept: Container[_Key], spared: dict[_Owner, int], owner: _Owner
    ) -> None:
        """Take away the entry used longest ago; if it is kept, it counts as used."""
        key, entry = next(iter(shelf.entries.items()))
        if key in kept:
            shelf.entries.move_to_end(key)
            spared[owner] = spared.get(owner, 0) + 1
            return
        del shelf.entries[key]
        size = self._size_of(key, entry)
        shelf.size -= size
        self.size -= size
        self._length -= 1
