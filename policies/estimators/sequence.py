"""Confidence sequences: bounds of a mean that hold at every moment, however often one looks and whenever one stops.

For a value X of at least `least`, its unknown mean D of at most h, k = h - least, any centre c <= h and any rate r in
(0, 1), all but X and D known before X,

    exp(r (X - D) / k - psi(r) ((X - c) / k)^2),    psi(r) = -ln(1 - r) - r,

has a mean of at most 1. So has a product of such factors, and a mixture of products over several rates. By Ville's
inequality the mixture ever exceeds 2 / alpha with probability alpha / 2 at most; D is at least the value at which it
does. The upper bound is the lower one of -X, or of another value with the same mean. Nothing is assumed about how the
log's policy learnt meanwhile. The bounds follow the variance that was seen, and k may change from value to value.

Sources: Howard, Ramdas, McAuliffe and Sekhon, Time-uniform, nonparametric, nonasymptotic confidence sequences, Ann.
Stat. 49 (2021), for the factor (Fan's inequality); Karampatziakis, Mineiro and Ramdas, Off-policy confidence sequences,
ICML 2021, and Waudby-Smith, Wu, Ramdas, Karampatziakis and Mineiro, Anytime-valid off-policy inference (2022), for
weights.
"""

from __future__ import annotations

from math import inf, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies.estimators.errors import EstimateError
from policies.estimators.log import averaged

if TYPE_CHECKING:
    from policies.estimators.log import Floats, Numbers

# From 0.9 down to 0.0002 by factors of the square root of 2, for 10 to 10,000,000 values. Which one is best depends on
# how much variance there will be. Steep ones, best for little, weigh somewhat more: one waits for little more often.
# With this power the bounds are at most a tenth wider than the closer of two others, at 100 to 50,000 values: those of
# equal weights and those of the gamma mixture.
_COUNT, _POWER = 25, 1.1
_RATES = 0.9 * 0.5 ** (np.arange(_COUNT) / 2.0)
_PSI = -np.log1p(-_RATES) - _RATES
_PARTS = np.arange(1.0, _COUNT + 1.0) ** -_POWER
_LOG_WEIGHTS = np.log(_PARTS / _PARTS.sum())
# Newton's steps towards a bound, and how close is close enough.
_STEPS, _CLOSE = 20, 1e-9
_ROUNDING = 1e-9
# More values than these are "many": nobody waits for them.
_MANY = 100_000_000.0


class Side(NamedTuple):
    """What one bound remembers; sides of several sequences add up to that of all together.

    Attributes:
        total: sum of X; on the side of the upper bound X has the other sign.
        scaled: of X / k.
        rates: of 1 / k.
        squares: of ((X - c) / k)^2.
    """

    total: float = 0.0
    scaled: float = 0.0
    rates: float = 0.0
    squares: float = 0.0

    def plus(self, other: Side) -> Side:
        """Return the sums of both."""
        total, scaled, rates, squares = other
        return Side(self.total + total, self.scaled + scaled, self.rates + rates, self.squares + squares)

    def times(self, factor: float) -> Side:
        """Return what they would be after so many times as many values of the same kind."""
        return Side(*(factor * each for each in self))

    def is_above(self, value: float, alpha: float) -> bool:
        """Tell whether the bound of the mean is above a value; at a tenth of the cost of `bound`."""
        return self._wealth(value)[0] > log(2.0 / alpha)

    def bound(self, alpha: float) -> float:
        """Return the lower bound of the mean; below it with probability alpha / 2 at most, ever. -inf before a value.

        The wealth falls and is convex in the mean. So Newton's steps from below, where one rate alone suffices,
        approach the bound and never pass it.

        Args:
            alpha: in (0, 1), of both bounds together.
        """
        if not self.rates:
            return -inf
        threshold = log(2.0 / alpha)
        each = (self.scaled - (threshold - _LOG_WEIGHTS + _PSI * self.squares) / _RATES) / self.rates
        found = float(each.max())
        for _ in range(_STEPS):
            wealth, slope = self._wealth(found)
            following = found + (wealth - threshold) / slope
            if following <= found + _CLOSE:
                break
            found = following
        return found

    def _wealth(self, mean: float) -> tuple[float, float]:
        """Return the logarithm of the mixture if that is the mean, and how fast it falls as the mean rises."""
        exponents = _RATES * (self.scaled - mean * self.rates) - _PSI * self.squares + _LOG_WEIGHTS
        top = float(exponents.max())
        parts = np.exp(exponents - top)
        whole = float(parts.sum())
        return top + log(whole), self.rates * float(_RATES @ parts) / whole


def bounds(below: Side, above: Side, alpha: float, low: float = -1.0, high: float = 1.0) -> tuple[float, float]:
    """Return both bounds of a mean in [low, high], right at all times at once with probability 1 - alpha."""
    return min(high, max(low, below.bound(alpha))), max(low, min(high, -above.bound(alpha)))


def missing(below: Side, count: int, alpha: float) -> int | None:
    """Return about how many more values would put the bound of `count` values above 0, if all goes on as it has.

    None where none would: the mean is not above 0, or by so little that nobody waits for it.
    """
    if count == 0 or below.scaled <= 0.0:
        return None
    few, many = 1.0, _MANY / count
    if not below.times(many).is_above(0.0, alpha):
        return None
    while many / few > 1.01:
        middle = (few * many) ** 0.5
        few, many = (few, middle) if below.times(middle).is_above(0.0, alpha) else (middle, many)
    return max(1, round(count * (many - 1.0)))


