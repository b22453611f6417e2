"""Makes one answer of several: a weighted vote for labels, a weighted mean for numbers and scores."""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING

import numpy as np

from policies.errors import PolicyError
from schemas.records import Tensor

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from schemas.records import Value

# Numbers this close (relatively) agree: a regression never gives the same number twice, and closer than a few percent
# two models say the same for most uses.
_AGREEMENT = 0.05
_LABELS = frozenset({int, str})


def combine(weights: Mapping[int, float], answers: Mapping[int, Value]) -> tuple[Value, float]:
    """Combine what has arrived into one answer and its confidence.

    Labels (int, str) are voted on, ties go to the label of the lowest arm. Numbers (float, or int beside a float) and
    score vectors of one shape are averaged. If arms give different kinds of answer, the kind with most weight is
    combined and the others count as disagreeing.

    Args:
        weights: By arm, not negative; an arm left out counts 0. If none of the answers has weight, all count the same
            (the state may have moved on since the arms were asked).
        answers: By arm, at least one.

    Returns:
        The answer, and the share of the weight that agrees with it: the same label; a number within 5 %; the same
        largest score.

    Raises:
        PolicyError: No answers.
    """
    if not answers:
        raise PolicyError("nothing to combine; answer with the default output")
    if len(answers) == 1:
        return next(iter(answers.values())), 1.0
    shares = _shares(weights, answers)
    types = set(map(type, answers.values()))
    if types <= _LABELS:  # nearly always, and 3 us faster than sorting out kinds
        return _vote(shares, answers)
    has_float = float in types
    kinds: dict[Hashable, dict[int, Value]] = {}
    for arm in sorted(answers):
        kinds.setdefault(_kind(answers[arm], has_float), {})[arm] = answers[arm]
    kind, group = max(kinds.items(), key=lambda item: sum(shares[arm] for arm in item[1]))
    if kind == "label":
        return _vote(shares, group)
    if kind == "number":
        return _mean_number(shares, group)
    return _mean_scores(shares, group)


def _shares(weights: Mapping[int, float], answers: Mapping[int, Value]) -> dict[int, float]:
    total = sum([weights.get(arm, 0.0) for arm in answers])
    if total > 0.0:
        return {arm: weights.get(arm, 0.0) / total for arm in answers}
    return dict.fromkeys(answers, 1.0 / len(answers))


def _kind(answer: Value, has_float: bool) -> Hashable:
    if isinstance(answer, Tensor):
        return answer.shape
    return "number" if isinstance(answer, float) or (has_float and isinstance(answer, int)) else "label"


def _vote(shares: Mapping[int, float], answers: Mapping[int, Value]) -> tuple[Value, float]:
    votes: dict[Value, float] = {}
    for arm in sorted(answers):
        votes[answers[arm]] = votes.get(answers[arm], 0.0) + shares[arm]
    best = max(votes, key=votes.__getitem__)  # the first of equals, which is the lowest arm's
    return best, min(1.0, votes[best])


def _mean_number(shares: Mapping[int, float], answers: Mapping[int, Value]) -> tuple[float, float]:
    numbers = {arm: float(answer) for arm, answer in answers.items() if isinstance(answer, int | float)}
    mass = sum(shares[arm] for arm in numbers) or 1.0
    mean = sum(shares[arm] / mass * number for arm, number in numbers.items())
    agreeing = sum(shares[arm] for arm, number in numbers.items() if isclose(number, mean, rel_tol=_AGREEMENT))
    return mean, min(1.0, agreeing)


def _mean_scores(shares: Mapping[int, float], answers: Mapping[int, Value]) -> tuple[Tensor, float]:
    scores = {arm: answer.numpy() for arm, answer in answers.items() if isinstance(answer, Tensor)}
    weights = np.array([shares[arm] for arm in scores])
    stacked = np.stack(list(scores.values()))
    mean = np.tensordot(weights / weights.sum(), stacked.astype(np.float64), axes=1)
    agreeing = stacked.reshape(len(weights), -1).argmax(axis=1) == mean.argmax()
    kept = np.result_type(*scores.values())
    dtype = kept if np.issubdtype(kept, np.floating) else np.dtype(np.float64)
    return Tensor.of(mean.astype(dtype)), min(1.0, float(weights[agreeing].sum()))
