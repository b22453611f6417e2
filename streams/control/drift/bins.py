"""Which of a few bins a value falls into: by the first values of a column, which are then counted no more."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from math import inf, nextafter
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.control.drift.columns import Reading

# Five of values and one of those that are missing: each further one costs evidence, half the logarithm of all counts.
VALUES: Final = 5
BINS: Final = VALUES + 1
MISSING: Final = VALUES
FIRST: Final = 100  # values by which bins are made
QUARTER: Final = 15  # minutes: of each one number is kept, and 100 of them are a day
CROWDED: Final = 0.5  # of a day's numbers in one bin


@dataclass(frozen=True, slots=True)
class Bins:
    """The bins of a column.

    Attributes:
        edges: of numbers, at fifths of the first ones; a value falls into the first bin whose edge is not below it. A
            number that several fifths share has a bin of its own, so that what falls below it is seen.
        words: of words, the most frequent ones; all others share the bin behind them.
        middle: the median of the first numbers.
    """

    edges: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    middle: float | None = None

    def place(self, value: Reading) -> int:
        """Return the bin of a value; what is of the wrong kind is as missing."""
        if isinstance(value, str):
            return self.words.index(value) if value in self.words else VALUES - 1 if self.words else MISSING
        if value is None or self.words:
            return MISSING
        return bisect_left(self.edges, value)


def bins_of(first: Sequence[Reading]) -> Bins:
    """Make the bins of a column by its first values."""
    words = Counter([value for value in first if isinstance(value, str)])
    numbers = sorted([value for value in first if isinstance(value, float)])
    if words and sum(words.values()) >= len(numbers):
        return Bins(words=tuple([word for word, _ in words.most_common(VALUES - 1)]))
    if not numbers:
        return Bins()
    fifths = Counter([numbers[len(numbers) * fifth // VALUES] for fifth in range(1, VALUES)])
    below = [nextafter(edge, -inf) for edge, times in fifths.items() if times > 1]
    return Bins(tuple(sorted({*fifths, *below})), (), median(numbers))


@dataclass(slots=True)
class ColumnBins:
    """A column on its way to bins.

    Attributes:
        first: values so far; empty once there are bins.
        bins: None until there are enough values.
        lately: the latest numbers, for words alone.
        day: one number of each quarter of an hour, for bins of tomorrow.
    """

    first: list[Reading] = field(default_factory=list)
    bins: Bins | None = None
    lately: list[float] = field(default_factory=list)
    day: list[float] = field(default_factory=list)
    _quarter: int = -1

    def place(self, value: Reading, minute: int) -> int | None:
        """Return the bin of a value; None while bins are not made."""
        if self.bins is None:
            self.first.append(value)
            if len(self.first) >= FIRST:
                self.bins, self.first = bins_of(self.first), []
            return None
        if isinstance(value, float) and self.bins.edges:
            self.lately.append(value)
            del self.lately[:-FIRST]
            if self._quarter < minute // QUARTER and len(self.day) < FIRST:
                self._quarter = minute // QUARTER
                self.day.append(value)
        return self.bins.place(value)

    def make_anew(self) -> bool:
        """Make the bins by the last day if half of its numbers share one of them and need not; tell whether it did.

        A column that creeps away ends in its outermost bin, and moves there unseen. A number that is as frequent has a
        bin of its own in any case.
        """
        if self.bins is None or len(self.day) < FIRST:
            return False
        day, self.day = self.day, []
        made = bins_of(day)
        if not _fullest(made, day) <= CROWDED < _fullest(self.bins, day):
            return False
        self.bins = made
        return True

    def told(self, before: Sequence[float], now: Sequence[float]) -> tuple[str, str]:
        """Return what the column was and is, in words.

        Args:
            before: shares of the bins.
            now: the same lately.
        """
        bins = self.bins or Bins()
        moved = max(range(BINS), key=lambda place: abs(now[place] - before[place]))
        if moved != MISSING and bins.middle is not None and self.lately:
            return f"median {bins.middle:.4g}", f"{median(self.lately):.4g}"
        name = "missing" if moved == MISSING else bins.words[moved] if moved < len(bins.words) else "others"
        return f"{name} {before[moved]:.0%}", f"{now[moved]:.0%}"


def _fullest(bins: Bins, values: Sequence[float]) -> float:
    """Return the share of values in the bin that has most of them."""
    return max(Counter([bins.place(value) for value in values]).values()) / len(values)
