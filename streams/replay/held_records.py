"""Records that wait for what follows from them, by query id; the oldest are let go of beyond a bound in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

# What an entry takes beside its record's bytes: a tuple, its numbers, the key, a place in the dict (CPython 3.11).
ENTRY_BYTES = 600


class HeldRecords(Generic[T]):
    """By query id, in order of arrival.

    Args:
        bound_bytes: that all of it may take, estimated.

    Attributes:
        let_go: queries whose records are held no longer.
    """

    __slots__ = ("_bound_bytes", "_bytes", "_entries", "let_go")

    def __init__(self, bound_bytes: int) -> None:
        self._bound_bytes = bound_bytes
        self._bytes = 0
        self._entries: dict[str, tuple[tuple[T, ...], int]] = {}
        self.let_go = 0

    def add(self, query_id: str, value: T, size: int) -> None:
        """Hold one more value for a query."""
        size += ENTRY_BYTES
        known = self._entries.get(query_id)
        self._entries[query_id] = ((value,), size) if known is None else ((*known[0], value), known[1] + size)
        self._bytes += size
        while self._bytes > self._bound_bytes and len(self._entries) > 1:
            self._bytes -= self._entries.pop(next(iter(self._entries)))[1]
            self.let_go += 1

    def get(self, query_id: str) -> tuple[T, ...]:
        """Return what is held for a query, in order."""
        known = self._entries.get(query_id)
        return () if known is None else known[0]

    def pop(self, query_id: str) -> tuple[T, ...]:
        """Return what is held for a query, and hold it no longer."""
        known = self._entries.pop(query_id, None)
        if known is None:
            return ()
        self._bytes -= known[1]
        return known[0]

    def __iter__(self) -> Iterator[tuple[str, tuple[T, ...]]]:
        for query_id, (values, _) in self._entries.items():
            yield query_id, values
