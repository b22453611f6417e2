"""The columns of one application: counted by minutes and hours, and judged once a minute."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from streams.control.drift.bins import BINS, ColumnBins
from streams.control.drift.evidence import log_evidence, sure, tempered
from streams.control.drift.shares import MOST_COLUMNS, ColumnShares

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from streams.control.drift.bins import Bins
    from streams.control.drift.columns import DriftColumn, Reading
    from streams.control.drift.evidence import Counts

HOURS: Final = 168  # the last week
MINUTES: Final = 240
# A window is so many minutes with values.
_WINDOWS: Final = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 200)
_LATELY: Final = 10  # minutes
FEW_MINUTES: Final = 30  # with values, before a window: how much they vary says little else
FEW_WINDOWS: Final = 8  # as long as the window, before it
FEW_HOURS: Final = 4  # or as many hours, as after a start
# A shift of less wakes nobody, however sure it is: the share of the values that are in other bins than before.
LEAST: Final = 0.1
USUAL_AFTER: Final = 1_440  # minutes: what has moved for longer than any night is how it is


class MovedColumn(NamedTuple):
    """A column that has moved: what it was, and what it is, in words."""

    column: DriftColumn
    before: str
    now: str


class DriftTrail:
    """What is known of an application's columns.

    Attributes:
        onset: the minute at which columns began to move; None = none has.
        moved: the columns that have, the farthest first.
        evidence: by model, the largest of its columns that lie far from what they were, as a share of what is sure; the
            application's own is "".
    """

    __slots__ = (
        "_before",
        "_columns",
        "_hour",
        "_hours",
        "_known",
        "_length",
        "_meanwhile",
        "_minutes",
        "_places",
        "_room",
        "evidence",
        "moved",
        "onset",
    )

    def __init__(self) -> None:
        self._places: dict[DriftColumn, int] = {}
        self._room = ColumnShares()
        self._columns: list[ColumnBins] = []
        self._minutes: deque[tuple[int, Counts]] = deque()
        self._hours: deque[Counts] = deque(maxlen=HOURS)
        self._hour = -1  # of the last of them
        self._meanwhile: dict[int, Counts] = {}  # by hours since the onset, of minutes that are let go
        self._before: Counts | None = None  # all counts before the onset
        self._length = 1  # of the window that told of it
        self._known: Counts = self._nothing()[None][:0]  # the minutes before it
        self.onset: int | None = None
        self.moved: list[MovedColumn] = []
        self.evidence: dict[str, float] = {}

    @classmethod
    def begun(cls, columns: Sequence[tuple[DriftColumn, ColumnBins]], hours: Sequence[Counts]) -> DriftTrail:
        """Return a trail that goes on with columns and hours of before; each hour has all columns there is room for."""
        made = cls()
        made._places = {column: place for place, (column, _) in enumerate(columns)}
        made._room = ColumnShares(made._places)
        made._columns = [bins for _, bins in columns]
        made._hours.extend(hours)
        return made

    def columns(self) -> list[tuple[DriftColumn, int, Bins | None]]:
        """Return the columns with their places and bins; None = they are not made."""
        return [(column, place, self._columns[place].bins) for column, place in self._places.items()]

    def usual(self) -> list[Counts]:
        """Return the counts by the hour, those of lately, too, without what came since something has moved."""
        hours = list(self._hours)
        recent: dict[int, Counts] = {}
        for minute, counts in self._minutes:
            if self.onset is None or minute < self.onset:
                recent[minute // 60] = recent.get(minute // 60, 0) + counts
        return [*hours, *recent.values()][-HOURS:]

    def take(self, found: Mapping[DriftColumn, Reading], minute: int) -> None:
        """Count the values of one query or prediction; minutes never go back."""
        if not self._minutes or self._minutes[-1][0] < minute:
            self._minutes.append((minute, np.zeros((MOST_COLUMNS, BINS), np.int64)))
            while len(self._minutes) > MINUTES:
                self._let_go(*self._minutes.popleft())
        counts = self._minutes[-1][1]
        for column, value in found.items():
            place = self._places.get(column)
            if place is None and self._room.take(column):
                place = self._places[column] = len(self._columns)
                self._columns.append(ColumnBins())
            if place is not None and (into := self._columns[place].place(value)) is not None:
                counts[place, into] += 1

    def judge(self, minute: int) -> None:
        """Look whether columns have moved, or are again as they were."""
        if self.onset is not None:
            self._look_for_return(minute)
        else:
            self._look_for_onset()
        self.moved = [] if self._before is None else self._told(self._before)

    def _told(self, before: Counts) -> list[MovedColumn]:
        """Return the columns that have moved since the onset, in words; what they show is the evidence now."""
        count = len(before)  # of columns that were known then
        was, now = _shares(before), _shares(self._since()[:count])
        far = _distance(was, now)
        known = [(column, place) for column, place in self._places.items() if place < count]
        held = [(far[place], column, place) for column, place in known if far[place] >= LEAST]
        share = self._surely(before, self._since()[:count], self._known, self._length) / sure(count)
        self.evidence = {column.model: 0.0 for column, _ in known}
        for _, column, place in held:
            self.evidence[column.model] = max(self.evidence[column.model], float(share[place]))
        return [
            MovedColumn(column, *self._columns[place].told(was[place].tolist(), now[place].tolist()))
            for _, column, place in sorted(held, reverse=True)
            if share[place] >= 1.0
        ]

    def _look_for_onset(self) -> None:
        blocks, whole = self._blocks(), self._whole()
        self.evidence = {}
        best, onset, needed = 0.0, None, sure(len(self._columns))
        for length in self._lengths(len(blocks)):
            window = blocks[-length:].sum(axis=0)
            found = self._surely(whole - window, window, blocks[:-length], length)
            far = _distance(_shares(whole - window), _shares(window)) >= LEAST
            for column, place in self._places.items():
                told = max(0.0, float(found[place])) / needed if far[place] else 0.0
                self.evidence[column.model] = max(self.evidence.get(column.model, 0.0), told)
                if told >= 1.0 and told > best:
                    best, onset = told, length
        if onset is not None:
            self.onset, self._length, self._known = self._minutes[-onset][0], onset, blocks[:-onset]
            self._before = whole - blocks[-onset:].sum(axis=0)

    def _look_for_return(self, minute: int) -> None:
        assert self.onset is not None
        assert self._before is not None
        if minute - self.onset > USUAL_AFTER:
            self._begin_anew()
            return
        usual = np.array([self._before, *[counts[: len(self._before)] for counts in self.usual()]])
        lately = self._blocks()[-_LATELY:].sum(axis=0)
        if all(_is_as_ever(usual[:, place], lately[place]) for place in self._moved_places()):
            self._go_back(self.onset)

    def _moved_places(self) -> list[int]:
        return [self._places[each.column] for each in self.moved]

    def _go_back(self, onset: int) -> None:
        """Count what came since the onset to what is usual: it went by itself, and may come again, as nights do."""
        while self._minutes and self._minutes[-1][0] >= onset:
            minute, counts = self._minutes.pop()
            self._meanwhile[minute // 60] = self._meanwhile.get(minute // 60, 0) + counts
        self._hours.extend([self._meanwhile[hour] for hour in sorted(self._meanwhile)])
        self._hour, self._meanwhile = -1, {}
        self.onset = self._before = None

    def _begin_anew(self) -> None:
        """Forget what was usual, and the bins that were made by it."""
        self._places, self._room, self._columns, self._hour = {}, ColumnShares(), [], -1
        self._minutes.clear()
        self._hours.clear()
        self._meanwhile, self.evidence = {}, {}
        self.onset = self._before = None

    def _lengths(self, count: int) -> Iterator[int]:
        for length in _WINDOWS:
            few = 0 if len(self._hours) >= FEW_HOURS else max(FEW_MINUTES, FEW_WINDOWS * length)
            if count - length >= few:
                yield length

    def _surely(self, before: Counts, window: Counts, blocks: Counts, length: int) -> NDArray[np.float64]:
        """Return the evidence of each column that a window is of other shares, as values in runs bring it, too.

        Args:
            before: counts of all before the window.
            window: counts.
            blocks: the minutes before the window that are known one by one.
            length: of the window, in minutes: windows before it are as long.
        """
        found = log_evidence(before, window)
        if found.max(initial=0.0) < sure(len(before)):  # what runs take away changes nothing
            return found
        whole = blocks[len(blocks) % length :]
        windows = whole.reshape(len(whole) // length, length, *whole.shape[1:]).sum(axis=1)
        known = [blocks, windows, self._past()] if len(self._hours) >= FEW_HOURS else [blocks, windows]
        left = [tempered(found, each[:, : len(before)]) for each in known if len(each) > 1]
        return np.asarray(np.min([found, *left], axis=0))

    def _blocks(self) -> Counts:
        found = [counts for _, counts in self._minutes]
        return np.array(found)[:, : len(self._columns)] if found else self._nothing()[None][:0]

    def _since(self) -> Counts:
        assert self.onset is not None
        found = [counts for minute, counts in self._minutes if minute >= self.onset]
        return np.sum(found, axis=0)[: len(self._columns)] if found else self._nothing()

    def _whole(self) -> Counts:
        return np.asarray(self._blocks().sum(axis=0) + self._past().sum(axis=0))

    def _past(self) -> Counts:
        return np.array(self._hours)[:, : len(self._columns)] if self._hours else self._nothing()[None][:0]

    def _nothing(self) -> Counts:
        return np.zeros((len(self._columns), BINS), np.int64)

    def _let_go(self, minute: int, counts: Counts) -> None:
        """Put the counts of a minute that is long ago to its hour."""
        if self.onset is not None and minute >= self.onset:
            self._meanwhile[minute // 60] = self._meanwhile.get(minute // 60, 0) + counts
        elif self._hour == minute // 60 and self._hours:
            self._hours[-1] = self._hours[-1] + counts
        else:
            self._hour = minute // 60
            self._hours.append(counts)


def _shares(counts: Counts) -> NDArray[np.float64]:
    return np.asarray(counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1))


def _is_as_ever(usual: Counts, lately: Counts) -> bool:
    """Return whether a column is lately near to what it was before, as a whole or in one of its hours."""
    far = _distance(_shares(usual[usual.any(axis=-1)]), _shares(lately))
    return bool(far.min(initial=1.0) < LEAST / 2 + _by_chance(lately))


def _by_chance(counts: Counts) -> float:
    """Return how far from their shares counts are by chance alone, on average: half the sum of their errors."""
    shares, size = _shares(counts), max(1, int(counts.sum()))
    return float(np.sqrt(shares * (1 - shares) / size / (2 * np.pi)).sum())


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of values that would have to be in other bins; 0 where there are no values."""
    are_known = (one.sum(axis=-1) > 0) & (other.sum(axis=-1) > 0)
    return np.asarray(np.where(are_known, np.abs(one - other).sum(axis=-1) / 2, 0.0))
