"""How a candidate compares with its incumbent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from policies.estimators.sequence import Side, bounds, missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Measurement, Observation


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known at one moment. Losses lie in [0, 1]; a positive difference says that the candidate is better.

    Attributes:
        pairs: comparisons.
        effective: as many of equal weight would tell as much.
        difference: mean loss of the incumbent less that of the candidate.
        lower: bound of it; both hold at all times at once with confidence 1 - alpha.
        upper: likewise.
        candidate_loss: mean over what the candidate answered, or would have, by weight: the sum of w loss over that of
            w; None = nothing is known. Where feedback has weights, difference and bounds are those of w times the
            difference, which have its sign: they hold at all times at once, where a ratio of sums would not.
        incumbent_loss: likewise.
        cost: errors that the candidate has cost so far, more than the incumbent would have; of its own answers alone.
            An estimate, which goes up and down by chance: at a large share few answers of the incumbent stand against
            many of its own.
        missing: about how many more comparisons like these would put `lower` above 0; None = none would.
        answers: that the candidate gave, or owed, of those compared; none as a shadow or an apprentice.
        left_out: queries of which nothing can be told, beside the comparisons.
        is_spent: whether all who ask have been counted, see `persons`: it grows no more until they are drawn anew.
        waiting: draws of people whose hour has not ended: they count when it has.
    """

    pairs: int = 0
    effective: float = 0.0
    difference: float = 0.0
    lower: float = -1.0
    upper: float = 1.0
    candidate_loss: float | None = None
    incumbent_loss: float | None = None
    cost: float = 0.0
    missing: int | None = None
    answers: float = 0.0
    left_out: int = 0
    is_spent: bool = False
    waiting: int = 0

    @property
    def least_cost(self) -> float:
        """Errors that it has cost at least, as surely as `upper` holds: at all times at once."""
        return self.answers * max(0.0, -self.upper)

    def of_all(self) -> Evidence:
        """Return it with bounds that hold whatever the queries that were left out would have told."""
        left, known, either = self.left_out, self.pairs, self.pairs + self.left_out
        if not left:
            return self
        lower, upper = (known * self.lower - left) / either, (known * self.upper + left) / either
        return replace(
            self, lower=lower, upper=upper, missing=self.missing if lower > 0.0 or not self.is_better else None
        )

    @property
    def is_better(self) -> bool:
        """Whether the candidate is better, at the confidence asked for."""
        return self.lower > 0.0


class Totals(NamedTuple):
    """Everything that evidence is made of; totals of several applications add up to those of all."""

    pairs: int = 0
    below: Side = Side()
    above: Side = Side()
    weight: float = 0.0  # sum of the weights
    weight_squares: float = 0.0  # and of their squares
    candidate: float = 0.0  # loss, summed
    candidates: float = 0.0  # what the losses count together
    incumbent: float = 0.0
    incumbents: float = 0.0
    cost: float = 0.0
    answers: float = 0.0
    left_out: float = 0.0

    def plus(self, other: Totals) -> Totals:
        """Return the totals of both."""
        mine, its = self._numbers, other._numbers
        added = [one + another for one, another in zip(mine, its, strict=True)]
        return Totals(self.pairs + other.pairs, self.below.plus(other.below), self.above.plus(other.above), *added)

    @property
    def _numbers(self) -> tuple[float, ...]:
        return self[3:]

    def evidence(self, alpha: float) -> Evidence:
        """Return the evidence with bounds at confidence 1 - alpha."""
        lower, upper = bounds(self.below, self.above, alpha)
        return Evidence(
            pairs=self.pairs,
            effective=self.weight**2 / self.weight_squares if self.weight_squares else 0.0,
            difference=self.below.total / self.pairs if self.pairs else 0.0,
            lower=lower,
            upper=upper,
            candidate_loss=self.candidate / self.candidates if self.candidates else None,
            incumbent_loss=self.incumbent / self.incumbents if self.incumbents else None,
            cost=self.cost,
            missing=0 if lower > 0.0 else missing(self.below, self.pairs, alpha),
            answers=self.answers,
            left_out=int(self.left_out),
        )


class Comparison(Protocol):
    """A fold of observations into evidence."""

    @property
    def applications(self) -> tuple[str, ...]:
        """Whose losses are compared."""
        ...

    def take(self, seen: Observation, timestamp_us: int) -> None:
        """Fold one observation; each is taken once, and those of a partition in its order.

        Args:
            seen: the observation.
            timestamp_us: its record's.
        """
        ...

    def until(self, now_us: int) -> None:
        """Count whose hour has ended by a time (`persons`): behind the last record nothing else closes them."""
        ...

    def evidence(self, alpha: float) -> Evidence:
        """Return what is known, at confidence 1 - alpha."""
        ...

    def measure(self, seen: Measurement, timestamp_us: int) -> None:
        """Fold what metrics came to on one query; each value is taken once."""
        ...

    def measured(self, alpha: float) -> Sequence[Evidence]:
        """Return what is known by each metric of the plan, in their order."""
        ...
