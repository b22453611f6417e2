"""Judges a candidate by a history: all estimators, a paired interval, how late feedback is, and one sentence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies.estimators.delays import Delays, delays
from policies.estimators.estimate import LEAST_EFFECTIVE, Estimate
from policies.estimators.log import Log, averaged, effective, summed
from policies.estimators.registry import estimate
from policies.estimators.sequence import ConfidenceSequence, missing
from schemas.records import JoinStatus
from streams.evaluation.arrays import as_log
from streams.evaluation.candidate import asks_several
from streams.evaluation.errors import EvaluationError
from streams.evaluation.history import seconds_late
from streams.evaluation.items import are_of_items, as_arms
from streams.operators.weighing import in_one_unit, scaled
from streams.topology import is_held_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.estimators.errors import EstimateError
    from policies.estimators.log import Floats
    from schemas.records import Observation
    from streams.evaluation.candidate import JudgedPolicy
    from streams.evaluation.history import KnownApplication
    from streams.evaluation.several import Several

_MINUTE_US = 60_000_000
_POINTS = 60  # of the course over time
MOST_UNKNOWN = 0.01  # share of a candidate's decisions of which nothing is known, above which nothing is recommended


class Interval(NamedTuple):
    """A mean and the bounds of its confidence sequence."""

    mean: float
    low: float
    high: float


class EvaluationMoment(NamedTuple):
    """How things stood after some decisions: the difference is candidate - served, of mean losses."""

    time_us: int
    decisions: int
    served: float
    candidate: float
    difference: Interval


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came of it. All means are of losses, weighted where decisions have weights: sums of w loss over sums of w.

    Attributes:
        application: whose decisions are judged.
        policy: the candidate.
        served_by: the policies that decided, the most frequent first.
        decisions: that were judged.
        left_out: decisions that cannot be judged, by reason.
        imputed: decisions that went by a source's running mean, by source.
        from_us: when the first decision was answered.
        until_us: when the last one was.
        served: what the decisions have cost.
        estimates: what the candidate would have cost, by estimator, or why that cannot be said.
        candidate: the same by inverse propensities, with bounds that hold at all times.
        difference: candidate - served, paired, with bounds that hold at all times.
        effective: effective sample size of the candidate's weights.
        unsupported: share of the candidate's decisions of which the log can know nothing.
        course: the difference over time.
        delays: how late feedback comes.
        window_s: how long it is waited for.
        alpha: what intervals may miss.
        recommendation: in one sentence.
        worth: what a loss of 1 costs in the unit; None = it is not known of all decisions.
        unit: of costs; empty = none was said.
        draws: of those who ask, where these draw: each is one value of the bounds, the mean of what its decisions cost,
            and one part of errors and samples; None = queries draw for themselves.
        matched: of a policy that asks several, the share of what it would do for which the log has the outputs.
    """

    application: str
    policy: str
    served_by: tuple[str, ...]
    decisions: int
    left_out: Mapping[str, int]
    from_us: int
    until_us: int
    served: Interval
    estimates: Mapping[str, Estimate | EstimateError]
    candidate: Interval
    difference: Interval
    effective: float
    unsupported: float
    course: tuple[EvaluationMoment, ...]
    delays: Delays
    window_s: float
    alpha: float
    recommendation: str
    worth: float | None = None
    unit: str = ""
    imputed: Mapping[str, int] = field(default_factory=dict)
    matched: float | None = None
    draws: int | None = None


