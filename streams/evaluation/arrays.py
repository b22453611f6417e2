"""Judged decisions as arrays, by which estimators go: a row a decision, a column an arm, or an end of a walk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies.assignment import arm_unit
from policies.estimators.log import Log
from policies.estimators.reward_model import expected
from streams.evaluation.errors import EvaluationError
from streams.evaluation.several import Several
from streams.evaluation.walk import may_go_on
from streams.operators.weighing import scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from policies.estimators.log import Floats, Numbers
    from schemas.records import Measurement, Observation
    from streams.evaluation.candidate import JudgedPolicy
    from streams.evaluation.history import KnownApplication

LEAST_MATCHED = 0.05  # share of what a policy would do: below it the few decisions that match say little of the others


def as_log(
    candidate: JudgedPolicy | Several, known: Sequence[Observation], history: KnownApplication, parts: Floats,
    factors: Floats, least: float,
) -> Log:  # fmt: skip
    """Return what a candidate would have done beside what was done.

    Args:
        candidate: the policy in question.
        known: decisions in the order of time.
        history: of the application.
        parts: what each decision counts.
        factors: what its losses are multiplied with to be in one unit.
        least: effective samples that are wanted; 0 = however few decisions match.

    Raises:
        EvaluationError: the log has not what it takes.
    """
    counted = None if (parts == 1.0).all() else parts
    judged = [scaled(seen, unit) for seen, unit in zip(known, factors.tolist(), strict=True)]
    if not isinstance(candidate, Several):
        arms = _arms(judged)
        return _of_arms(judged, candidate.propensities(judged, history.observations, arms), arms, counted)
    logged, target, losses, never = candidate.ends(known, history)
    losses = losses * factors[:, None]
    matched = float(target[~np.isnan(losses)].sum()) / len(known)
    if matched < LEAST_MATCHED and least > 0.0:
        raise EvaluationError(
            f"the log has the outputs for {matched:.1%} of what {candidate.name} would have asked, and"
            f" {LEAST_MATCHED:.0%} are needed: let a policy serve that asks these models together, such as exp4 or a"
            " cascade, or say --force"
        )
    return Log(logged, target, losses, _alike(judged, target, losses, counted), counted, never, draws(known))


def _alike(judged: Sequence[Observation], target: Floats, losses: Floats, parts: Floats | None) -> Floats:
    """Return one expected loss for all ends of a decision.

    How likely an end is depends on what was answered, so where it was not asked nobody knows it. A model with a loss
    for each end would have to: else what it adds and what it takes away differ.
    """
    known = np.where(np.isnan(losses), 0.0, target)
    mass = known.sum(axis=1)
    mean = np.divide(
        (known * np.nan_to_num(losses)).sum(axis=1), mass, out=np.full_like(mass, np.nan), where=mass > 0.0
    )
    found = expected(mean[:, None], _contexts(judged), _features(judged), parts)
    return np.broadcast_to(found, losses.shape)


def _arms(judged: Sequence[Observation]) -> tuple[str, ...]:
    """Return all models that could have been asked, in order of appearance."""
    return tuple(dict.fromkeys(arm for arms in dict.fromkeys(s.decision.arms for s in judged) for arm in arms))


def _of_arms(judged: Sequence[Observation], target: Floats, arms: Sequence[str], parts: Floats | None) -> Log:
    """Return the decisions as arrays."""
    columns = {arm: column for column, arm in enumerate(arms)}
    logged, losses = np.zeros(target.shape), np.full(target.shape, np.nan)
    places: dict[tuple[str, ...], list[int]] = {}
    for row, (_, _, _, decision, known, *_) in enumerate(judged):
        at = places.get(decision.arms) or places.setdefault(decision.arms, [columns[arm] for arm in decision.arms])
        logged[row, at] = decision.propensities
        for arm in decision.chosen:
            losses[row, at[arm]] = known[arm]
    modelled = expected(losses, _contexts(judged), _features(judged), parts)
    return Log(logged, target, losses, modelled, parts, _blind(judged, logged, target), draws(judged))


def _blind(judged: Sequence[Observation], logged: Floats, target: Floats) -> float | None:
    """Return the share of a policy's decisions of which the log can know nothing; None = rows tell it.

    Where models are asked in turn, an arm behind a question that was not put has no probability yet. Where there was no
    question behind the answers that came, it has none: each such row stands for those that did not come so far.
    """
    if not any(seen.steps for seen in judged):
        return None
    never = np.where(logged > 0.0, 0.0, target).sum(axis=1)
    counted = 0.0
    for seen, share in zip(judged, never.tolist(), strict=True):
        if share and not may_go_on(seen):
            counted += share / min([seen.decision.propensities[arm] for arm in seen.decision.chosen])
    return min(1.0, counted / len(judged))


def draws(known: Sequence[Observation | Measurement]) -> Numbers | None:
    """Return the number of each decision's draw, as they first appear; None where each query has drawn for itself."""
    names = [arm_unit(seen) for seen in known]
    if not any(names):
        return None
    numbers: dict[str | int, int] = {}
    return np.array([numbers.setdefault(name or row, len(numbers)) for row, name in enumerate(names)])


def _contexts(judged: Sequence[Observation]) -> NDArray[np.intp] | None:
    """Return the number of each decision's context; None where there is one."""
    numbers = {context: number for number, context in enumerate(dict.fromkeys(seen.context for seen in judged))}
    return np.array([numbers[seen.context] for seen in judged]) if len(numbers) > 1 else None


def _features(judged: Sequence[Observation]) -> NDArray[np.float64] | None:
    """Return the queries' features, shorter ones with 0 behind them; None where there are none."""
    most = max(len(seen.decision.features) for seen in judged)
    if not most:
        return None
    return np.array([(*seen.decision.features, *(0.0,) * (most - len(seen.decision.features))) for seen in judged])
