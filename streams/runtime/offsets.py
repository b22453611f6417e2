"""What may be committed: the only class that knows.

    delivered   10  11  12  14  15      (13 does not exist: compaction, transaction markers)
    complete     x   x       x
    committable          ▲ 12

An offset may be committed when every delivered record before it is complete. Delivered is what counts: gaps in Kafka's
offsets are legal.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

from streams.runtime.errors import OffsetOrderError, UnassignedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streams.operators.contract import Position, Span
    from streams.runtime.ports import TopicPartition

# Completed records are cut off when they are more than this share of what is held: each cut copies the rest once, so
# completing stays O(1) amortised (three copies a record at most) and at most a quarter of the memory is waste.
_WASTE = 0.25
_WASTE_MIN = 1024


class _Partition:
    """Offsets delivered and not yet cut off (8 bytes each), and whether each is complete (1 byte each)."""

    __slots__ = ("committed", "done", "head", "name", "offsets", "open", "start")

    def __init__(self, name: str, start: int, committed: int | None) -> None:
        self.name = name  # topic and number, for errors
        self.start = start  # everything before it was complete already
        self.committed = committed  # next offset, as last committed; never goes back
        self.offsets = array("q")
        self.done = bytearray()
        self.head = 0  # everything before it is complete
        self.open = 0  # delivered and not complete

    def deliver(self, offsets: Sequence[int]) -> int:
        """Append what is not complete yet; return how many that are."""
        if offsets[0] < self.start:
            offsets = offsets[bisect_left(offsets, self.start) :]
            if not offsets:
                return 0
        if self.offsets and offsets[0] <= self.offsets[-1]:
            raise OffsetOrderError(
                f"{self.name}: offset {offsets[0]} delivered after {self.offsets[-1]}; call assign() after a seek"
            )
        self.offsets.extend(offsets)
        self.done.extend(bytes(len(offsets)))
        self.open += len(offsets)
        return len(offsets)

    def complete(self, offsets: Iterable[int]) -> int:
        """Mark offsets; returns how many of them were outstanding."""
        done, held, marked = self.done, self.offsets, 0
        first, count = (held[0] if held else 0), len(held)
        for offset in offsets:
            at = offset - first  # right wherever offsets have no gaps
            index = at if 0 <= at < count and held[at] == offset else self._index(offset)
            if index is not None and not done[index]:
                done[index] = 1
                marked += 1
        self.open -= marked
        return marked

    def complete_span(self, begin: int, end: int) -> int:
        """Mark what was delivered of a span; returns how much of it was outstanding."""
        held, done = self.offsets, self.done
        first = held[0] if held else 0
        low, high = begin - first, end - first  # right wherever offsets have no gaps
        if not (0 <= low < high <= len(held) and held[low] == begin and held[high - 1] == end - 1):
            low, high = bisect_left(held, begin), bisect_left(held, end)
        if low >= high:
            return 0
        marked = done.count(0, low, high)
        done[low:high] = b"\x01" * (high - low)
        self.open -= marked
        return marked

    def open_index(self, offset: int) -> int | None:
        """Return where an outstanding offset is held."""
        index = self._index(offset)
        return None if index is None or self.done[index] else index

    def _index(self, offset: int) -> int | None:
        held = self.offsets
        index = bisect_left(held, offset)
        return index if index < len(held) and held[index] == offset else None

    def next_offset(self) -> int:
        """Return the end of the completed prefix."""
        head = self.done.find(0, self.head)
        self.head = len(self.done) if head < 0 else head
        if self.head == 0:
            return self.start
        end = self.offsets[self.head - 1] + 1
        self._cut()
        return end

    def _cut(self) -> None:
        waste = self.head - 1  # the last completed offset stays: it is what the prefix ends with
        if waste > max(_WASTE_MIN, _WASTE * len(self.done)) or (self.open == 0 and waste > 0):
            del self.offsets[:waste]
            del self.done[:waste]
            self.head -= waste


class OffsetTracker:
    """Delivered and completed offsets of all owned partitions; costs at most 13 bytes for each outstanding record.

    Completing something unknown (a revoked partition, a record completed twice, a topic outside the group) is ignored
    and counted: after a rebalance acknowledgements of the former assignment still arrive, and they do no harm.
    """

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._outstanding = 0
        self.ignored_total = 0

    def assign(self, partition: TopicPartition, start: int = 0, committed: int | None = None) -> None:
        """Follow a partition anew; what was outstanding is forgotten.

        Args:
            partition: owned from here on, or sought to another position.
            start: records before it are complete already; delivering them again changes nothing.
            committed: nothing that is not above it is ever committed again. None: as known, if the partition is.
        """
        known = self._partitions.get(partition)
        if committed is None and known is not None:
            committed = known.committed
        self.revoke(partition)
        self._partitions[partition] = _Partition(_name(partition), start, committed)

    def revoke(self, partition: TopicPartition) -> None:
        """Forget a partition; unknown ones are ignored."""
        gone = self._partitions.pop(partition, None)
        if gone is not None:
            self._outstanding -= gone.open

    def delivered(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        """Take the offsets of one partition's records, ascending.

        Raises:
            UnassignedError: the partition is not assigned.
            OffsetOrderError: an offset is not larger than those before it.
        """
        if offsets:
            self._outstanding += self._assigned(partition).deliver(offsets)

    def complete(self, positions: Iterable[Position]) -> None:
        """Mark records complete, in any order."""
        offsets_of: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for topic, number, offset in positions:  # a joiner's alternate between two topics
            offsets_of[topic, number].append(offset)
        for place, offsets in offsets_of.items():
            known = self._partitions.get(place)
            marked = known.complete(offsets) if known is not None else 0
            self._outstanding -= marked
            self.ignored_total += len(offsets) - marked

    def complete_spans(self, spans: Iterable[Span]) -> None:
        """Mark whole spans of records complete, in any order; the same as every offset of them."""
        for topic, number, begin, end in spans:
            known = self._partitions.get((topic, number))
            marked = known.complete_span(begin, end) if known is not None else 0
            self._outstanding -= marked
            self.ignored_total += max(0, end - begin) - marked

    def committable(self) -> dict[TopicPartition, int]:
        """Return the next offsets that may be committed, where they are ahead of the committed ones."""
        found = {}
        for partition, known in self._partitions.items():
            end = known.next_offset()
            if end > (known.start if known.committed is None else known.committed):
                found[partition] = end
        return found

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note what the broker has accepted; older values change nothing."""
        for partition, offset in offsets.items():
            known = self._partitions.get(partition)
            if known is not None and (known.committed is None or offset > known.committed):
                known.committed = offset

    def position(self, partition: TopicPartition) -> int:
        """Return the first offset that is not complete: where reading has to begin again.

        Raises:
            UnassignedError: the partition is not assigned.
        """
        return self._assigned(partition).next_offset()

    def is_outstanding(self, position: Position) -> bool:
        """Tell whether a record was delivered and is not complete."""
        known = self._partitions.get(position[:2])
        return known is not None and known.open_index(position.offset) is not None

    def assigned(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that are followed."""
        return tuple(self._partitions)

    def outstanding(self) -> int:
        """Return how many delivered records are not complete."""
        return self._outstanding

    def _assigned(self, partition: TopicPartition) -> _Partition:
        known = self._partitions.get(partition)
        if known is None:
            raise UnassignedError(f"{_name(partition)} is not assigned; call assign() before records are delivered")
        return known


def _name(partition: TopicPartition) -> str:
    topic, number = partition
    return f"{topic}-{number}"
