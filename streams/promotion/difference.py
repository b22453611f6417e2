"""Bounds of a mean difference that hold at all times at once: looking at them often does no harm.

For X >= -m with the unknown mean D, k = 1 + m, any centre c <= 1 and any rate r in (0, 1), both known before X,

    exp(r (X - D) / k - psi(r) ((X - c) / k)^2),    psi(r) = -ln(1 - r) - r,

has a mean of at most 1. So has a product of such factors, and a mixture of products over several rates. By Ville's
inequality the mixture ever exceeds 2 / alpha with probability alpha / 2 at most; D is at least the value at which it
does. The upper bound is the lower one of -X. The bounds follow the variance that was seen, and k may change from one
observation to the next.

Sources: Howard, Ramdas, McAuliffe and Sekhon, Ann. Stat. 49 (2021), for the factor (Fan's inequality); Waudby-Smith,
Wu, Ramdas, Karampatziakis and Mineiro, Anytime-valid off-policy inference (2022), for weights.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np

# From 0.9 down to 0.0002 by factors of the square root of 2, for 10 to 10,000,000 comparisons. The steepest weigh no
# more than the others: which one is best depends on how long one has to wait.
_RATES = 0.9 * 0.5 ** (np.arange(25) / 2.0)
_PSI = -np.log1p(-_RATES) - _RATES
_LOG_WEIGHT = -log(len(_RATES))
# Newton's steps towards a bound, and how close is close enough.
_STEPS, _CLOSE = 20, 1e-9


class Sums(NamedTuple):
    """What is kept of one side; sums of several differences' are those of all together.

    Attributes:
        scaled: of X / k.
        rates: of 1 / k.
        squares: of ((X - c) / k)^2.
    """

    scaled: float = 0.0
    rates: float = 0.0
    squares: float = 0.0

    def plus(self, other: Sums) -> Sums:
        """Return the sums of both."""
        return Sums(self.scaled + other.scaled, self.rates + other.rates, self.squares + other.squares)

    def times(self, factor: float) -> Sums:
        """Return what they would be after so many times as many observations of the same kind."""
        return Sums(factor * self.scaled, factor * self.rates, factor * self.squares)


class Difference:
    """A mean difference in [-1, 1], observation by observation.

    Attributes:
        count: how many observations.
        total: their sum.
        below: sums for the lower bound.
        above: sums of -X, for the upper bound.
    """

    __slots__ = ("above", "below", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.below = Sums()
        self.above = Sums()

    def add(self, value: float, least: float = -1.0, most: float = 1.0) -> None:
        """Take one observation.

        Args:
            value: in [least, most].
            least: what it could have been at least, known before it came; at most 0.
            most: what it could have been at most, likewise; at least 0.
        """
        # Half a comparison without a difference comes first. Within [-1, 1], as the mean is.
        centre = min(1.0, max(-1.0, self.total / (self.count + 0.5)))
        self.below = _plus(self.below, value, centre, 1.0 - least)
        self.above = _plus(self.above, -value, -centre, 1.0 + most)
        self.count += 1
        self.total += value


def _plus(sums: Sums, value: float, centre: float, scale: float) -> Sums:
    rate = 1.0 / scale
    off = (value - centre) * rate
    return Sums(sums.scaled + value * rate, sums.rates + rate, sums.squares + off * off)


def is_above(sums: Sums, value: float, alpha: float) -> bool:
    """Tell whether the lower bound of a mean difference is above a value; see `lower_bound`."""
    return _wealth(sums, value)[0] > log(2.0 / alpha)


def lower_bound(sums: Sums, alpha: float) -> float:
    """Return the lower bound of a mean difference, in [-1, 1]; below it with probability alpha / 2 at most, ever.

    The wealth falls and is convex in the mean. So Newton's steps from below, where one rate alone suffices, approach
    the bound and never pass it.

    Args:
        sums: of one or more differences.
        alpha: in (0, 1), of both bounds together.
    """
    if not sums.rates:
        return -1.0
    threshold = log(2.0 / alpha)
    each = (sums.scaled - (threshold - _LOG_WEIGHT + _PSI * sums.squares) / _RATES) / sums.rates
    found = max(-1.0, float(each.max()))
    for _ in range(_STEPS):
        wealth, slope = _wealth(sums, found)
        following = found + (wealth - threshold) / slope
        if following <= found + _CLOSE:
            break
        found = following
    return min(1.0, found)


def _wealth(sums: Sums, mean: float) -> tuple[float, float]:
    """Return the logarithm of the mixture if that is the mean, and how fast it falls as the mean rises."""
    exponents = _RATES * (sums.scaled - mean * sums.rates) - _PSI * sums.squares
    top = float(exponents.max())
    parts = np.exp(exponents - top)
    whole = float(parts.sum())
    return _LOG_WEIGHT + top + log(whole), sums.rates * float(_RATES @ parts) / whole


def upper_bound(sums: Sums, alpha: float) -> float:
    """Return the upper bound, likewise; `sums` are those of `above`."""
    return -lower_bound(sums, alpha)
