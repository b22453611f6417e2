"""Puts the results of a batch's parts together. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from schemas.records import Outcome
from streams.operators.contract import Predicted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from workers.runtimes.contract import Answers


def joined(parts: Sequence[Predicted]) -> Predicted:
    """Put the results of consecutive parts of a batch one behind the other.

    Parts without an answer are filled up; one whose answers are of another form than the first has failed.
    """
    if len(parts) == 1:
        return parts[0]
    pattern = next((part for part in parts if Outcome.OK in part.outcomes), parts[0])
    fitting = [part if _fits(part, pattern) else _failed_as(pattern, part) for part in parts]
    starts = np.cumsum([0, *(len(part.outcomes) for part in fitting)]).tolist()
    return Predicted(
        tuple(outcome for part in fitting for outcome in part.outcomes),
        tuple(text for part in fitting for text in part.answers)
        if isinstance(pattern.answers, tuple)
        else np.concatenate([np.asarray(part.answers) for part in fitting]),
        None if pattern.scores is None else np.concatenate([np.asarray(part.scores) for part in fitting]),
        {start + row: why for start, part in zip(starts, fitting, strict=False) for row, why in part.reasons.items()},
        next((part.fault for part in fitting if part.fault is not None), None),
        {
            start + row: text
            for start, part in zip(starts, fitting, strict=False)
            for row, text in part.messages.items()
        },
    )


def _fits(part: Predicted, pattern: Predicted) -> bool:
    return _kind(part.answers) == _kind(pattern.answers) and _width(part.scores) == _width(pattern.scores)


def _kind(answers: Answers) -> object:
    """Return what tells texts, numbers and named tensors apart."""
    return str if isinstance(answers, tuple) else answers.dtype.names


def _width(scores: NDArray[np.generic] | None) -> tuple[int, ...] | None:
    return None if scores is None else scores.shape[1:]


def _failed_as(pattern: Predicted, part: Predicted) -> Predicted:
    """Return a part without answers, in the form of those that have some."""
    rows = len(part.outcomes)
    outcomes = tuple(Outcome.FAILED if outcome is Outcome.OK else outcome for outcome in part.outcomes)
    fault = part.fault or ("the model's answers are of different forms" if Outcome.OK in part.outcomes else None)
    answers = ("",) * rows if isinstance(pattern.answers, tuple) else np.zeros(rows, np.asarray(pattern.answers).dtype)
    scores = None if pattern.scores is None else np.zeros((rows, *pattern.scores.shape[1:]), pattern.scores.dtype)
    return Predicted(outcomes, answers, scores, part.reasons, fault, part.messages)
