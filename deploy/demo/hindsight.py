"""How each model alone would have done on the very same queries, from the packaged models run offline."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from deploy.demo.tally import Question


class Alone(NamedTuple):
    """One model's wrong answers, had it been asked every time."""

    wrong_by_second: Counter[int]
    error: float


def while_broken(question: Question) -> bool:
    """Tell whether a query was meant for the time in which one model is broken."""
    return question.phase == "during"


def alone(
    questions: Iterable[Question],
    answers: NDArray[np.int64],
    others: NDArray[np.int64] | None = None,
    when: Callable[[Question], bool] = while_broken,
) -> Alone:
    """Judge one model on every question that was asked.

    Args:
        questions: as the client asked them.
        answers: the model's answer to each held-out row, shape (rows,).
        others: what it answers at other times, shape (rows,); None = it always answers the same.
        when: those other times are; by default while one model is broken.
    """
    wrong: Counter[int] = Counter()
    asked = 0
    for question in questions:
        given = others if others is not None and when(question) else answers
        wrong[question.second] += int(given[question.row]) != question.label
        asked += 1
    return Alone(wrong, sum(wrong.values()) / max(1, asked))


def best(models: Mapping[str, Alone]) -> str:
    """Return the name of the model with the fewest errors, the first of equals."""
    return min(models, key=lambda name: models[name].error)
