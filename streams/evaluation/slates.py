"""What another ranking would have earned: from the rankings whose places were drawn, by estimators that are named.

    observations of drawn rankings ─┬─▶ their candidates' features ─▶ what the other policy would have shown
                                    └─▶ what each place has earned ─▶ `per_place`, `pseudo_inverse`

The policy's state is a fold of the same log, up to each ranking. What is earned are labels, summed over the places; a
place of which nothing was told has earned nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies import registry
from policies.contract import is_answering, ranks_by
from policies.draw import uniform
from policies.errors import PolicyError
from policies.estimators.errors import TooFewError
from policies.estimators.estimate import LEAST_EFFECTIVE, Estimate, ratio, resampled
from policies.estimators.log import effective
from policies.estimators.slates import SLATE_ESTIMATORS, DrawnSlate, contributions
from schemas.records import JoinStatus
from streams.evaluation.errors import EvaluationError
from streams.evaluation.replayed_states import fold_along
from streams.operators.cold_start import started

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.contract import Policy
    from schemas.records import Observation, PolicyState
    from streams.evaluation.history import KnownApplication

_NONE_DRAWN = (
    "no ranking of this log was drawn, so it cannot tell what other rankings earn: set `shuffle`, say 0.05, for the"
    " application, and read the log again when some of them are in it (`docs/rankings.md`)"
)


@dataclass(frozen=True, slots=True)
class SlateEvaluation:
    """What came of it, in labels a ranking: more is better.

    Attributes:
        application: whose rankings are judged.
        policy: the other one.
        rankings: that had ended, drawn ones among them.
        drawn: those by which it is judged.
        served: what the others have earned, a ranking; None = there are none.
        is_of_told: rankings without feedback are not in the log: all of this is of those that had some.
        estimates: what the policy would have earned, by estimator, or why an estimator cannot say.
    """

    application: str
    policy: str
    rankings: int
    drawn: int
    served: float | None
    is_of_told: bool
    estimates: Mapping[str, Estimate | TooFewError]


def ranking_policy(text: str) -> Policy | None:
    """Return the policy that a text names, if it ranks rows of features."""
    name, colon, parameters = text.partition(":")
    try:
        policy = registry.parse(f"{name}({parameters})" if colon and name in registry.POLICIES else text)
    except PolicyError:
        return None  # whoever reads it otherwise says what is wrong
    return policy if ranks_by(policy) is not None else None


def evaluate_slates(
    history: KnownApplication,
    policy: Policy,
    window_s: float,
    *,
    alpha: float = 0.05,
    seed: int = 0,
    least: float = LEAST_EFFECTIVE,
) -> SlateEvaluation:
    """Return what a policy would have earned in the rankings that were drawn and whose windows have ended.

    Args:
        history: what the log says.
        policy: that ranks rows of features.
        window_s: after which a ranking has ended.
        alpha: what the bootstrap intervals may miss.
        seed: of the bootstrap.
        least: effective samples below which an estimate is refused; 0 = none is.

    Raises:
        EvaluationError: none was drawn.
    """
    closed = [seen for seen in history.closed(window_s) if seen.ranked is not None]
    drawn = [seen for seen in closed if seen.ranked is not None and seen.ranked.drawn and seen.ranked.rows is not None]
    if not drawn:
        raise EvaluationError(_NONE_DRAWN)
    name = registry.spec(policy)
    told = [seen._replace(decision=seen.decision._replace(policy=name, apprentice="")) for seen in history.observations]
    slates = [_slate(policy, name, states, drawn[row]) for row, states in fold_along(drawn, told)]
    served = [sum(_earned(seen).values()) for seen in closed if seen.ranked is not None and not seen.ranked.drawn]
    found = _estimates(slates, alpha, seed, least)
    mean = float(np.mean(served)) if served else None
    is_of_told = _is_of_told(history, closed, window_s)
    return SlateEvaluation(history.application, name, len(closed), len(drawn), mean, is_of_told, found)


def _is_of_told(history: KnownApplication, closed: Sequence[Observation], window_s: float) -> bool:
    """Tell whether rankings without feedback are missing in a log: without a default loss nothing is written of them.

    Where predictions were not read, a log that has none of them counts as one from which they are missing.
    """
    if any(seen.status is JoinStatus.DEFAULT for seen in closed):
        return False
    end_us = history.until_us - int(window_s * 1e6)
    return history.predicted_us is None or any(at_us <= end_us for at_us in history.predicted_us.values())


def _slate(policy: Policy, name: str, states: Mapping[str, PolicyState | None], seen: Observation) -> DrawnSlate:
    """Return a drawn ranking beside the one that the policy would have shown."""
    ranked, arms = seen.ranked, seen.decision.arms
    assert ranked is not None
    assert ranked.rows is not None
    assert is_answering(policy)
    held = states.get(seen.decision.state) or started(states.get(seen.application), name)
    values = policy.init(len(arms)) if held is None else held.values
    if held is not None and held.arms != arms:
        values = policy.extend(values, held.arms, arms)
    other = policy.reading(values, len(arms)).rank(ranked.rows, len(ranked.drawn), uniform(seen.query_id, "rank"))
    if other is None:
        raise EvaluationError(f"{name} does not rank candidates of {ranked.rows.shape[-1]} features, as the log's are")
    earned = _earned(seen)
    return DrawnSlate(
        len(seen.first), ranked.drawn, tuple([earned.get(at, 0.0) for at in range(len(ranked.drawn))]), other.best
    )


def _earned(seen: Observation) -> dict[int, float]:
    """Return the labels of the places that something was told of."""
    told = {0: seen.label} | {one.position: one.label for one in seen.places}
    return {position: float(label) for position, label in told.items() if isinstance(label, int | float)}


def _estimates(slates: list[DrawnSlate], alpha: float, seed: int, least: float) -> dict[str, Estimate | TooFewError]:
    parts = {name: contributions(name, slates) for name in SLATE_ESTIMATORS}
    samples = {name: effective(rows.weights) for name, rows in parts.items()}
    enough = {name: rows for name, rows in parts.items() if samples[name] >= least}
    bounds = resampled([*enough.values()], alpha, seed) if enough else []
    found: dict[str, Estimate | TooFewError] = {
        name: TooFewError(samples[name], least) for name in SLATE_ESTIMATORS if name not in enough
    }
    for (name, rows), ends in zip(enough.items(), bounds, strict=True):
        largest = float(rows.weights.max())
        found[name] = Estimate(name, *ratio(rows), *ends, samples[name], largest, 0.0, len(slates))
    return {name: found[name] for name in SLATE_ESTIMATORS}
