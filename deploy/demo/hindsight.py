"""How each model alone, and all of them voting, would have done on the very same queries: packages run offline."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from policies.combine import combine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from deploy.demo.tally import Question
    from policies.contract import Policy


ENSEMBLE = "exp4"  # the policy by which all models vote


class Alone(NamedTuple):
    """One model's wrong answers, had it been asked every time."""

    wrong_by_second: Counter[int]
    error: float


def while_broken(question: Question) -> bool:
    """Tell whether a query was meant for the time in which one model is broken."""
    return question.phase == "during"


class Says(NamedTuple):
    """What one model answers.

    Attributes:
        answers: to each held-out row, shape (rows,).
        others: at other times, shape (rows,); None = it always answers the same.
        when: those other times are; by default while one model is broken.
    """

    answers: NDArray[np.int64]
    others: NDArray[np.int64] | None = None
    when: Callable[[Question], bool] = while_broken

    def to(self, question: Question) -> int:
        """Return the answer to a question."""
        given = self.others if self.others is not None and self.when(question) else self.answers
        return int(given[question.row])


def alone(questions: Iterable[Question], says: Says) -> Alone:
    """Judge one model on every question that was asked."""
    wrong: Counter[int] = Counter()
    asked = 0
    for question in questions:
        wrong[question.second] += says.to(question) != question.label
        asked += 1
    return Alone(wrong, sum(wrong.values()) / max(1, asked))


def voting_error(questions: Iterable[Question], models: Sequence[Says], policy: Policy) -> float:
    """Return the share of wrong answers, had all models been asked every question, and told the truth before the next.

    Args:
        questions: in the order in which they were asked.
        models: who vote.
        policy: of full information; its weights count the votes.
    """
    arms, everyone = len(models), tuple(range(len(models)))
    state, wrong, asked = policy.init(arms), 0, 0
    for question in questions:
        answers = dict(enumerate([model.to(question) for model in models]))
        answer, _ = combine(dict(enumerate(policy.weights(state, arms))), answers)
        losses = [float(given != question.label) for given in answers.values()]
        state = policy.observe(state, arms, everyone, (1.0,) * arms, losses)
        wrong += answer != question.label
        asked += 1
    return wrong / max(1, asked)


def best(models: Mapping[str, Alone]) -> str:
    """Return the name of the model with the fewest errors, the first of equals."""
    return min(models, key=lambda name: models[name].error)
