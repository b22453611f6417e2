"""What a candidate would have come to by each metric of an application, beside what was served, in the metric's unit.

A metric is known of what was asked alone. So decisions that asked one model count, weighted by how likely the candidate
would have asked it: the mean by inverse propensities, and the paired difference, with bounds that hold at all times.
Nothing is said of a candidate that would ask what was never asked. What was decided for contexts that are held out of
the policy, and queries that the joiner had to forget, do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies.estimators.log import averaged
from policies.estimators.sequence import ConfidenceSequence
from policies.metrics import width
from schemas.records import JoinStatus, Observation
from streams.evaluation.arrays import draws
from streams.evaluation.evaluation import MOST_UNKNOWN
from streams.evaluation.items import are_of_items
from streams.evaluation.several import Several
from streams.topology import is_held_out

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from numpy.typing import NDArray

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
        unsupported: share of the candidate's decisions of which the log can know nothing.
        candidate: what the candidate's mean would have been; None = too much is not known, nor the next three.
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
    unsupported: float
    candidate: float | None
    difference: float | None
    low: float | None
    high: float | None
    unit: str
    guardrail: float | None
    is_higher_better: bool

    @property
    def verdict(self) -> str:
        """What its guardrail says; empty = it has none."""
        if self.guardrail is None:
            return ""
        if self.low is None or self.high is None:
            return "not known"
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
    forgotten = {seen.query_id for seen in history.measurements if not seen.values}
    known = [seen for seen in history.measurements if _is_known(seen, end_us, forgotten)]
    if not history.metrics or not known or isinstance(candidate, Several):
        return ()
    decisions = sorted({seen.query_id: _decision(seen) for seen in reversed(known)}.values(), key=_time)
    if are_of_items(decisions) if candidate.is_of_items is None else candidate.is_of_items:
        return ()
    arms = tuple(dict.fromkeys(arm for seen in decisions for arm in seen.decision.arms))
    target = candidate.propensities(decisions, history.observations, arms)
    rows = {seen.query_id: row for row, seen in enumerate(decisions)}
    logged = np.array([_logged(seen, arms) for seen in decisions])
    chosen = [arms.index(seen.decision.arms[seen.decision.chosen[0]]) for seen in decisions]
    asked = _AskedShares(rows, target, logged, np.array(chosen), decisions)
    found = [_judged(metric, known, asked, alpha) for metric in history.metrics]
    return tuple([one for one in found if one is not None])


def _decision(seen: Measurement) -> Observation:
    """Return a decision as an observation of which no loss is known."""
    unknown = (None,) * len(seen.decision.arms)
    who = seen.query_id, seen.application, seen.context
    when = seen.predicted_us, seen.measured_us
    its = Observation(*who, seen.decision, unknown, None, None, JoinStatus.JOINED, *when)
    return its._replace(drawn=seen.drawn, episode=seen.episode)


def _time(seen: Observation) -> int:
    return seen.predicted_us


def _is_known(seen: Measurement, end_us: int, forgotten: Container[str]) -> bool:
    decision = seen.decision
    is_whole = bool(seen.values) and not (seen.final_us and seen.query_id in forgotten)
    return is_whole and len(decision.chosen) == 1 and seen.predicted_us <= end_us and not is_held_out(decision.state)


def _logged(seen: Observation, arms: Sequence[str]) -> list[float]:
    """Return how likely each arm was to be asked."""
    its = dict(zip(seen.decision.arms, seen.decision.propensities, strict=True))
    return [its.get(arm, 0.0) for arm in arms]


class _AskedShares(NamedTuple):
    """What was asked, and what would have been, a row a decision: `rows` by query, the others a column an arm."""

    rows: dict[str, int]
    target: Floats
    logged: Floats
    chosen: NDArray[np.int64]
    decisions: Sequence[Observation]

    def weights(self, order: Sequence[int]) -> Floats:
        """Return how much more likely the candidate would have asked what was asked."""
        places = np.array(order), self.chosen[order]
        target, logged = self.target[places], self.logged[places]
        return np.where(logged > _ROUNDED, target / np.maximum(logged, _ROUNDED), 0.0)

    def unsupported(self, order: Sequence[int]) -> float:
        """Return the share of what the candidate would have asked that was never asked."""
        return float(self.target[order][self.logged[order] <= _ROUNDED].sum()) / len(order)


def _judged(metric: Metric, known: Sequence[Measurement], asked: _AskedShares, alpha: float) -> MetricJudgement | None:
    """Compare by one metric, the first value of each query; None where nothing is known."""
    losses: dict[int, float] = {}
    for seen in known:
        for value in seen.values:
            if value.metric == metric.name:
                losses.setdefault(asked.rows[seen.query_id], value.loss)
    if not losses:
        return None
    order = sorted(losses)
    own, paid = asked.weights(order), np.array([losses[row] for row in order])
    charged, difference = ConfidenceSequence(low=0.0), ConfidenceSequence()
    units = draws([asked.decisions[row] for row in order])
    charged.weigh(own, paid, units=units)
    difference.weigh(own - 1.0, paid, mean_weight=0.0, most_negative=1.0, units=units)
    scale, sign = width(metric), -1.0 if metric.is_higher_better else 1.0
    low, high = sorted([sign * scale * end for end in difference.bounds(alpha)])
    base = metric.most if metric.is_higher_better else metric.least
    served, would = [base + sign * scale * mean for mean in (float(averaged(paid, units).mean()), charged.mean)]
    how = metric.unit, metric.guardrail, metric.is_higher_better
    unsupported = asked.unsupported(order)
    about = metric.name, len(order), served, unsupported
    if unsupported > MOST_UNKNOWN:
        return MetricJudgement(*about, None, None, None, None, *how)
    return MetricJudgement(*about, would, sign * scale * difference.mean, low, high, *how)
