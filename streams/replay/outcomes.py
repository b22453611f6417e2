"""What came of a trace's queries: losses, latencies, defaults, and which models were asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from schemas.records import Observations, Prediction, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

BINS: Final = 48  # of the error over time


@dataclass(slots=True)
class Outcome:
    """What came of the queries.

    Attributes:
        losses: of the served answers that feedback tells, by query.
        latencies_us: of the answers, by query, from when it was sent.
        defaults: queries that were answered by default.
        asked: how often each model was.
        queries: in order, with their times.
    """

    losses: dict[str, float] = field(default_factory=dict)
    latencies_us: dict[str, int] = field(default_factory=dict)
    defaults: set[str] = field(default_factory=set)
    asked: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def only(self, ids: set[str]) -> Outcome:
        """Return what came of these queries."""
        return Outcome(
            {name: loss for name, loss in self.losses.items() if name in ids},
            {name: took for name, took in self.latencies_us.items() if name in ids},
            self.defaults & ids,
            {name: models for name, models in self.asked.items() if name in ids},
        )

    def figures(self) -> dict[str, Any]:
        """Return error, defaults, latency and the share of each model."""
        took = np.array([*self.latencies_us.values()] or [0])
        asked = Counter(model for models in self.asked.values() for model in models)
        return {
            "answered": len(self.latencies_us),
            "judged": len(self.losses),
            "error": float(np.mean([*self.losses.values()])) if self.losses else None,
            "defaults": len(self.defaults) / max(1, len(self.latencies_us)),
            "p50_ms": float(np.quantile(took, 0.5)) / 1e3,
            "p99_ms": float(np.quantile(took, 0.99)) / 1e3,
            "shares": {model: count / max(1, len(self.asked)) for model, count in sorted(asked.items())},
        }

    def curve(self, order: Sequence[str]) -> list[float | None]:
        """Return the mean loss in each of `BINS` parts of the queries, None where nothing is known."""
        parts = np.array_split(np.arange(len(order)), BINS)
        found = [[self.losses[order[at]] for at in part if order[at] in self.losses] for part in parts]
        return [float(np.mean(losses)) if losses else None for losses in found]


def note_prediction(found: Outcome, prediction: Prediction) -> None:
    """Note an answer; of a query's the first counts."""
    name = prediction.query_id
    if name in found.latencies_us:
        return
    found.latencies_us[name] = prediction.answered_us - prediction.sent_us
    if prediction.status is Status.DEFAULT:
        found.defaults.add(name)
    decision = prediction.decision
    found.asked[name] = () if decision is None else tuple([decision.arms[arm] for arm in decision.chosen])


def note_observations(found: Outcome, seen: Observations) -> None:
    """Note what answers cost; of a query's observations the first counts."""
    for one in seen.items:
        if one.loss is not None:
            found.losses.setdefault(one.query_id, one.loss)
