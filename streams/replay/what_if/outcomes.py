"""What came of a trace's queries, by the query's number, and what a change adds to the error: query by query."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from policies.estimators.sequence import ConfidenceSequence
from schemas.records import Prediction, Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.int64]

BINS: Final = 48  # of the error over time
_UNANSWERED: Final = np.iinfo(np.int64).min


@dataclass(slots=True)
class QueryOutcomes:
    """What came of the queries: an entry for each, 29 bytes (a million queries are compared in three columns).

    Attributes:
        losses: of the served answers that feedback tells; nan = it does not.
        prices: what these cost, in the unit of the loss; below 0 = it has none, or feedback does not tell.
        took_us: from when it was sent until the answer.
        defaults: 1 = it was answered by default.
        asked: which models were, as a place in `groups`.
        groups: models that were asked together.
    """

    losses: array[float]
    prices: array[float]
    took_us: array[int]
    defaults: bytearray
    asked: array[int]
    groups: list[tuple[str, ...]] = field(default_factory=list)
    _places: dict[tuple[str, ...], int] = field(default_factory=dict)

    @classmethod
    def of(cls, queries: int) -> QueryOutcomes:
        """Return what is known of so many queries before any is answered."""
        return cls(
            array("d", [nan]) * queries,
            array("d", [-1.0]) * queries,
            array("q", [_UNANSWERED]) * queries,
            bytearray(queries),
            array("i", [0]) * queries,
        )

    def add(self) -> None:
        """Make room for one more query."""
        self.losses.append(nan)
        self.prices.append(-1.0)
        self.took_us.append(_UNANSWERED)
        self.defaults.append(0)
        self.asked.append(0)

    def predicted(self, number: int, prediction: Prediction) -> None:
        """Note an answer; of a query's the first counts."""
        if self.took_us[number] != _UNANSWERED:
            return
        self.took_us[number] = prediction.answered_us - prediction.sent_us
        if prediction.status is Status.DEFAULT:
            self.defaults[number] = 1
        decision = prediction.decision
        models = () if decision is None else tuple([decision.arms[arm] for arm in decision.chosen])
        place = self._places.get(models)
        if place is None:
            place = self._places[models] = len(self.groups)
            self.groups.append(models)
        self.asked[number] = place

    def observed(self, number: int, loss: float | None, worth: float | None) -> None:
        """Note an answer's loss and what a loss of 1 costs; of a query's observations the first counts."""
        if loss is not None and self.losses[number] != self.losses[number]:
            self.losses[number], self.prices[number] = loss, -1.0 if worth is None else loss * worth

    def answered(self) -> NDArray[np.bool_]:
        """Return which queries were answered."""
        return np.asarray(np.frombuffer(self.took_us, np.int64) != _UNANSWERED)

    def costs(self, order: Numbers) -> NDArray[np.float64]:
        """Return the losses of these queries, nan where none is known."""
        return np.frombuffer(self.losses, np.float64)[order]

    def models_of(self, number: int) -> tuple[str, ...]:
        """Return the models that a query has asked."""
        return self.groups[self.asked[number]]

    def figures(self, order: Numbers) -> dict[str, Any]:
        """Return error, cost of 1,000, defaults, latency and the share of each model, of these queries."""
        losses = self.costs(order)
        known = losses[~np.isnan(losses)]
        prices = np.frombuffer(self.prices, np.float64)[order]
        priced = prices[prices >= 0.0]
        took = np.frombuffer(self.took_us, np.int64)[order] if len(order) else np.zeros(1, np.int64)
        return {
            "answered": len(order),
            "judged": len(known),
            "error": float(known.mean()) if len(known) else None,
            "cost": float(priced.mean()) * 1_000 if len(priced) else None,
            "defaults": float(np.frombuffer(self.defaults, np.uint8)[order].mean()) if len(order) else 0.0,
            "p50_ms": float(np.quantile(took, 0.5)) / 1e3,
            "p99_ms": float(np.quantile(took, 0.99)) / 1e3,
            "shares": self._shares(order),
        }

    def curve(self, order: Numbers) -> list[float | None]:
        """Return the mean loss in each of `BINS` parts of the queries, None where nothing is known."""
        parts = np.array_split(self.costs(order), BINS)
        return [float(part[~np.isnan(part)].mean()) if (~np.isnan(part)).any() else None for part in parts]

    def _shares(self, order: Numbers) -> dict[str, float]:
        found: Counter[str] = Counter()
        counts = np.bincount(np.frombuffer(self.asked, np.int32)[order], minlength=len(self.groups))
        for models, count in zip(self.groups, counts.tolist(), strict=False):
            for model in models:
                found[model] += count
        return {model: count / max(1, len(order)) for model, count in sorted(found.items()) if count}


ALPHA: Final = 0.05


class DifferenceMoment(NamedTuple):
    """What the queries so far say of the difference.

    Attributes:
        queries: that feedback tells in both columns.
        mean: of changed loss - unchanged loss.
        low, high: the interval, of 95 %.
    """

    queries: int
    mean: float
    low: float
    high: float


def difference(unchanged: QueryOutcomes, changed: QueryOutcomes, order: Numbers) -> tuple[DifferenceMoment, ...]:
    """Return what the queries say of the difference of errors, after each of `BINS` parts of them.

    The last moment is that of all queries; there is none if no query is told in both columns. The bounds hold at all
    moments at once, and for policies that learn (`ConfidenceSequence`); losses lie in [0, 1].
    """
    added = changed.costs(order) - unchanged.costs(order)
    sequence, found = ConfidenceSequence(), []
    for part in np.array_split(added, BINS):
        known = part[~np.isnan(part)]
        if len(known):
            sequence.extend(known)
            found.append(DifferenceMoment(sequence.count, sequence.mean, *sequence.bounds(ALPHA)))
    return tuple(found)