def evaluate(
    history: KnownApplication,
    candidate: JudgedPolicy | Several,
    window_s: float,
    *,
    alpha: float = 0.05,
    seed: int = 0,
    least: float = LEAST_EFFECTIVE,
    is_known_alone: bool = False,
) -> Evaluation:
    """Return what the candidate would have cost in the decisions whose windows have ended.

    Args:
        history: of the application.
        candidate: the policy in question.
        window_s: how long feedback is waited for.
        alpha: what intervals may miss, in (0, 1).
        seed: of the bootstrap.
        least: effective samples below which an estimate is refused.
        is_known_alone: leave decisions out for which features were imputed.

    Raises:
        EvaluationError: no decision can be judged, or the candidate cannot be by this log.
    """
    ended = history.closed(window_s)
    closed = [seen for seen in ended if not is_held_out(seen.decision.state)]
    real = [seen for seen in closed if not (is_known_alone and seen.imputed)]
    is_of_items = are_of_items(real) if candidate.is_of_items is None else candidate.is_of_items
    made = [as_arms(seen) for seen in real] if is_of_items else [*real]
    known = sorted([seen for seen in made if seen is not None and _is_known(seen)], key=lambda seen: seen.predicted_us)
    if not known:
        raise EvaluationError(_why_none(history, closed, window_s))
    _, worth, weighing, units = in_one_unit(known)
    judged, parts = [scaled(seen, unit) for seen, unit in zip(known, units, strict=True)], np.array(weighing)
    log = as_log(candidate, known, history, parts, np.array(units), least)
    served = _served(judged, log) * parts
    paid, charged = ConfidenceSequence(low=0.0), ConfidenceSequence(low=0.0)
    paid.extend(served, log.units)
    charged.weigh(log.weights, _averages(log), units=log.units)
    course, paired = _course(judged, log, served, parts, alpha)
    part = float(averaged(parts, log.units).mean())
    return Evaluation(
        application=history.application,
        policy=candidate.name,
        served_by=tuple([name for name, _ in Counter(seen.decision.policy for seen in judged).most_common()]),
        decisions=len(judged),
        left_out={
            "window not ended": len(history.observations) - len(ended),
            "held out of the policy": len(ended) - len(closed),
            "features imputed": len(closed) - len(real),
            "loss not known": len(real) - len(judged),
            "no feedback came": sum(age >= window_s for age in _ages_s(history)),
        },
        from_us=judged[0].predicted_us,
        until_us=judged[-1].predicted_us,
        served=_interval(paid, alpha, part),
        estimates=(found := estimate(log, alpha=alpha, seed=seed, least=least)),
        candidate=_interval(charged, alpha, part),
        difference=course[-1].difference,
        effective=(samples := effective(summed(log.weights * parts, log.units))),
        matched=float(log.target[log.known].sum()) / len(judged) if asks_several(candidate) else None,
        unsupported=log.unsupported,
        course=course,
        delays=delay_of(history, window_s),
        window_s=window_s,
        alpha=alpha,
        recommendation=_unknown(candidate.name, samples, log.unsupported, least, found)
        or _recommend(candidate.name, paired, alpha, part) + _in_unit(paired.mean / part, worth, history.unit),
        worth=worth,
        unit=history.unit,
        draws=None if log.units is None else int(log.units.max()) + 1,
        imputed=dict(Counter(source for seen in judged for source in seen.imputed).most_common()),
    )


