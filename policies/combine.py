"""Makes one answer of several: a weighted vote for labels, a weighted mean or median for numbers and scores.

JSON texts that say the same are one label, whatever their spaces and the order of their keys.
"""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING

import numpy as np

from policies.combine_tensors import combine_tensors, tensors_agree
from policies.errors import PolicyError
from policies.structured import alike, canonical
from schemas.records import NamedTensors, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from numpy.typing import NDArray

    from schemas.records import Value

# Numbers this close (relatively) agree: a regression never gives the same number twice, and closer than a few percent
# two models say the same for most uses.
_AGREEMENT = 0.05
_LABELS = frozenset({int, str})
# How an application's answers are combined; `mean` and `median` take whole numbers for numbers, not for labels.
VOTE, MEAN, MEDIAN = COMBINES = ("weighted_vote", "mean", "median")
_HALF = 1e-9  # shares are sums of floats: this close to one half is one half


def combine(weights: Mapping[int, float], answers: Mapping[int, Value], how: str = VOTE) -> tuple[Value, float]:
    """Combine what has arrived into one answer and its confidence.

    Labels (int, str) are voted on, ties go to the label of the lowest arm. Numbers (float, or int beside a float) and
    score vectors of one shape are averaged. If arms give different kinds of answer, the kind with most weight is
    combined and the others count as disagreeing.

    Args:
        weights: By arm, not negative; an arm left out counts 0. If none of the answers has weight, all count the same
            (the state may have moved on since the arms were asked).
        answers: By arm, at least one.
        how: One of `COMBINES`. `mean` and `median`, both weighted, make a float of whole numbers, too, and combine
            named tensors output by output, which else are voted on; texts are voted on whatever it says.

    Returns:
        The answer, and the share of the weight that agrees with it: the same label; a number within 5 %; the same
        largest score.

    Raises:
        PolicyError: No answers.
    """
    if not answers:
        raise PolicyError("nothing to combine; answer with the default output")
    if len(answers) == 1:
        (answer,) = answers.values()
        return float(answer) if how != VOTE and isinstance(answer, int) else answer, 1.0
    shares = _shares(weights, answers)
    types = set(map(type, answers.values()))
    if str in types:
        answers = alike(answers)
    if how == VOTE and types <= _LABELS:  # nearly always, and 3 us faster than sorting out kinds
        return _vote(shares, answers)
    has_float = how != VOTE or float in types
    kinds: dict[Hashable, dict[int, Value]] = {}
    for arm in sorted(answers):
        kinds.setdefault(_kind(answers[arm], has_float, how), {})[arm] = answers[arm]
    kind, group = max(kinds.items(), key=lambda item: sum(shares[arm] for arm in item[1]))
    if kind == "label":
        return _vote(shares, group)
    if kind == "number":
        return _combined_numbers(shares, group, how)
    if isinstance(next(iter(group.values())), NamedTensors):
        return _combined_tensors(shares, group, how)
    return _combined_scores(shares, group, how)


def agrees(answer: Value, combined: Value) -> bool:
    """Tell whether an arm's answer agrees with the combined one, as the confidence counts it."""
    if isinstance(answer, Tensor) and isinstance(combined, Tensor):
        return answer.shape == combined.shape and bool(answer.numpy().argmax() == combined.numpy().argmax())
    if isinstance(answer, int | float) and isinstance(combined, float):
        return isclose(answer, combined, rel_tol=_AGREEMENT)
    if isinstance(answer, str) and isinstance(combined, str):
        return canonical(answer) == canonical(combined)
    return type(answer) is type(combined) and answer == combined


def _shares(weights: Mapping[int, float], answers: Mapping[int, Value]) -> dict[int, float]:
    total = sum([weights.get(arm, 0.0) for arm in sorted(answers)])  # by arm: a sum of floats depends on its order
    if total > 0.0:
        return {arm: weights.get(arm, 0.0) / total for arm in answers}
    return dict.fromkeys(answers, 1.0 / len(answers))


def _kind(answer: Value, has_float: bool, how: str) -> Hashable:
    if isinstance(answer, Tensor):
        return answer.shape
    if isinstance(answer, NamedTensors) and how != VOTE:
        return answer.dtype
    return "number" if isinstance(answer, float) or (has_float and isinstance(answer, int)) else "label"


def _vote(shares: Mapping[int, float], answers: Mapping[int, Value]) -> tuple[Value, float]:
    votes: dict[Value, float] = {}
    for arm in sorted(answers):
        votes[answers[arm]] = votes.get(answers[arm], 0.0) + shares[arm]
    best = max(votes, key=votes.__getitem__)  # the first of equals, which is the lowest arm's
    return best, min(1.0, votes[best])


def _combined_numbers(shares: Mapping[int, float], answers: Mapping[int, Value], how: str) -> tuple[float, float]:
    numbers = {arm: float(answer) for arm, answer in answers.items() if isinstance(answer, int | float)}
    mass = sum(shares[arm] for arm in numbers) or 1.0
    if how == MEDIAN:
        middle = float(_median(np.array([shares[arm] for arm in numbers]), np.array(list(numbers.values()))))
    else:
        middle = sum(shares[arm] / mass * number for arm, number in numbers.items())
    agreeing = sum(shares[arm] for arm, number in numbers.items() if isclose(number, middle, rel_tol=_AGREEMENT))
    return middle, min(1.0, agreeing)


def _combined_scores(shares: Mapping[int, float], answers: Mapping[int, Value], how: str) -> tuple[Tensor, float]:
    scores = {arm: answer.numpy() for arm, answer in answers.items() if isinstance(answer, Tensor)}
    weights = np.array([shares[arm] for arm in scores])
    stacked = np.stack(list(scores.values()))
    middle = _middle(how)(weights, stacked.astype(np.float64))
    agreeing = stacked.reshape(len(weights), -1).argmax(axis=1) == middle.argmax()
    kept = np.result_type(*scores.values())
    dtype = kept if np.issubdtype(kept, np.floating) else np.dtype(np.float64)
    return Tensor.of(middle.astype(dtype)), min(1.0, float(weights[agreeing].sum()))


def _combined_tensors(
    shares: Mapping[int, float], answers: Mapping[int, Value], how: str
) -> tuple[NamedTensors, float]:
    tensors = {arm: answer for arm, answer in answers.items() if isinstance(answer, NamedTensors)}
    weights = np.array([shares[arm] for arm in tensors])
    made = combine_tensors(weights, [*tensors.values()], _middle(how))
    agreeing = [shares[arm] for arm, answer in tensors.items() if tensors_agree(answer, made, _AGREEMENT)]
    return made, min(1.0, sum(agreeing))


def _middle(how: str) -> Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]:
    """Return what makes of (n, ...) values with n weights the middle, (...)."""
    return _median if how == MEDIAN else _mean


def _mean(weights: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.tensordot(weights / weights.sum(), values, axes=1))


def _median(weights: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted median along the first axis: of (n, ...) values with n weights, (...).

    Where exactly half of the weight lies on either side, it is the middle of the two values next to it.
    """
    values, weights = values[weights > 0.0], weights[weights > 0.0]
    order = values.argsort(axis=0, kind="stable")
    below = weights[order].cumsum(axis=0) / weights.sum()
    ordered = np.take_along_axis(values, order, axis=0)
    ends = [(below >= 0.5 - _HALF).argmax(axis=0), (below > 0.5 + _HALF).argmax(axis=0)]
    lower, upper = (np.take_along_axis(ordered, np.expand_dims(end, 0), axis=0)[0] for end in ends)
    return np.asarray(lower + (upper - lower) / 2)
