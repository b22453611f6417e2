"""How much of the vote each label has: a model's share goes to its answer, or over its classes by its scores."""

from __future__ import annotations

from functools import lru_cache
from math import exp, isfinite
from typing import TYPE_CHECKING

from schemas.records import NamedTensors, Tensor
from schemas.topics import model_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import ModelOutput

_SUM_TOLERANCE = 1e-3  # scores of float32 models add up to 1 only so closely


def label_weights(
    votes: Mapping[int, float], outputs: Mapping[int, ModelOutput], classes: Mapping[str, tuple[str, ...]]
) -> dict[int | str, float]:
    """Return the weight of each label, in all 1; empty if no model has answered with a label or with scores.

    Args:
        votes: how much each arm counts, not negative; if none of the outputs has weight, all count the same.
        outputs: by arm, all usable.
        classes: names of the scores' classes, by `MODEL@VERSION`; without them a class is its column's index.
    """
    shares = {arm: found for arm, output in outputs.items() if (found := _shares_of(output, classes))}
    total = sum([votes.get(arm, 0.0) for arm in shares])
    weights: dict[int | str, float] = {}
    for arm, found in shares.items():
        vote = votes.get(arm, 0.0) / total if total > 0.0 else 1.0 / len(shares)
        for label, share in found.items():
            weights[label] = weights.get(label, 0.0) + vote * share
    return weights


def _shares_of(output: ModelOutput, classes: Mapping[str, tuple[str, ...]]) -> dict[int | str, float]:
    """Return what a model gives to each label, in all 1; empty for an answer that is a number."""
    answer = output.answer
    if answer is None or isinstance(answer, float | NamedTensors):
        return {}
    scores = answer if isinstance(answer, Tensor) else output.scores
    values = None if scores is None else as_shares(scores.numpy().ravel().tolist())
    if values is not None:
        labels = _labels(len(values), answer, classes.get(model_version(output.model, output.version), ()))
        if labels is not None:
            return dict(zip(labels, values, strict=True))
    return {} if isinstance(answer, Tensor) else {answer: 1.0}


def as_shares(scores: Sequence[float]) -> list[float] | None:
    """Return scores as shares that sum to 1: those that are no probabilities go through a softmax.

    None where there are none, or one is not finite.

    Examples:
        >>> as_shares([0.0, 0.0])
        [0.5, 0.5]
    """
    if not scores or not all(map(isfinite, scores)):
        return None
    total, best = sum(scores), max(scores)
    if min(scores) < 0.0 or abs(total - 1.0) > _SUM_TOLERANCE:
        scores = [exp(score - best) for score in scores]
        total = sum(scores)
    return [score / total for score in scores]


def _labels(width: int, answer: int | str | Tensor, names: tuple[str, ...]) -> Sequence[int | str] | None:
    """Return the labels of scores, of the answer's type: classes travel as text. None = it is not known which."""
    if not names:
        return None if isinstance(answer, str) else range(width)
    if len(names) != width:
        return None
    if isinstance(answer, str):
        return names
    return _numbers(names) or (names if isinstance(answer, Tensor) else None)


@lru_cache(1024)
def _numbers(names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the numbers that classes are; nothing if one is none."""
    try:
        return tuple(map(int, names))
    except ValueError:
        return ()
