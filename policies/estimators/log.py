"""A log of decisions as arrays: what was asked with which probability, what it cost, what another policy would do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from policies.estimators.errors import EstimateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"
Numbers: TypeAlias = "NDArray[np.intp]"

_SUM_TOLERANCE = 1e-6  # propensities of a quadrature add up to 1 so closely


class Seen(NamedTuple):
    """The known losses in a row: where each stands, and what it weighs.

    Attributes:
        rows: (m,) its decision, rising.
        arms: (m,) its arm.
        losses: (m,)
        ratios: (m,) target over logged propensity.
        decisions: how many there are.
        one_a_row: whether every decision has exactly one.
    """

    rows: NDArray[np.intp]
    arms: NDArray[np.intp]
    losses: Floats
    ratios: Floats
    decisions: int
    one_a_row: bool

    def by_row(self, values: Floats) -> Floats:
        """Sum values (m,) by decision: (n,)."""
        if self.one_a_row:
            return values
        return np.bincount(self.rows, weights=values, minlength=self.decisions).astype(np.float64, copy=False)

    def by_arm(self, values: Floats, arms: int) -> Floats:
        """Sum values (m,) by arm: (arms,)."""
        return np.bincount(self.arms, weights=values, minlength=arms).astype(np.float64, copy=False)


@dataclass(frozen=True)  # not slotted: what follows from the arrays is worked out once
class Log:
    """One row a decision, one column an arm. A loss is anything in [0, 1] whose mean is wanted; a reward will do.

    A row where one arm was asked has one known loss and the propensity of that arm. Where all arms were asked, all
    losses may be known, and all propensities are 1.

    Args:
        logged: (n, arms) probability that an arm was asked, as logged with the decision.
        target: (n, arms) probability that the policy in question would have asked it; each row sums to 1.
        losses: (n, arms) in [0, 1]; NaN where it is not known, as of arms that were not asked.
        expected: (n, arms) losses that a model expects, which must not have seen the row itself; None = no model.
        parts: (n,) what each decision counts, in (0, 1]; None = all alike. Means are sums of part times loss over sums
            of parts.
        units: (n,) whose decision each is, numbered as they first appear: those of one unit are no independent
            evidence; None = each is by itself.
        blind: the share of the target's decisions of which nothing is known, where rows do not show it; None = they do.

    Raises:
        EstimateError: the arrays do not fit each other, or hold what cannot be.
    """

    logged: Floats
    target: Floats
    losses: Floats
    expected: Floats | None = None
    parts: Floats | None = None
    blind: float | None = None
    units: Numbers | None = None

    def __post_init__(self) -> None:
        """Check shapes and ranges."""
        shape = self.losses.shape
        _check(len(shape) == 2 and shape[0] > 0 and shape[1] > 0, "a log needs at least one decision and one arm")
        others = (self.logged, self.target, self.losses if self.expected is None else self.expected)
        _check(all(each.shape == shape for each in others), "all arrays of a log have one row a decision")
        _check(_within(self.logged) and _within(self.target), "propensities lie in [0, 1]")
        _check(bool(np.all(np.abs(self.target.sum(axis=1) - 1.0) <= _SUM_TOLERANCE)), "target rows sum to 1")
        known = self.known
        if self.parts is not None:
            _check(self.parts.shape == shape[:1] and _within(self.parts), "each decision counts a part of one")
            _check(bool((self.parts > 0.0).all()), "each decision counts something")
        _check(_within(self.losses[known]), "losses lie in [0, 1]")
        _check(
            not bool((known & (self.logged <= 0.0)).any()),
            "an arm with a known loss was asked: its propensity is above 0",
        )

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n, arms) whether the loss is known."""
        return ~np.isnan(self.losses)

    @cached_property
    def seen(self) -> Seen:
        """The known losses."""
        rows, arms = np.nonzero(self.known)
        ratios = self.target[rows, arms] / self.logged[rows, arms]
        count = len(self.losses)
        one_a_row = len(rows) == count and bool((rows == np.arange(count)).all())
        return Seen(rows, arms, self.losses[rows, arms], ratios, count, one_a_row)

    @cached_property
    def weights(self) -> Floats:
        """(n,) what each decision's losses weigh together."""
        return self.seen.by_row(self.seen.ratios)

    @cached_property
    def costs(self) -> Floats:
        """(n,) weight times loss."""
        return self.seen.by_row(self.seen.ratios * self.seen.losses)

    @cached_property
    def modelled(self) -> Floats:
        """(n,) what the model expects of the target's decisions."""
        return np.asarray(np.einsum("na,na->n", self.target, self._model))

    @cached_property
    def residuals(self) -> Floats:
        """(m,) known losses less what the model expects."""
        return self.seen.losses - self._model[self.seen.rows, self.seen.arms]

    @property
    def _model(self) -> Floats:
        if self.expected is None:
            raise EstimateError("the log has no expected losses: fit a model of them first (`reward_model`)")
        return self.expected

    @cached_property
    def unsupported(self) -> float:
        """The share of the target's decisions that the logged policy never makes: nothing is known of them."""
        if self.blind is not None:
            return self.blind
        return float(self.target[self.logged <= 0.0].sum()) / len(self.target)


def summed(values: Floats, units: Numbers | None) -> Floats:
    """Sum values (n,) by unit (n,), numbered from 0; None = each is its own."""
    return values if units is None else np.bincount(units, weights=values).astype(np.float64, copy=False)


def averaged(values: Floats, units: Numbers | None) -> Floats:
    """Return the mean of the values (n,) of each unit, likewise."""
    return values if units is None else summed(values, units) / np.bincount(units)


def effective(weights: Floats) -> float:
    """Return the effective sample size (sum w)^2 / sum w^2 of weights (n,), 0 if all are 0."""
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0.0 else 0.0


def _within(values: Floats) -> bool:
    """Tell whether all lie in [0, 1]; NaN does not."""
    return values.size == 0 or bool(values.min() >= 0.0 and values.max() <= 1.0 + _SUM_TOLERANCE)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise EstimateError(message)
