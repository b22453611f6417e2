"""Which of a few bins a value falls into: by other values of its column, which are not counted."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from math import inf, nextafter
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.usual.columns import Reading

# Five of values and one of those that are missing: each further one costs evidence, half the logarithm of all counts.
VALUES: Final = 5
BINS: Final = VALUES + 1
MISSING: Final = VALUES
FIRST: Final = 100  # values by which bins are made


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
