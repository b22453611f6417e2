"""When measurements may be compared: what silence has a value for, not before the window of its query has ended.

    answered ──── told ──────── end of the window
                   │             ├─▶ told: compared          silent: its value is written, and compared
                   └── waits ────┘

Who buys tells at once, and who does not is known at the end. Taken as they come, the first window would hold nothing
but sales. So a value that may be absent waits here until the log has come to its `final_us`. A query which the joiner
had to forget is withdrawn, with what waits of it. It is then absent from both sides, whatever it came to.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from schemas.errors import DecodeError
from schemas.records import Measurements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from schemas.codec import Codec
    from schemas.records import Measurement
    from streams.operators.contract import Record
    from streams.promotion.copies import Copies

MOST_WAITING: Final = 100_000  # queries of a partition; of more, those whose windows end first do not wait for that


class _WaitingValues:
    """What is told in one partition of queries whose windows have not ended."""

    __slots__ = ("_by_query", "_due")

    def __init__(self) -> None:
        self._by_query: dict[str, list[Measurement]] = {}
        self._due: list[tuple[int, str]] = []  # a heap, also of some that were withdrawn

    def add(self, seen: Measurement) -> None:
        if seen.query_id not in self._by_query:
            heapq.heappush(self._due, (seen.final_us, seen.query_id))
        self._by_query.setdefault(seen.query_id, []).append(seen)

    def withdraw(self, query_id: str) -> None:
        self._by_query.pop(query_id, None)

    def ended(self, now_us: int) -> Iterator[Measurement]:
        while self._due and (self._due[0][0] <= now_us or len(self._due) > MOST_WAITING):
            yield from self._by_query.pop(heapq.heappop(self._due)[1], ())


class ComparableMeasurements:
    """Reads measurements of a log, each value once.

    Args:
        codec: of the deployment.
        copies: tells copies from first ones.
    """

    def __init__(self, codec: Codec, copies: Copies) -> None:
        self._codec = codec
        self._copies = copies
        self._waiting: dict[int, _WaitingValues] = {}  # by partition

    def take(self, record: Record, *, has_observations: bool = False) -> list[Measurement]:
        """Return what may be compared as of the next record of a partition of observations.

        Args:
            record: the record.
            has_observations: whether it was read as observations: then no measurements are in it.
        """
        waiting = self._waiting.setdefault(record.partition, _WaitingValues())
        found = [*waiting.ended(record.timestamp_us)]
        for seen in () if has_observations else self._read(record):
            if not seen.values:
                waiting.withdraw(seen.query_id)
            elif fresh := self._fresh(seen, record):
                if fresh.final_us > record.timestamp_us:
                    waiting.add(fresh)
                else:
                    found.append(fresh)
        return found

    def until(self, now_us: int) -> list[Measurement]:
        """Return what may be compared as of a time behind the last record."""
        return [seen for waiting in self._waiting.values() for seen in waiting.ended(now_us)]

    def _read(self, record: Record) -> Iterable[Measurement]:
        try:
            return self._codec.decode(Measurements, record.value).items
        except DecodeError:
            return ()

    def _fresh(self, seen: Measurement, record: Record) -> Measurement | None:
        """Return a measurement with the values that are told for the first time; None: there is none."""
        where = record.timestamp_us, record.partition
        fresh = [value for value in seen.values if not self._copies.has(f"{seen.query_id}/{value.metric}", *where)]
        return seen._replace(values=tuple(fresh)) if fresh else None


def is_since(seen: Measurement, timestamp_us: int, from_us: int) -> bool:
    """Tell whether a measurement counts for what began at a time.

    Where silence has a value, the query has to be later: what was told about earlier ones may lie before.

    Args:
        seen: the measurement.
        timestamp_us: of the record as of which it may be compared.
        from_us: the time.
    """
    return timestamp_us >= from_us and (not seen.final_us or seen.predicted_us >= from_us)
