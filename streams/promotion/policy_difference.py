"""What a policy that serves costs less what another one would, query by query, with bounds that hold at all times.

Where the serving policy asked one model, with propensity p, and the other would ask it with q, the other's loss is
estimated by w = q / p:

    difference = (1 - w) (loss - b),  b = mean loss so far

Its mean is that of the losses, as 1 - w has a mean of 0; b keeps it small. Where all models' losses are known, nothing
is estimated. A model that the serving policy never asks, but the other would, is taken to cost 1.

Source of the weights: Dudik, Langford and Li, Doubly robust policy evaluation and learning, ICML 2011.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.estimators.sequence import ConfidenceSequence
from streams.promotion.evidence import Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.promotion.evidence import Evidence

# Who is asked more seldom counts as never asked: squares of weights stay finite.
LEAST_SHARE: Final = 1e-100


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
        self, served: float, losses: Sequence[float | None], wanted: Sequence[float], part: float = 1.0
    ) -> None:
        """Compare where all models were asked; if none has anything to tell, whoever is asked would cost the same.

        Args:
            served: loss of what was served, times its part of a full lesson, as all losses here.
            losses: by model.
            wanted: how likely the other policy would ask each.
            part: the part.
        """
        known = [(q, loss) for q, loss in zip(wanted, losses, strict=True) if q]
        if any(loss is None for _, loss in known) and any(loss is not None for loss in losses):
            self._left_out += 1
            return
        self._parts += part
        own = sum(q * (served if loss is None else loss) for q, loss in known)
        self._add(served - own, -1.0, 1.0, 1.0, served, own)

    def estimate(
        self, arm: int, loss: float, wanted: Sequence[float], logged: Sequence[float], part: float = 1.0
    ) -> None:
        """Compare where one model was asked, by how likely either would have asked it; of `part` as `compare`."""
        if logged[arm] < LEAST_SHARE:
            self._left_out += 1
            return
        self._parts += part
        base = self._loss / self._difference.count if self._difference.count else 0.5
        unsupported = sum(q for q, p in zip(wanted, logged, strict=True) if p < LEAST_SHARE) * (1.0 - base)
        weights = [q / p for q, p in zip(wanted, logged, strict=True) if p >= LEAST_SHARE]
        ends = [(1.0 - w) * (end - base) for w in weights for end in (0.0, 1.0)]
        weight = wanted[arm] / logged[arm]
        value = (1.0 - weight) * (loss - base) - unsupported
        least, most = min(ends) - unsupported, max(ends) - unsupported
        self._add(value, min(least, 0.0), max(most, 0.0), weight, loss, loss - value)

    def _add(self, value: float, least: float, most: float, weight: float, loss: float, own: float) -> None:
        self._difference.add(value, least, most)
        self._weights += weight
        self._weight_squares += weight * weight
        self._loss += loss
        self._own_loss += own

    def evidence(self, alpha: float) -> Evidence:
        """Return what is known, at confidence 1 - alpha."""
        found = self._difference
        count = found.count
        weights = self._weights, self._weight_squares
        losses = self._own_loss, self._parts, self._loss, self._parts
        return (
            Totals(count, found.below, found.above, *weights, *losses, left_out=self._left_out).evidence(alpha).of_all()
        )
