"""Records that wait for the schemas by which they are written; those behind them in their partition wait, too.

record of an unknown id ─▶ waits ─▶ `FetchFeatures` of its key ─▶ answer ─▶ mapped, in order

A registry that does not answer is asked again. Topics whose records wait are left unread once these take so many bytes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.operators.contract import FetchFeatures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streams.operators.contract import Record

MOST_BYTES: Final = 8 << 20  # beside what the last poll brings
AGAIN_US: Final = 2_000_000
_RECORD_BYTES: Final = 300  # of a record beside its key and value
# Schemas that are looked up at a time: senders may name any id.
_AT_ONCE: Final = 16


class _PartitionHeld(NamedTuple):
    key: str  # for what the first one waits
    records: deque[Record]


class AwaitingSchemas:
    """Records by topic and partition, in order."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], _PartitionHeld] = {}
        self._asked_us: dict[str, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(len(held.records) for held in self._held.values())

    @property
    def paused(self) -> frozenset[str]:
        """Topics to leave unread."""
        return frozenset([topic for topic, _ in self._held]) if self.bytes >= MOST_BYTES else frozenset()

    def follows(self, record: Record) -> bool:
        """Let a record wait if one before it in its partition does; returns whether."""
        held = self._held.get((record.topic, record.partition))
        if held is None:
            return False
        held.records.append(record)
        self.bytes += _size(record)
        return True

    def begin(self, record: Record, key: str) -> None:
        """Let the first record of a partition wait for a schema."""
        self._held[record.topic, record.partition] = _PartitionHeld(key, deque([record]))
        self.bytes += _size(record)

    def end(self, key: str | None = None) -> Iterator[Record]:
        """Yield the records of partitions whose first one has waited for a schema; None = of all partitions.

        They wait no longer, unless they are put here again.
        """
        self._asked_us = {asked: at_us for asked, at_us in self._asked_us.items() if key not in (None, asked)}
        for place in [place for place, held in self._held.items() if key in (None, held.key)]:
            records = self._held.pop(place).records
            self.bytes -= sum(map(_size, records))
            yield from records

    def clear(self) -> None:
        """Forget all: they are read again."""
        self._held.clear()
        self._asked_us.clear()
        self.bytes = 0

    def ask(self, now_us: int) -> list[FetchFeatures]:
        """Return what is to be looked up now, some at a time."""
        wanted = dict.fromkeys([held.key for held in self._held.values()])
        due = [key for key in wanted if self._asked_us.get(key, 0) + AGAIN_US <= now_us][:_AT_ONCE]
        self._asked_us |= dict.fromkeys(due, now_us)
        return [FetchFeatures(tuple(due))] if due else []

    def next_due(self) -> int | None:
        """Return when to ask again; None: nothing waits."""
        if not self._held:
            return None
        return min(self._asked_us.get(held.key, 0) for held in self._held.values()) + AGAIN_US


def _size(record: Record) -> int:
    return _RECORD_BYTES + len(record.value or b"") + len(record.key or b"")
