"""The columns of one application: counted by minutes and hours, and judged once a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from streams.control.drift.bins import ColumnBins
from streams.control.drift.distance import distance, is_as_ever, shares_of
from streams.control.drift.evidence import log_evidence, sure, tempered
from streams.control.drift.shares import ColumnShares
from streams.control.drift.tally import DriftTally

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from streams.control.drift.bins import Bins
    from streams.control.drift.columns import DriftColumn, Reading
    from streams.control.drift.evidence import Counts

# A window is so many minutes with values.
_WINDOWS: Final = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 200)
_LATELY: Final = 10  # minutes
FEW_MINUTES: Final = 30  # with values, before a window: how much they vary says little else
FEW_WINDOWS: Final = 8  # as long as the window, before it
FEW_HOURS: Final = 4  # or as many hours, as after a start
# A shift of less wakes nobody, however sure it is: the share of the values that are in other bins than before.
LEAST: Final = 0.1
MOST_NAMED: Final = 64  # columns that are left out
USUAL_AFTER: Final = 1_440  # minutes: what has moved for longer than any night is how it is


class MovedColumn(NamedTuple):
    """A column that has moved: what it was, and what it is, in words."""

    column: DriftColumn
    before: str
    now: str
    far: float  # the share of its values that are in other bins than before


class DriftTrail:
    """What is known of an application's columns.

    Attributes:
        moved: the columns that have, the farthest first.
        evidence: by model, the largest of its columns that lie far from what they were, as a share of what is sure; the
            application's own is "".
        left_out: columns for which there is no room, the first `MOST_NAMED` of them.
    """

    __slots__ = (
        "_before",
        "_columns",
        "_known",
        "_length",
        "_places",
        "_room",
        "_tally",
        "evidence",
        "left_out",
        "moved",
    )

    def __init__(self) -> None:
        self._places: dict[DriftColumn, int] = {}
        self._room = ColumnShares()
        self._columns: list[ColumnBins] = []
        self._tally = DriftTally()
        self._before: Counts | None = None  # all counts before the onset
        self._length = 1  # of the window that told of it
        self._known: Counts = self._tally.blocks(0)  # the minutes before it
        self.moved: list[MovedColumn] = []
        self.evidence: dict[str, float] = {}
        self.left_out: dict[DriftColumn, None] = {}

    @classmethod
    def begun(cls, columns: Sequence[tuple[DriftColumn, ColumnBins]], hours: Sequence[Counts]) -> DriftTrail:
        """Return a trail that goes on with columns and hours of before; each hour has all columns there is room for."""
        made = cls()
        made._places = {column: place for place, (column, _) in enumerate(columns)}
        made._room = ColumnShares(made._places)
        made._columns = [bins for _, bins in columns]
        made._tally = DriftTally(hours)
        return made

    @property
    def onset(self) -> int | None:
        """The minute at which columns began to move; None = none has."""
        return self._tally.onset

    def columns(self) -> list[tuple[DriftColumn, int, Bins | None]]:
        """Return the columns with their places and bins; None = they are not made."""
        return [(column, place, self._columns[place].bins) for column, place in self._places.items()]

    def usual(self) -> list[Counts]:
        """Return the counts by the hour, those of lately, too, without what came since something has moved."""
        return self._tally.usual()

    def take(self, found: Mapping[DriftColumn, Reading], minute: int) -> None:
        """Count the values of one query or prediction; minutes never go back."""
        counts = self._tally.counts(minute)
        for column, value in found.items():
            place = self._place(column)
            if place is not None and (into := self._columns[place].place(value, minute)) is not None:
                counts[place, into] += 1

    def _place(self, column: DriftColumn) -> int | None:
        """Return the place of a column; None = there is no room for it."""
        place = self._places.get(column)
        if place is None and self._room.take(column):
            place = self._places[column] = len(self._columns)
            self._columns.append(ColumnBins())
        elif place is None and len(self.left_out) < MOST_NAMED:
            self.left_out[column] = None
        return place

    def judge(self, minute: int) -> None:
        """Look whether columns have moved, or are again as they were."""
        if self.onset is not None:
            self._look_for_return(minute)
        else:
            self._look_for_onset()
        self._make_bins_anew()
        self.moved = [] if self._before is None else self._told(self._before)

    def _make_bins_anew(self) -> None:
        """Begin anew with columns that have crept into one bin: that is no news, and their evidence begins at none."""
        for place, bins in enumerate(self._columns):
            if self.onset is not None:
                bins.day.clear()  # it is not as usual
            elif bins.make_anew():
                self._tally.forget(place)

    def _told(self, before: Counts) -> list[MovedColumn]:
        """Return the columns that have moved since the onset, in words; what they show is the evidence now."""
        count = len(before)  # of columns that were known then
        since = self._tally.since(count)
        was, now = shares_of(before), shares_of(since)
        far = distance(was, now)
        known = [(column, place) for column, place in self._places.items() if place < count]
        held = [(float(far[place]), column, place) for column, place in known if far[place] >= LEAST]
        share = self._surely(before, since, self._known, self._length) / sure(count)
        self.evidence = {column.model: 0.0 for column, _ in known}
        for _, column, place in held:
            self.evidence[column.model] = max(self.evidence[column.model], float(share[place]))
        return [
            MovedColumn(column, *self._columns[place].told(was[place].tolist(), now[place].tolist()), moved)
            for moved, column, place in sorted(held, reverse=True)
            if share[place] >= 1.0
        ]

    def _look_for_onset(self) -> None:
        columns = len(self._columns)
        blocks = self._tally.blocks(columns)
        whole = blocks.sum(axis=0) + self._tally.past(columns).sum(axis=0)
        self.evidence = {}
        best, onset, needed = 0.0, None, sure(columns)
        for length in self._lengths(len(blocks)):
            window = blocks[-length:].sum(axis=0)
            found = self._surely(whole - window, window, blocks[:-length], length)
            far = distance(shares_of(whole - window), shares_of(window)) >= LEAST
            for column, place in self._places.items():
                told = max(0.0, float(found[place])) / needed if far[place] else 0.0
                self.evidence[column.model] = max(self.evidence.get(column.model, 0.0), told)
                if told >= 1.0 and told > best:
                    best, onset = told, length
        if onset is not None:
            self._tally.onset, self._length, self._known = self._tally.minutes[-onset][0], onset, blocks[:-onset]
            self._before = whole - blocks[-onset:].sum(axis=0)

    def _look_for_return(self, minute: int) -> None:
        assert self.onset is not None
        assert self._before is not None
        if minute - self.onset > USUAL_AFTER:
            self._begin_anew()
            return
        usual = np.array([self._before, *[counts[: len(self._before)] for counts in self.usual()]])
        lately = self._tally.blocks(len(self._before))[-_LATELY:].sum(axis=0)
        if all(is_as_ever(usual[:, place], lately[place], LEAST) for place in self._moved_places()):
            self._tally.go_back()
            self._before = None

    def _moved_places(self) -> list[int]:
        return [self._places[each.column] for each in self.moved]

    def _begin_anew(self) -> None:
        """Forget what was usual, and the bins that were made by it."""
        self._places, self._room, self._columns, self._tally = {}, ColumnShares(), [], DriftTally()
        self.evidence, self.left_out, self._before = {}, {}, None

    def _lengths(self, count: int) -> Iterator[int]:
        for length in _WINDOWS:
            few = 0 if len(self._tally.hours) >= FEW_HOURS else max(FEW_MINUTES, FEW_WINDOWS * length)
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
        whole, past = blocks[len(blocks) % length :], self._tally.past(len(before))
        windows = whole.reshape(len(whole) // length, length, *whole.shape[1:]).sum(axis=1)
        known = [blocks, windows, past] if len(past) >= FEW_HOURS else [blocks, windows]
        left = [tempered(found, each[:, : len(before)]) for each in known if len(each) > 1]
        return np.asarray(np.min([found, *left], axis=0))
