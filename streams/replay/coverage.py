"""What a trace covers: where it begins, whether records are left out; and a second look for a few queries."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_id
from schemas.records import Observations
from streams.operators.contract import Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.replay.recording import Recording

_PREFIX = "skysail.error."


def _place(record: Record) -> Iterator[Position]:
    """Yield where a dead letter had stood; what another program wrote may not say it, or in other words."""
    found = {name.removeprefix(_PREFIX): value for name, value in record.headers if value is not None}
    with suppress(KeyError, ValueError):
        yield Position(found["topic"].decode(), int(found["partition"]), int(found["offset"]))


class Coverage:
    """Follows the offsets of the records that are read.

    Attributes:
        torn: topics in whose partitions offsets are left out.
    """

    __slots__ = ("_first", "_next", "torn")

    def __init__(self) -> None:
        self._first: dict[tuple[str, int], tuple[int, int]] = {}
        self._next: dict[tuple[str, int], int] = {}
        self.torn: set[str] = set()

    def note(self, record: Record) -> None:
        """Note the next record of a partition."""
        place, offset = (record.topic, record.partition), record.offset
        expected = self._next.get(place)
        if expected is None:
            self._first[place] = offset, record.timestamp_us
        elif expected != offset:
            self.torn.add(record.topic)
        self._next[place] = offset + 1

    def has_begun(self, topic: str) -> bool:
        """Tell whether all partitions that have records are there from their first one on."""
        return not any(offset for (name, _), (offset, _) in self._first.items() if name == topic)

    def from_us(self, *names: str) -> int:
        """Return the time from which on all of these topics are there; 0 if they are from their beginning."""
        begun = [time_us for (name, _), (offset, time_us) in self._first.items() if name in names and offset]
        return max(begun, default=0)


class SecondLook:
    """Looks for a few queries in all of a trace: what was held of it may have been let go of.

    Args:
        trace: that is replayed.
        codec: of its records.
    """

    def __init__(self, trace: Recording, codec: Codec) -> None:
        self._trace = trace
        self._codec = codec

    def has(self, topic: str) -> bool:
        """Tell whether the trace has a topic."""
        return topic in self._trace.topics()

    def dead(self, topic: str) -> tuple[set[Position], set[str]]:
        """Return where the dead letters of a topic had stood, and which queries they name."""
        places, ids = set[Position](), set[str]()
        for record in self._records(topics.dead_letters(topic)):
            places.update(_place(record))
            try:
                ids.add(peek_id(record.value))
            except DecodeError:
                continue
        return places, ids

    def about(self, topic: str, ids: set[str]) -> Iterator[Record]:
        """Yield the records of a topic whose first field is the id of one of these queries."""
        for record in self._records(topic):
            try:
                if peek_id(record.value) in ids:
                    yield record
            except DecodeError:
                continue

    def observed(self, ids: set[str]) -> set[str]:
        """Return which of these queries something was observed of."""
        found = set[str]()
        for record in self._records(topics.OBSERVATIONS):
            try:
                items = self._codec.decode(Observations, record.value).items
            except DecodeError:
                continue
            found.update(seen.query_id for seen in items if seen.query_id in ids)
        return found

    def _records(self, topic: str) -> Iterator[Record]:
        return self._trace.records(topic) if self.has(topic) else iter(())
