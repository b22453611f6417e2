"""Confidence sequences: intervals that hold at every moment, however often one looks and whenever one stops.

For rewards r in [0, 1] weighed by w with E[w] = 1 (one policy's value), or by the difference of two policies' weights
with E[w] = 0 (the paired difference of their values). Weights may be large; nothing is assumed about how the log's
policy learnt meanwhile. With m the most that a weight may fall below 0:

    X = (w r + m) / (1 + m),  X^ = (sum X + 1/2) / (t + 1) before it,  V = sum (X - X^)^2
    logwealth(s, v) = s + v + rho ln rho - (v + rho) ln(s + v + rho) + ln g(v + rho, s + v + rho) - ln g(rho, rho)
    lower bound of X's mean: the root in mu of logwealth(sum X - t mu, V) = ln(2 / alpha); g = lower incomplete gamma

The upper bound is the same of 1 - r, because E[w] is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammainc, gammaln

from policies.estimators.errors import EstimateError

if TYPE_CHECKING:
    from policies.estimators.log import Floats

_RHO = 1.0  # of the gamma mixture: the variance sum at which the bound is tightest
_ROUNDING = 1e-9


class Side(NamedTuple):
    """Running sums of one bound: of X, and of (X - X^)^2."""

    total: float = 0.0
    spread: float = 0.0


_NOTHING = Side()


class Sums(NamedTuple):
    """All that a sequence remembers: how many were added, and the sums of both bounds."""

    rewards: int = 0
    low: Side = _NOTHING
    high: Side = _NOTHING


_EMPTY = Sums()


@dataclass(frozen=True, slots=True)
class ConfidenceSequence:
    """An interval for a mean reward, right at all times at once with probability 1 - alpha; a value: `add` returns it.

    Args:
        alpha: how often the true value may ever lie outside, in (0, 1); half of it a side.
        most_negative: how far a weight may fall below 0: 0 for one policy, for a difference the largest weight of the
            policy that is subtracted (1 where it is the one that served).
        mean_weight: what weights average to: 1 for one policy, 0 for a difference.
        sums: what has been added so far.

    Examples:
        >>> served = ConfidenceSequence().extend(np.ones(1000), np.ones(1000) * 0.5)
        >>> round(served.lower(), 2), round(served.upper(), 2)
        (0.49, 0.51)

    References:
        Karampatziakis, Mineiro and Ramdas, Off-policy confidence sequences, ICML 2021; Howard, Ramdas, McAuliffe and
        Sekhon, Time-uniform, nonparametric, nonasymptotic confidence sequences, Ann. Stat. 49 (2021) (gamma mixture).
    """

    alpha: float = 0.05
    most_negative: float = 0.0
    mean_weight: float = 1.0
    sums: Sums = _EMPTY

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 0.0 < self.alpha < 1.0:
            raise EstimateError(f"alpha is {self.alpha}; it must lie in (0, 1), 0.05 is usual")
        if not self.most_negative >= 0.0:
            raise EstimateError(f"most_negative is {self.most_negative}; it must be at least 0")

    @classmethod
    def of_difference(cls, alpha: float = 0.05, largest_subtracted: float = 1.0) -> ConfidenceSequence:
        """Return the sequence of a paired difference, whose weights are candidate weight - incumbent weight.

        Args:
            alpha: as above.
            largest_subtracted: the largest weight that the incumbent may have: 1 where it decided itself.
        """
        return cls(alpha, largest_subtracted, 0.0)

    @property
    def count(self) -> int:
        """How many rewards were added."""
        return self.sums.rewards

    def add(self, weight: float, reward: float) -> ConfidenceSequence:
        """Return the sequence after one more reward in [0, 1].

        Raises:
            EstimateError: the reward is not in [0, 1], or the weight below -most_negative.
        """
        return self.extend(np.array([weight]), np.array([reward]))

    def extend(self, weights: Floats, rewards: Floats) -> ConfidenceSequence:
        """Return the sequence after many more, in order; the same as `add` for each."""
        if not len(weights):
            return self
        if not (rewards.min() >= 0.0 and rewards.max() <= 1.0):
            raise EstimateError("rewards lie in [0, 1]; scale them by their true range, not by what was seen")
        if not weights.min() >= -self.most_negative - _ROUNDING:
            raise EstimateError(f"weight {weights.min()} is below -{self.most_negative:g}; raise most_negative")
        count, low, high = self.sums
        lows, highs = self._scaled(weights * rewards), self._scaled(weights * (1.0 - rewards))
        return replace(self, sums=Sums(count + len(weights), _after(low, count, lows), _after(high, count, highs)))

    def lower(self) -> float:
        """Return the lower bound of the mean reward, or of the difference."""
        return self._unscaled(_lower(self.sums.low, self.count, self.alpha / 2.0))

    def upper(self) -> float:
        """Return the upper bound."""
        return self.mean_weight - self._unscaled(_lower(self.sums.high, self.count, self.alpha / 2.0))

    def mean(self) -> float:
        """Return the estimate between the bounds: the mean of weight times reward; 0 before the first."""
        return self._unscaled(self.sums.low.total / self.count) if self.count else 0.0

    def _scaled(self, values: Floats) -> Floats:
        return np.asarray(np.maximum(values + self.most_negative, 0.0) / (1.0 + self.most_negative))

    def _unscaled(self, value: float) -> float:
        return value * (1.0 + self.most_negative) - self.most_negative


def _after(side: Side, count: int, values: Floats) -> Side:
    """Return the sums after more values of X; each is compared with what those before it predict."""
    totals = side.total + np.concatenate([[0.0], np.cumsum(values)])
    predicted = np.minimum((totals[:-1] + 0.5) / (count + 1.0 + np.arange(len(values))), 1.0)
    residuals = values - predicted
    return Side(float(totals[-1]), side.spread + float(residuals @ residuals))


def _lower(side: Side, count: int, alpha: float) -> float:
    """Return the lower bound of the mean of X, in [0, 1]."""
    if count == 0:
        return 0.0
    wanted = -log(alpha)

    def excess(mean: float) -> float:
        return _log_wealth(side.total - count * mean, side.spread) - wanted

    highest = min(1.0, side.total / count)
    if excess(0.0) <= 0.0:
        return 0.0
    if excess(highest) >= 0.0:
        return highest
    return float(brentq(excess, 0.0, highest))


def _log_wealth(gain: float, spread: float) -> float:
    """Return the log of what betting on a larger mean would have made of 1."""
    shape = spread + _RHO
    point = gain + shape
    return float(gain + spread + _RHO * log(_RHO) - shape * log(point) + _log_gamma(shape, point) - _AT_START)


def _log_gamma(shape: float, point: float) -> float:
    """Return the log of the lower incomplete gamma function, not normalised."""
    return log(gammainc(shape, point)) + float(gammaln(shape))


_AT_START = _log_gamma(_RHO, _RHO)
