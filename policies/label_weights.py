"""How much of the vote each label has: a model's share goes to its answer, or over its classes by its scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from schemas.records import Tensor
from schemas.topics import model_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import ModelOutput

_SUM_TOLERANCE = 1e-3  # scores of float32 models add up to 1 only so closely


def label_weights(
    votes: Mapping[int, float], outputs: Mapping[int, ModelOutput], classes: Mapping[str, Sequence[str]]
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


def _shares_of(output: ModelOutput, classes: Mapping[str, Sequence[str]]) -> dict[int | str, float]:
    """Return what a model gives to each label, in all 1; empty for an answer that is a number."""
    answer = output.answer
    if answer is None or isinstance(answer, float):
        return {}
    scores = answer if isinstance(answer, Tensor) else output.scores
    values = None if scores is None else as_shares(scores)
    if values is not None:
        labels = _labels(len(values), answer, classes.get(model_version(output.model, output.version), ()))
        if labels is not None:
            return dict(zip(labels, values.tolist(), strict=True))
    return {} if isinstance(answer, Tensor) else {answer: 1.0}


def as_shares(scores: Tensor) -> NDArray[np.float64] | None:
    """Return scores (k,) as shares that sum to 1: those that are no probabilities go through a softmax.

    None where there are none, or one is not finite.

    Examples:
        >>> as_shares(Tensor.of(np.array([0.0, 0.0])))
        array([0.5, 0.5])
    """
    values = scores.numpy().astype(np.float64).ravel()
    if values.size == 0 or not np.isfinite(values).all():
        return None
    if values.min() < 0.0 or abs(float(values.sum()) - 1.0) > _SUM_TOLERANCE:
        values = np.exp(values - values.max())
    return np.asarray(values / values.sum())


def _labels(width: int, answer: int | str | Tensor, names: Sequence[str]) -> Sequence[int | str] | None:
    """Return the labels of scores, of the answer's type: classes travel as text. None = it is not known which."""
    if not names:
        return None if isinstance(answer, str) else range(width)
    if len(names) != width:
        return None
    if isinstance(answer, str):
        return names
    try:
        return [int(name) for name in names]
    except ValueError:
        return names if isinstance(answer, Tensor) else None
