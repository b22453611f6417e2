"""How sure a model is of its own answer: the probability of its best class, or that two models agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies.structured import canonical
from schemas.records import Outcome, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from schemas.records import ModelOutput, Value

_SUM_TOLERANCE = 1e-3  # scores of float32 models add up to 1 only so closely


def best_share(scores: Tensor) -> float:
    """Return the largest of the scores (k,), as a share: scores that are no probabilities go through a softmax.

    Examples:
        >>> best_share(Tensor.of(np.array([0.25, 0.75])))
        0.75
    """
    values = scores.numpy().astype(np.float64).ravel()
    if values.size == 0 or not np.isfinite(values).all():
        return 0.0
    return share_of(values, int(values.argmax()))


def share_of(values: NDArray[np.float64], place: int) -> float:
    """Return one of the scores (k,), which are finite, as a share; see `best_share`."""
    if values.min() >= 0.0 and abs(float(values.sum()) - 1.0) <= _SUM_TOLERANCE:
        return min(1.0, float(values[place]))
    parts = np.exp(values - values.max())
    return float(parts[place]) / float(parts.sum())


def own_confidence(output: ModelOutput) -> float | None:
    """Return how sure a model says it is of its answer, in [0, 1]; None = it has no scores.

    Args:
        output: of the model, with the outcome OK.
    """
    scores = _scores(output)
    return None if scores is None else best_share(scores)


def confidence_of(outputs: Sequence[ModelOutput | None]) -> float | None:
    """Return how sure models are together, in [0, 1]; None where a single one does not say.

    One model is as sure as its best class is probable. Several are sure if they answer the same: as sure as the least
    sure of those that say, else 1.0. If one has not answered, or differs, they are not sure at all.
    """
    if any(output is None or output.outcome is not Outcome.OK or output.answer is None for output in outputs):
        return 0.0
    answered = [output for output in outputs if output is not None]
    if any(_label(output) != _label(answered[0]) for output in answered):
        return 0.0
    scores = [_scores(output) for output in answered]
    known = [best_share(each) for each in scores if each is not None]
    return min(known) if known else None if len(answered) == 1 else 1.0


def _scores(output: ModelOutput) -> Tensor | None:
    return output.answer if isinstance(output.answer, Tensor) else output.scores


def _label(output: ModelOutput) -> Value | None:
    answer = output.answer
    if isinstance(answer, str):
        return canonical(answer)
    return int(answer.numpy().argmax()) if isinstance(answer, Tensor) else answer
