"""What a topic holds, held against what kernels have made again: record by record, whoever wrote them, in any order.

made by a kernel ─┐                                   ┌─ nothing
                  ├─▶ same key, same bytes? ─ no ─▶ by id: two values that should be one, or only one of them
a partition's log ┘
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streams.operators.contract import Emit, Record

# How much later a record may be written than its kernel made it. Meanwhile those of others are looked at.
_AHEAD_US: Final = 60_000_000
_SILENCE_US: Final = 20_000_000  # shorter ones are not remembered


class Silences:
    """When nobody wrote to a partition: without a leader, what is made for it waits, and goes away with its process.

    Args:
        times_us: of its records.
    """

    def __init__(self, times_us: Iterable[int] = ()) -> None:
        self._last_us = 0
        self._found: list[tuple[int, int]] = []
        for time_us in times_us:
            self.note(time_us)

    def note(self, time_us: int) -> None:
        """Take the time of the next record."""
        if time_us > self._last_us + _SILENCE_US:
            self._found.append((self._last_us, time_us))
        self._last_us = max(self._last_us, time_us)

    def cover(self, from_us: int, until_us: int) -> bool:
        """Tell whether nothing was written in a time."""
        return self._last_us <= from_us or any(begin <= from_us and until_us <= end for begin, end in self._found)


class MadeRecord(NamedTuple):
    """A record that a kernel has made again.

    Attributes:
        tape: whose.
        number: of those that it has made for this partition.
        now_us: when.
        value: of the record.
        is_awaited: whether it was kept while the broker was away; others may have been dropped.
    """

    tape: str
    number: int
    now_us: int
    value: bytes
    is_awaited: bool = True


@dataclass(slots=True)
class WrittenLog:
    """One partition of a topic.

    Args:
        records: of the partition.
        is_made: tells which of them are written by kernels that are played.

    Attributes:
        same: records that were made again.
        last: by tape, the number of its last record that is in the log: those before it had been written, too.
        first_us: when the log begins, if not with its first offset.
        silences: when nobody wrote to it.
        is_torn: whether offsets are left out.
    """

    records: Iterator[Record]
    is_made: Callable[[Record], bool]
    same: int = 0
    last: dict[str, int] = field(default_factory=dict)
    first_us: int = 0
    silences: Silences = field(default_factory=Silences)
    is_torn: bool = False
    _next: int | None = None
    _ahead: Record | None = None
    _logged: defaultdict[bytes, deque[Record]] = field(default_factory=lambda: defaultdict(deque))
    _made: defaultdict[bytes, deque[MadeRecord]] = field(default_factory=lambda: defaultdict(deque))
    _counts: Counter[str] = field(default_factory=Counter)

    def made(self, tape: str, now_us: int, emit: Emit) -> None:
        """Take a record that a kernel has made again, and look for it in the log."""
        is_awaited = bool(emit.completes) or emit.is_part
        one = MadeRecord(tape, self._counts[tape], now_us, emit.value, is_awaited)
        self._counts[tape] += 1
        digest = digest_of(emit)
        logged = self._logged.get(digest)
        if logged:
            logged.popleft()
            self._match(one)
            if not logged:
                del self._logged[digest]
            return
        self._made[digest].append(one)
        while digest in self._made and (record := self._read(now_us + _AHEAD_US)) is not None:
            self._take(record)

    def end(self) -> tuple[list[Record], list[MadeRecord]]:
        """Read the rest; return what is only in the log, and what was only made again."""
        while (record := self._read(None)) is not None:
            self._take(record)
        logged = [record for several in self._logged.values() for record in several]
        return logged, [one for several in self._made.values() for one in several]

    def _take(self, record: Record) -> None:
        if not self.is_made(record):
            return
        digest = digest_of(record)
        made = self._made.get(digest)
        if not made:
            self._logged[digest].append(record)
            return
        self._match(made.popleft())
        if not made:
            del self._made[digest]

    def _match(self, one: MadeRecord) -> None:
        self.same += 1
        self.last[one.tape] = max(self.last.get(one.tape, -1), one.number)

    def _read(self, until_us: int | None) -> Record | None:
        record = self._ahead or next(self.records, None)
        if record is None or (until_us is not None and record.timestamp_us > until_us):
            self._ahead = record
            return None
        self._ahead = None
        self.silences.note(record.timestamp_us)
        if self._next is None:
            self.first_us = record.timestamp_us if record.offset else 0
        elif record.offset != self._next:
            self.is_torn = True
        self._next = record.offset + 1
        return record


def digest_of(record: Record | Emit) -> bytes:
    """Return a digest of key and value."""
    return blake2b(record.value or b"", digest_size=16, key=(record.key or b"")[:64]).digest()


class Leftover(NamedTuple):
    """What could not be found on the other side, by its id; records of several items are taken apart."""

    id: str
    value: object
    written: Record | None = None
    made: MadeRecord | None = None


class PairedLeftovers(NamedTuple):
    """What became of what was left over.

    Attributes:
        same: how many are there on both sides after all, in records of other sizes.
        pairs: values that should be one.
        only_logged: what nobody has made again.
        only_made: what is not in the log.
    """

    same: int
    pairs: list[tuple[Leftover, Leftover]]
    only_logged: list[Leftover]
    only_made: list[Leftover]


def paired(logged: list[Leftover], made: list[Leftover], is_same: Callable[[object, object], bool]) -> PairedLeftovers:
    """Pair what has the same id; what is equal is counted."""
    by_id: defaultdict[str, list[Leftover]] = defaultdict(list)
    for one in logged:
        by_id[one.id].append(one)
    only_made: list[Leftover] = []
    count = 0
    for other in made:
        same = next((one for one in by_id[other.id] if is_same(one.value, other.value)), None)
        if same is None:
            only_made.append(other)
        else:
            by_id[other.id].remove(same)
            count += 1
    pairs: list[tuple[Leftover, Leftover]] = []
    alone: list[Leftover] = []
    for other in only_made:
        if its := by_id[other.id]:
            pairs.append((its.pop(0), other))
        else:
            alone.append(other)
    return PairedLeftovers(count, pairs, [one for its in by_id.values() for one in its], alone)
