"""What becomes of a batch that Kafka took and nobody here can unpack: one dead letter, and the records behind it.

Brokers look into compressed batches with Java's unpackers, which let pass what others refuse.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from streams.operators.contract import DeadLetter, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streams.operators.contract import Batch

_T = TypeVar("_T", bound="Record | Batch")
_log = logging.getLogger(__name__)

CAUSE: Final = "corrupt_batch"
# What is kept of it: enough to see what it was, little enough for every dead-letter topic.
KEPT_BYTES: Final = 64 * 1024
_WHY: Final = 200  # characters: an exception may quote what it stumbled over
WHAT: Final = "skysail.error.batch"  # header that says which offsets, and why


class CorruptBatch(Record):
    """Stands among the records of a poll for a whole batch: its last offset, and the beginning of its bytes."""

    __slots__ = ()

    @property
    def what(self) -> str:
        """Which offsets cannot be had, and why."""
        return str(dict(self.headers)[WHAT], "utf-8")


def corrupt(place: tuple[str, int], offsets: tuple[int, int], time_ms: int, batch: bytes, why: str) -> CorruptBatch:
    """Return what stands for a batch.

    Args:
        place: topic and partition.
        offsets: its first and last one.
        time_ms: of its newest record.
        batch: as it came.
        why: it cannot be unpacked.
    """
    what = f"offsets {offsets[0]} to {offsets[1]}, {len(batch)} bytes: {why[:_WHY]}".encode(errors="backslashreplace")
    return CorruptBatch(*place, offsets[1], time_ms * 1000, None, batch[:KEPT_BYTES], ((WHAT, what),))


def parted(records: Sequence[_T]) -> tuple[Sequence[_T], list[DeadLetter]]:
    """Return the records without corrupt batches, and a dead letter for each of those."""
    if CorruptBatch not in map(type, records):  # 25 ns a record
        return records, []
    letters = [DeadLetter(one, CAUSE, f"cannot be unpacked: {one.what}") for one in _corrupt(records)]
    return [record for record in records if not isinstance(record, CorruptBatch)], letters


def readable(records: Iterable[Record]) -> list[Record]:
    """Return the records without corrupt batches, which are logged: for readers that write no dead letters."""
    found, letters = parted([*records])
    for record, _, message in letters:
        _log.warning("%s-%d is read on behind a batch that %s", record.topic, record.partition, message)
    return [*found]


def _corrupt(records: Iterable[Record | Batch]) -> Iterable[CorruptBatch]:
    return (record for record in records if isinstance(record, CorruptBatch))
