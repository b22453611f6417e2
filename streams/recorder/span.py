"""Which records are recorded: pure arithmetic on offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from schemas import topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.runtime.ports import Bounds, TopicPartition

# Compacted topics say what holds until it is said anew, and a candidate's step follows from those before it: they are
# recorded from their beginning.
WHOLE: Final = frozenset({topics.APPLICATIONS, topics.MODELS, topics.CANDIDATES, topics.PROMOTIONS})


class Offset(NamedTuple):
    """A place in every partition, by its number."""

    offset: int


class Time(NamedTuple):
    """A place in every partition: its first record that is not older (us since the epoch)."""

    us: int


Place: TypeAlias = Offset | Time


@dataclass(frozen=True, slots=True)
class RecordedSpan:
    """Which records of each partition.

    Attributes:
        begin: the first one; None = the oldest that is there.
        end: behind the last one; None = the end as it is at the start.
        follows: without an `end`, it never comes.
    """

    begin: Place | None = None
    end: Place | None = None
    follows: bool = False

    def is_open(self, now_us: int) -> bool:
        """Tell whether more may come that belongs to it."""
        if self.end is None:
            return self.follows
        return isinstance(self.end, Time) and self.end.us > now_us


def starts(
    span: RecordedSpan, bounds: Mapping[TopicPartition, Bounds], found: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return where to begin; `found` are the places of the span's begin, if that is a time."""
    wanted = {place: None if place[0] in WHOLE else span.begin for place in bounds}
    return {place: _at(wanted[place], bounds[place], found.get(place), bounds[place].begin) for place in bounds}


def ends(
    span: RecordedSpan, bounds: Mapping[TopicPartition, Bounds], found: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offsets behind the last ones; `found` are the places of the span's end, if that is a time."""
    return {place: _at(span.end, bounds[place], found.get(place), bounds[place].end) for place in bounds}


def _at(wanted: Place | None, bounds: Bounds, found: int | None, otherwise: int) -> int:
    match wanted:
        case Offset(offset):
            return min(max(offset, bounds.begin), bounds.end)
        case Time():
            return bounds.end if found is None else found
        case None:
            return otherwise
