"""A dead letter as it lies in its topic: the record as it was, and behind its headers ours with the cause.

`streams.runtime.role.dead_letters` writes them. A receipt lies in the same topic: it says which letters were sent
again, and when. So the topic alone tells the whole story, and is forgotten as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from schemas.topics import dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streams.operators.contract import Record

PREFIX: Final = "skysail.error."
TRUNCATED: Final = PREFIX + "truncated"
_WHERE = ("topic", "partition", "offset", "timestamp", "null", "batch")
NAMES: Final = frozenset(PREFIX + name for name in ("cause", "message", "group", "version", *_WHERE)) | {TRUNCATED}
# Of a record that was sent again: how often. It stays among the record's own headers when it comes back.
ATTEMPTS: Final = "skysail.redriven"
# Of a receipt: the letters that were sent again, such as 3,7-9.
RECEIPT: Final = "skysail.receipt"
# A header of Kafka's is short; one receipt names so many ranges at most.
MOST_RANGES: Final = 1_000
_MOST_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter.

    Attributes:
        topic: of dead letters, where it lies; logical.
        offset: in it.
        written_us: when.
        cause: one word.
        message: for a person.
        source: the topic that its record was for; logical.
        partition: of the source where the record was; None = it was refused before it came there.
        source_offset: where the record was.
        record_us: the record's own time; 0 = not known.
        group: that refused it.
        key: the record's.
        value: the record's; None = it had none.
        headers: the record's own.
        cut: bytes that it had once, where this is only a part; 0 = it is whole.
        attempts: how often it was sent again before this letter.
    """

    topic: str
    offset: int
    written_us: int
    cause: str
    message: str
    source: str
    partition: int | None
    source_offset: int | None
    record_us: int
    group: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    cut: int
    attempts: int

    @property
    def place(self) -> str:
        """Where it lies, as it is typed: `queries@17`."""
        return f"{self.topic.removesuffix(dead_letters(''))}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Says that letters of this topic were sent again.

    Attributes:
        offsets: first and last of each range.
        written_us: when.
    """

    offsets: tuple[tuple[int, int], ...]
    written_us: int

    def __contains__(self, offset: int) -> bool:
        """Tell whether it names the letter at this offset."""
        return any(first <= offset <= last for first, last in self.offsets)


def read(record: Record) -> Letter | Receipt:
    """Return what a record of a topic of dead letters is; whatever its headers are."""
    first = record.headers[0] if len(record.headers) == 1 else ("", b"")
    if first[0] == RECEIPT:
        return Receipt(_ranges(first[1] or b""), record.timestamp_us)
    own, headers = _parted(record.headers)
    said = {name.removeprefix(PREFIX): (value or b"").decode(errors="replace") for name, value in own}
    sizes = [value for name, value in own if name in (TRUNCATED, PREFIX + "batch")]
    return Letter(
        topic=record.topic,
        offset=record.offset,
        written_us=record.timestamp_us,
        cause=said.get("cause", "unknown"),
        message=said.get("message", ""),
        source=said.get("topic", record.topic.removesuffix(dead_letters(""))),
        partition=_number(said.get("partition")),
        source_offset=_number(said.get("offset")),
        record_us=_number(said.get("timestamp")) or 0,
        group=said.get("group", ""),
        key=record.key,
        value=None if said.get("null") == "value" else record.value,
        headers=headers,
        cut=(_number(sizes[-1].decode(errors="replace")) or len(record.value or b"") or 1) if sizes else 0,
        attempts=_number(dict(headers).get(ATTEMPTS, b"").decode(errors="replace")) or 0,
    )


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return offsets as ranges, first and last, in order."""
    found: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


def receipts(offsets: Iterable[int]) -> list[tuple[str, bytes]]:
    """Return the headers of the receipts that name these letters: one a receipt."""
    all_of = ranges(offsets)
    parts = [all_of[start : start + MOST_RANGES] for start in range(0, len(all_of), MOST_RANGES)]
    return [(RECEIPT, ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in part).encode()) for part in parts]


def _parted(
    headers: tuple[tuple[str, bytes], ...],
) -> tuple[tuple[tuple[str, bytes], ...], tuple[tuple[str, bytes], ...]]:
    """Return our headers, which stand last, and the record's own before them."""
    own = tuple(takewhile(lambda header: header[0] in NAMES, reversed(headers)))[::-1]
    return own, headers[: len(headers) - len(own)]


def _ranges(text: bytes) -> tuple[tuple[int, int], ...]:
    found = []
    for part in text.decode(errors="replace").split(","):
        first, _, last = part.partition("-")
        begin, end = _number(first), _number(last or first)
        if begin is not None and end is not None:
            found.append((begin, end))
    return tuple(found)


def _number(text: str | None) -> int | None:
    """Return a number as we write it; None for anything else."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    return int(text)
