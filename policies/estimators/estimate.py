"""From contributions of rows to an estimate: the value, its standard error, and an interval by bootstrap."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies.estimators.log import summed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.estimators.log import Floats, Numbers

LEAST_EFFECTIVE = 200.0  # below it the largest weights decide: intervals of 95 % cover clearly less
# Rows are summed into at most so many groups before they are drawn again and again: to first order the distribution of
# the mean stays as it is, and a million rows cost no more than two thousand.
_GROUPS = 2_000
_RESAMPLES = 1_000


class Contributions(NamedTuple):
    """What each row adds; the estimate is the sum of the numerators over that of the denominators.

    Attributes:
        numerators: (n,)
        denominators: (n,); ones where the estimate is a plain mean.
        weights: (n,) what the row's loss weighs, before anything was cut or shrunk.
        influences: (n,) of the same sum as the numerators, and of the spread that the estimate has where a model was
            fitted to the same rows; None = the numerators are.
    """

    numerators: Floats
    denominators: Floats
    weights: Floats
    influences: Floats | None = None

    @property
    def spread(self) -> Floats:
        """(n,) what errors and intervals follow from."""
        return self.numerators if self.influences is None else self.influences

    def counted(self, parts: Floats | None) -> Contributions:
        """Return them with each row counting its part: numerators and denominators alike, so the estimate is a mean."""
        if parts is None:
            return self
        influences = None if self.influences is None else self.influences * parts
        return Contributions(self.numerators * parts, self.denominators * parts, self.weights * parts, influences)

    def gathered(self, units: Numbers | None) -> Contributions:
        """Return them with the rows of a unit as one: the estimate stays, and what is not independent is one part."""
        if units is None:
            return self
        numerators, denominators, weights = [summed(each, units) for each in self[:3]]
        influences = None if self.influences is None else summed(self.influences, units)
        return Contributions(numerators, denominators, weights, influences)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a policy would have cost, in the unit of the losses.

    Attributes:
        name: of the estimator.
        value: the mean loss.
        error: its standard error, by the delta method.
        low: lower end of the interval.
        high: upper end of it.
        effective: effective sample size, (sum w)^2 / sum w^2.
        largest: the largest weight.
        unsupported: share of the policy's decisions of which the log can know nothing.
        rows: decisions that were used.
        note: what was chosen by the data, such as the clip; empty = nothing.
    """

    name: str
    value: float
    error: float
    low: float
    high: float
    effective: float
    largest: float
    unsupported: float
    rows: int
    note: str = ""


def ratio(rows: Contributions) -> tuple[float, float]:
    """Return the estimate and its standard error (delta method; 0 of a single row)."""
    count, denominator = len(rows.numerators), float(rows.denominators.sum())
    if denominator <= 0.0:
        return float("nan"), float("inf")
    value = float(rows.numerators.sum()) / denominator
    if count < 2:
        return value, float("inf")
    deviations = rows.spread - value * rows.denominators
    return value, sqrt(float(deviations @ deviations) * count / (count - 1.0)) / denominator


def resampled(rows: Sequence[Contributions], alpha: float, seed: int) -> list[tuple[float, float]]:
    """Return percentile bootstrap intervals of level 1 - alpha, of all estimators on the same resamples.

    Args:
        rows: of estimators of one log, each of the same number of rows.
        alpha: what the interval may miss, in (0, 1).
        seed: equal seeds give equal intervals.
    """
    count = min(len(rows[0].numerators), _GROUPS)
    sums = np.stack(
        [_grouped(part, count) for each in rows for part in (each.spread, each.denominators)]
    )  # (2 estimators, groups)
    random = np.random.default_rng(seed)
    drawn = random.integers(0, count, (_RESAMPLES, count))
    times = np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float64)
    totals = sums @ times.T
    with np.errstate(divide="ignore", invalid="ignore"):
        values = totals[0::2] / totals[1::2]
    ends = np.nanquantile(values, (alpha / 2.0, 1.0 - alpha / 2.0), axis=1)
    return [(float(low), float(high)) for low, high in ends.T]


def _grouped(values: Floats, count: int) -> Floats:
    """Sum values (n,) into groups, each of rows far apart: neighbours in time end in different groups."""
    if len(values) == count:
        return values
    padded = np.zeros(-(-len(values) // count) * count)
    padded[: len(values)] = values
    return np.asarray(padded.reshape(-1, count).sum(axis=0))
