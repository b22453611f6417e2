"""What a policy that serves costs less what another one would, query by query, with bounds that hold at all times.

Where the serving policy asked one model, with propensity p, and the other would ask it with q, the other's loss is
estimated by w = q / p:

    difference = (1 - w) (loss - b),  b = mean loss so far

Its mean is that of the losses, as 1 - w has a mean of 0; b keeps it small. Where all models' losses are known, nothing
is estimated. A model that the serving policy never asks, but the other would, is taken to cost 1.

Source of the weights: Dudik, Langford and Li, Doubly robust policy evaluation and learning, ICML 2011.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from policies.estimators.sequence import ConfidenceSequence
from streams.promotion.evidence import Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.promotion.evidence import Evidence

# Who is asked more seldom counts as never asked: squares of weights stay finite.
LEAST_SHARE: Final = 1e-100


class PolicyComparison(NamedTuple):
    """What one query tells: the difference of the losses, in [least, most], and what it is made of."""

    value: float
    least: float
    most: float
    weight: float
    loss: float
    own: float
    part: float


class UnitComparison:
    """The comparisons of one unit, see `persons`, as one: their mean, within the widest of their ranges."""

    __slots__ = ("_count", "_sums")

    def __init__(self) -> None:
        self._count = 0
        self._sums = PolicyComparison(0.0, inf, -inf, 0.0, 0.0, 0.0, 0.0)

    def add(self, found: PolicyComparison) -> None:
        """Take one more."""
        self._count += 1
        sums = [one + another for one, another in zip(self._sums, found, strict=True)]
        least, most = min(self._sums.least, found.least), max(self._sums.most, found.most)
        self._sums = PolicyComparison(*sums)._replace(least=least, most=most)

    @property
    def mean(self) -> PolicyComparison | None:
        """All together; None if there are none."""
        if not self._count:
            return None
        least, most = self._sums.least, self._sums.most
        return PolicyComparison(*[each / self._count for each in self._sums])._replace(least=least, most=most)


class PolicyDifference:
    """What the serving policy costs less what the apprentice would, query by query."""

    __slots__ = ("_difference", "_left_out", "_loss", "_own_loss", "_parts", "_weight_squares", "_weights")

    def __init__(self) -> None:
        self._difference = ConfidenceSequence()
        self._weights = self._weight_squares = self._loss = self._own_loss = 0.0
        self._parts = 0.0
        self._left_out = 0

    def leave_out(self) -> None:
        """Count a query of which nothing can be told."""
        self._left_out += 1

    def compare(
        self,
        served: float,
        losses: Sequence[float | None],
        wanted: Sequence[float],
        part: float = 1.0,
        unit: UnitComparison | None = None,
    ) -> None:
        """Compare where all models were asked; if none has anything to tell, whoever is asked would cost the same.

        Args:
            served: loss of what was served, times its part of a full lesson, as all losses here.
            losses: by model.
            wanted: how likely the other policy would ask each.
            part: the part.
            unit: gathers what is to count as one, see `persons`; None = the query counts by itself.
        """
        known = [(q, loss) for q, loss in zip(wanted, losses, strict=True) if q]
        if any(loss is None for _, loss in known) and any(loss is not None for loss in losses):
            self._left_out += 1
            return
        own = sum(q * (served if loss is None else loss) for q, loss in known)
        self._put(PolicyComparison(served - own, -1.0, 1.0, 1.0, served, own, part), unit)

    def estimate(
        self,
        arm: int,
        loss: float,
        wanted: Sequence[float],
        logged: Sequence[float],
        part: float = 1.0,
        unit: UnitComparison | None = None,
    ) -> None:
        """Compare where one model was asked, by how likely either would have asked it; the last two as in `compare`."""
        if logged[arm] < LEAST_SHARE:
            self._left_out += 1
            return
        base = self._loss / self._difference.count if self._difference.count else 0.5
        unsupported = sum(q for q, p in zip(wanted, logged, strict=True) if p < LEAST_SHARE) * (1.0 - base)
        weights = [q / p for q, p in zip(wanted, logged, strict=True) if p >= LEAST_SHARE]
        ends = [(1.0 - w) * (end - base) for w in weights for end in (0.0, 1.0)]
        weight = wanted[arm] / logged[arm]
        value = (1.0 - weight) * (loss - base) - unsupported
        least, most = min(ends) - unsupported, max(ends) - unsupported
        found = PolicyComparison(value, min(least, 0.0), max(most, 0.0), weight, loss, loss - value, part)
        self._put(found, unit)

    def add_unit(self, unit: UnitComparison) -> None:
        """Count what was gathered as one."""
        if (mean := unit.mean) is not None:
            self._put(mean, None)

    def _put(self, found: PolicyComparison, unit: UnitComparison | None) -> None:
        if unit is not None:
            unit.add(found)
            return
        self._difference.add(found.value, found.least, found.most)
        self._weights += found.weight
        self._weight_squares += found.weight * found.weight
        self._loss += found.loss
        self._own_loss += found.own
        self._parts += found.part

    def evidence(self, alpha: float) -> Evidence:
        """Return what is known, at confidence 1 - alpha."""
        found = self._difference
        count = found.count
        weights = self._weights, self._weight_squares
        losses = self._own_loss, self._parts, self._loss, self._parts
        return (
            Totals(count, found.below, found.above, *weights, *losses, left_out=self._left_out).evidence(alpha).of_all()
        )