class ConfidenceSequence:
    """A mean, value by value: O(1) each.

    Args:
        low: the least that the mean can be: -1 of a difference, 0 of a loss.
        high: the most that it can be.

    Attributes:
        count: how many values.
        below: sums for the lower bound.
        above: sums for the upper bound.

    Examples:
        >>> served = ConfidenceSequence(low=0.0)
        >>> served.extend(np.full(1000, 0.5))
        >>> [round(float(bound), 2) for bound in served.bounds(0.05)]
        [0.49, 0.51]
    """

    __slots__ = ("_high", "_low", "above", "below", "count")

    def __init__(self, low: float = -1.0, high: float = 1.0) -> None:
        self._low, self._high = low, high
        self.count = 0
        self.below = Side()
        self.above = Side()

    def add(self, value: float, least: float | None = None, most: float | None = None) -> None:
        """Take one value.

        Args:
            value: in [least, most]; nobody checks that.
            least: what it could have been at least, known before it came; None = the mean's `low`. Below `high`.
            most: what it could have been at most, likewise; None = the mean's `high`. Above `low`.
        """
        low, high, count = self._low, self._high, self.count
        self.below = _plus(self.below, value, count, low, high, low if least is None else least)
        self.above = _plus(self.above, -value, count, -high, -low, -high if most is None else -most)
        self.count = count + 1

    def extend(self, values: Floats, units: Numbers | None = None) -> None:
        """Take many values (n,) within the range of the mean, in order; the same as `add` for each.

        Args:
            values: (n,)
            units: (n,) whose value each is, numbered from 0: the mean of a unit is one value; None = each is its own.

        Raises:
            EstimateError: one lies outside of it.
        """
        values = averaged(values, units)
        self._extend(values, values, self._low, self._high)

    def weigh(
        self,
        weights: Floats,
        rewards: Floats,
        mean_weight: float = 1.0,
        most_negative: float = 0.0,
        units: Numbers | None = None,
    ) -> None:
        """Take many rewards, in order: the mean of weight times reward is bounded, however large weights are.

        The upper bound is that of weight * (reward - 1) + mean_weight, which has the same mean.

        Args:
            weights: (n,)
            rewards: (n,) in [0, 1]; losses will do.
            mean_weight: what weights average to: 1 for one policy, 0 for the difference of two policies' weights.
            most_negative: how far a weight may fall below 0: 0 for one policy, for a difference the largest weight of
                the policy that is subtracted (1 where it is the one that served).
            units: as of `extend`.

        Raises:
            EstimateError: a reward is not in [0, 1], or a weight below -most_negative.
        """
        if len(rewards) and not (rewards.min() >= 0.0 and rewards.max() <= 1.0):
            raise EstimateError("rewards lie in [0, 1]; scale them by their true range, not by what was seen")
        if len(weights) and not weights.min() >= -most_negative - _ROUNDING:
            raise EstimateError(f"weight {weights.min()} is below -{most_negative:g}; raise most_negative")
        values = weights * rewards
        upper = averaged(values - weights + mean_weight, units)
        self._extend(averaged(values, units), upper, -most_negative, mean_weight + most_negative)

    def pair(self, weights: Floats, rewards: Floats, others: Floats, units: Numbers | None = None) -> None:
        """Take differences in order, weight times reward less another reward: bounded however large weights are.

        The upper bound is that of weight * (reward - 1) + 1 - other. Its mean is the same where weights average to 1.

        Args:
            weights: (n,) 0 at least.
            rewards: (n,) in [0, 1].
            others: (n,) in [0, 1].
            units: as of `extend`.

        Raises:
            EstimateError: a reward is not in [0, 1], or a weight below 0.
        """
        values = weights * rewards - others
        self._extend(averaged(values, units), averaged(values - weights + 1.0, units), -1.0, 1.0)

    def _extend(self, values: Floats, others: Floats, least: float, most: float) -> None:
        if not len(values):
            return
        if not (values.min() >= least - _ROUNDING and others.max() <= most + _ROUNDING):
            raise EstimateError(f"values lie in [{least:g}, {most:g}], not in [{values.min():g}, {others.max():g}]")
        low, high, count = self._low, self._high, self.count
        self.below = _plus_many(self.below, values, count, low, high, least)
        self.above = _plus_many(self.above, -others, count, -high, -low, -most)
        self.count = count + len(values)

    @property
    def mean(self) -> float:
        """The mean of the values, which lies between the bounds; before the first the middle of what it can be."""
        return self.below.total / self.count if self.count else (self._low + self._high) / 2.0

    def bounds(self, alpha: float) -> tuple[float, float]:
        """Return both bounds, right at all times at once with probability 1 - alpha."""
        return bounds(self.below, self.above, alpha, self._low, self._high)


def _plus(side: Side, value: float, count: int, low: float, high: float, least: float) -> Side:
    """Add one value. One in the middle of [low, high] comes before the first: so the centre lies within."""
    total, scaled, rates, squares = side
    centre = min(high, max(low, (total + (low + high) / 2.0) / (count + 1.0)))
    rate = 1.0 / (high - least)
    off = (value - centre) * rate
    return Side(total + value, scaled + value * rate, rates + rate, squares + off * off)


def _plus_many(side: Side, values: Floats, count: int, low: float, high: float, least: float) -> Side:
    """Add values (n,); each is compared with the centre of those before it."""
    totals = side.total + np.concatenate([[0.0], np.cumsum(values)])
    centres = np.clip((totals[:-1] + (low + high) / 2.0) / (count + 1.0 + np.arange(len(values))), low, high)
    rate = 1.0 / (high - least)
    off = (values - centres) * rate
    total = float(totals[-1])
    scaled = side.scaled + (total - side.total) * rate
    return Side(total, scaled, side.rates + len(values) * rate, side.squares + float(off @ off))
