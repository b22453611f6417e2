"""What a candidate would have come to by each metric of an application, beside what was served, in the metric's unit.

A metric is known of what was asked alone. So decisions that asked one model count, weighted by how likely the candidate
would have asked it: the mean by inverse propensities, and the paired difference, with bounds that hold at all times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies.estimators.sequence import ConfidenceSequence
from policies.metrics import width
from schemas.records import JoinStatus, Observation
from streams.evaluation.items import are_of_items
from streams.evaluation.several import Several

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.estimators.log import Floats
    from schemas.records import Measurement, Metric
    from streams.evaluation.candidate import JudgedPolicy
    from streams.evaluation.history import KnownApplication

_ROUNDED = 1e-12


class MetricJudgement(NamedTuple):
    """How a candidate compares by a metric, in its unit.

    Attributes:
        metric: name.
        decisions: of which it is known.
        served: mean of what was served.
        candidate: what the candidate's mean would have been.
        difference: candidate - served.
        low: bound of it, at all times at once.
        high: likewise.
        unit: of all of these.
        guardrail: how much worse it may get; None = any amount.
        is_higher_better: whether more is better.
    """

    metric: str
    decisions: int
    served: float
    candidate: float
    difference: float
    low: float
    high: float
    unit: str
    guardrail: float | None
    is_higher_better: bool

    @property
    def verdict(self) -> str:
        """What its guardrail says; empty = it has none."""
        if self.guardrail is None:
            return ""
        most, least = (-self.low, -self.high) if self.is_higher_better else (self.high, self.low)
        if most < self.guardrail:
            return "holds"
        return "broken" if least > self.guardrail else "not shown"


def metrics_of(
    history: KnownApplication, candidate: JudgedPolicy | Several, window_s: float, alpha: float = 0.05
) -> tuple[MetricJudgement, ...]:
    """Return how a candidate compares by each metric, of the decisions whose windows have ended.

    One that asks several models is not compared: decisions that asked one alone are not all of its kind. Nor is one
    that chooses among items: a measurement does not say which of them was answered.

    Args:
        history: of the application.
        candidate: the policy in question.
        window_s: how long feedback is waited for.
        alpha: what bounds may miss.

    Raises:
        EvaluationError: the candidate cannot be judged by this log.
    """
    end_us = history.until_us - int(window_s * 1e6)
    known = [seen for seen in history.measurements if len(seen.decision.chosen) == 1 and seen.predicted_us <= end_us]
    if not history.metrics or not known or isinstance(candidate, Several):
        return ()
    decisions = sorted({seen.query_id: _decision(seen) for seen in reversed(known)}.values(), key=_time)
    if are_of_items(decisions) if candidate.is_of_items is None else candidate.is_of_items:
        return ()
    arms = tuple(dict.fromkeys(arm for seen in decisions for arm in seen.decision.arms))
    target = candidate.propensities(decisions, history.observations, arms)
    rows = {seen.query_id: row for row, seen in enumerate(decisions)}
    weights = np.array([_weight(seen, target[row], arms) for row, seen in enumerate(decisions)])
    found = [_judged(metric, known, rows, weights, alpha) for metric in history.metrics]
    return tuple([one for one in found if one is not None])


def _decision(seen: Measurement) -> Observation:
    """Return a decision as an observation of which no loss is known."""
    unknown = (None,) * len(seen.decision.arms)
    who = seen.query_id, seen.application, seen.context
    return Observation(*who, seen.decision, unknown, None, None, JoinStatus.JOINED, seen.predicted_us, seen.measured_us)


def _time(seen: Observation) -> int:
    return seen.predicted_us


def _weight(seen: Observation, target: Floats, arms: Sequence[str]) -> float:
    decision, (arm,) = seen.decision, seen.decision.chosen
    logged = decision.propensities[arm]
    return float(target[arms.index(decision.arms[arm])]) / logged if logged > _ROUNDED else 0.0


def _judged(
    metric: Metric, known: Sequence[Measurement], rows: dict[str, int], weights: Floats, alpha: float
) -> MetricJudgement | None:
    """Compare by one metric, the first value of each query; None where nothing is known."""
    losses: dict[int, float] = {}
    for seen in known:
        for value in seen.values:
            if value.metric == metric.name:
                losses.setdefault(rows[seen.query_id], value.loss)
    if not losses:
        return None
    order = sorted(losses)
    own, paid = weights[order], np.array([losses[row] for row in order])
    charged, difference = ConfidenceSequence(low=0.0), ConfidenceSequence()
    charged.weigh(own, paid)
    difference.weigh(own - 1.0, paid, mean_weight=0.0, most_negative=1.0)
    scale, sign = width(metric), -1.0 if metric.is_higher_better else 1.0
    low, high = sorted([sign * scale * end for end in difference.bounds(alpha)])
    base = metric.most if metric.is_higher_better else metric.least
    served, would = [base + sign * scale * mean for mean in (float(paid.mean()), charged.mean)]
    how = metric.unit, metric.guardrail, metric.is_higher_better
    return MetricJudgement(metric.name, len(order), served, would, sign * scale * difference.mean, low, high, *how)