def _why_none(history: KnownApplication, closed: Sequence[Observation], window_s: float) -> str:
    """Say why no decision can be judged, and what to do."""
    if closed:
        return f"no loss is known of the {len(closed):,} observations whose windows of {window_s:g} s have ended"
    first_us = min(seen.predicted_us for seen in history.observations) + int(window_s * 1e6)
    ends = datetime.fromtimestamp(-(-first_us // _MINUTE_US) * 60, UTC)  # the next full minute
    return (
        f"none of {len(history.observations):,} observations can be judged: their windows of {window_s:g} s have not"
        f" ended; wait until {ends:%H:%M} UTC (record a trace until then), or say --window SECONDS"
    )


def delay_of(history: KnownApplication, window_s: float) -> Delays:
    """Estimate how late feedback comes; what waits or stayed without is known where predictions were read."""
    silent = sum(seen.status is JoinStatus.DEFAULT for seen in history.observations)
    ages_s = _ages_s(history)
    waiting = [age for age in ages_s if age < window_s]
    silent += len(ages_s) - len(waiting)
    return delays(np.array(seconds_late(history.observations)), np.full(silent, window_s), np.array(waiting))


def _ages_s(history: KnownApplication) -> list[float]:
    """Return how long ago each prediction was made that has no observation."""
    return [(history.until_us - at) / 1e6 for at in (history.predicted_us or {}).values()]


def _is_known(seen: Observation) -> bool:
    """Tell whether the losses of all that was asked are known, and the decision is one."""
    decision, losses = seen.decision, seen.losses
    count = len(decision.arms)
    return (
        0 < len(decision.chosen) <= count == len(losses) == len(decision.propensities)
        and all(0 <= arm < count and losses[arm] is not None for arm in decision.chosen)
        and all(decision.propensities[arm] > 0.0 for arm in decision.chosen)
    )


def _served(judged: Sequence[Observation], log: Log) -> Floats:
    """Return what each decision has cost: the served answer's loss, else that of what was asked."""
    own = log.seen.by_row(log.seen.losses) / np.maximum(log.known.sum(axis=1), 1)
    return np.array([loss if seen.loss is None else seen.loss for seen, loss in zip(judged, own, strict=True)])


def _averages(log: Log) -> Floats:
    """Return each row's loss times its part, the mean by weight where several are known."""
    found: Floats = np.divide(log.costs, log.weights, out=np.zeros_like(log.costs), where=log.weights > 0.0)
    return np.clip(found, 0.0, 1.0) * (1.0 if log.parts is None else log.parts)


def _course(
    judged: Sequence[Observation], log: Log, served: Floats, parts: Floats, alpha: float
) -> tuple[tuple[EvaluationMoment, ...], ConfidenceSequence]:
    """Return how the paired difference stood at equal steps, and all of it.

    Where one model was asked, what was served and what the candidate is charged with are the same loss under two
    weights. Where several were asked, what was served is a loss of its own. Steps are of units, each with all of its
    decisions, as they first appear. Means are over what they count (`parts`).
    """
    units = np.arange(len(judged)) if log.units is None else log.units
    order, singly = np.argsort(units, kind="stable"), bool((log.known.sum(axis=1) == 1).all())
    begins = np.searchsorted(units[order], np.arange(units.max() + 2))
    sequence, averages = ConfidenceSequence(), _averages(log)
    own = log.seen.losses * (1.0 if log.parts is None else log.parts) if singly else averages
    counted, charged, paid = [
        np.cumsum(averaged(each, log.units)) for each in (parts, log.weights * averages, own if singly else served)
    ]
    course, ends = [], np.unique(np.linspace(0, len(counted), _POINTS + 1).astype(int))
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        rows = order[begins[start] : begins[end]]
        its = None if log.units is None else units[rows] - start
        if singly:
            sequence.weigh(log.weights[rows] - 1.0, own[rows], mean_weight=0.0, most_negative=1.0, units=its)
        else:
            sequence.pair(log.weights[rows], averages[rows], served[rows], its)
        count = float(counted[end - 1])
        means = float(paid[end - 1]) / count, float(charged[end - 1]) / count
        interval = _interval(sequence, alpha, count / end)
        known = judged[order[begins[end - 1]]].predicted_us, int(begins[end])
        course.append(EvaluationMoment(*known, *means, interval))
    return tuple(course), sequence


def _interval(sequence: ConfidenceSequence, alpha: float, part: float) -> Interval:
    """Return a mean and its bounds over what the decisions count, not over how many they are."""
    low, high = sequence.bounds(alpha)
    return Interval(sequence.mean / part, max(-1.0, low / part), min(1.0, high / part))


def _unknown(
    name: str,
    samples: float,
    unsupported: float,
    least: float,
    found: Mapping[str, Estimate | EstimateError],
) -> str:
    """Say why nothing is recommended; empty = something is."""
    if unsupported > MOST_UNKNOWN:
        return (
            f"No recommendation: the log knows nothing of {unsupported:.0%} of what {name} would do; let a policy serve"
            " that asks every model now and then, such as thompson or exp3."
        )
    if samples < least or not any(isinstance(each, Estimate) for each in found.values()):
        return (
            f"No recommendation: the log has {samples:.0f} effective samples of {name}, {least:g} are needed; record"
            " longer, or let the serving policy explore more."
        )
    return ""


def _recommend(name: str, difference: ConfidenceSequence, alpha: float, part: float) -> str:
    """Return what to do, in one sentence."""
    mean, low, high = _interval(difference, alpha, part)
    if high < 0.0:
        return f"{name} would have cost less, by {-mean:.4f} and at least {-high:.4f} a query: it is worth promoting."
    if low > 0.0:
        return f"{name} would have cost more, by {mean:.4f} and at least {low:.4f} a query: keep what serves."
    return (
        f"{name} cannot be told from what serves: between {max(-low, 0.0):.4f} less and {max(high, 0.0):.4f} more a"
        f" query{_needed(difference, alpha)}."
    )


def _in_unit(difference: float, worth: float | None, unit: str) -> str:
    """Say a difference in the unit of costs; empty = there is none."""
    if worth is None:
        return ""
    more = "more" if difference > 0.0 else "less"
    return f" That is {abs(difference) * worth * 1_000:,.4g}{unit and ' '}{unit} {more} per 1,000 queries."


def _needed(difference: ConfidenceSequence, alpha: float) -> str:
    """Say how much longer a log would settle a difference as large as the one that is seen.

    It is settled when the bound between it and 0 has passed 0. The other bound may lie much nearer: large weights widen
    one side only.
    """
    side = difference.above if difference.mean < 0.0 else difference.below
    more = missing(side, difference.count, alpha)
    return "" if more is None else f"; a difference as large as this one shows after about {more:,} more decisions"
