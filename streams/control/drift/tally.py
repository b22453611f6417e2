"""Counts of an application's columns: by minutes, and by hours before these."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from streams.control.drift.bins import BINS
from streams.control.drift.shares import MOST_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streams.control.drift.evidence import Counts

HOURS: Final = 168  # the last week
MINUTES: Final = 240


def nothing() -> Counts:
    """Return counts of all columns that there is room for."""
    return np.zeros((MOST_COLUMNS, BINS), np.int64)


class DriftTally:
    """What has been counted. What comes from `onset` on is not counted to what is usual until it has gone back.

    Args:
        hours: counts of before, the oldest first.

    Attributes:
        onset: the minute at which columns began to move; None = none has.
        minutes: the last ones with values, and their counts.
        hours: those before the first of them that were as usual.
    """

    __slots__ = ("_hour", "_meanwhile", "hours", "minutes", "onset")

    def __init__(self, hours: Iterable[Counts] = ()) -> None:
        self.onset: int | None = None
        self.minutes: deque[tuple[int, Counts]] = deque()
        self.hours: deque[Counts] = deque(hours, maxlen=HOURS)
        self._hour = -1  # of the last of them
        self._meanwhile: dict[int, Counts] = {}  # by hours since the onset, of minutes that are let go

    def counts(self, minute: int) -> Counts:
        """Return what is counted of a minute, to add to it; minutes never go back."""
        if not self.minutes or self.minutes[-1][0] < minute:
            self.minutes.append((minute, nothing()))
            while len(self.minutes) > MINUTES:
                self._let_go(*self.minutes.popleft())
        return self.minutes[-1][1]

    def blocks(self, columns: int) -> Counts:
        """Return the counts (minutes, columns, bins) of the first columns."""
        found = [counts for _, counts in self.minutes]
        return np.array(found)[:, :columns] if found else nothing()[None][:0, :columns]

    def past(self, columns: int) -> Counts:
        """Return the counts (hours, columns, bins) of before the minutes."""
        return np.array(self.hours)[:, :columns] if self.hours else nothing()[None][:0, :columns]

    def since(self, columns: int) -> Counts:
        """Return the counts (columns, bins) of the minutes since the onset."""
        found = [counts for minute, counts in self.minutes if self.onset is not None and minute >= self.onset]
        return np.asarray(np.sum([nothing(), *found], axis=0)[:columns])

    def usual(self) -> list[Counts]:
        """Return the counts by the hour, those of lately, too, without what came since something has moved."""
        recent: dict[int, Counts] = {}
        for minute, counts in self.minutes:
            if self.onset is None or minute < self.onset:
                recent[minute // 60] = recent.get(minute // 60, 0) + counts
        return [*self.hours, *recent.values()][-HOURS:]

    def go_back(self) -> None:
        """Count what came since the onset to what is usual: it went by itself, and may come again, as nights do."""
        while self.minutes and self.onset is not None and self.minutes[-1][0] >= self.onset:
            minute, counts = self.minutes.pop()
            self._meanwhile[minute // 60] = self._meanwhile.get(minute // 60, 0) + counts
        self.hours.extend([self._meanwhile[hour] for hour in sorted(self._meanwhile)])
        self._hour, self._meanwhile = -1, {}
        self.onset = None

    def forget(self, column: int) -> None:
        """Count a column from nothing."""
        for counts in [*self.hours, *[counts for _, counts in self.minutes]]:
            counts[column] = 0

    def _let_go(self, minute: int, counts: Counts) -> None:
        """Put the counts of a minute that is long ago to its hour."""
        if self.onset is not None and minute >= self.onset:
            self._meanwhile[minute // 60] = self._meanwhile.get(minute // 60, 0) + counts
        elif self._hour == minute // 60 and self.hours:
            self.hours[-1] = self.hours[-1] + counts
        else:
            self._hour = minute // 60
            self.hours.append(counts)
