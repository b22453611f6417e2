"""A cascade played against recorded outputs, without Kafka: the policy's own functions, in the order of the queries."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.lessons import Lesson
from schemas.records import ModelOutput, Outcome, Step, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from policies.cascade import Cascade


@dataclass(frozen=True, slots=True)
class Known:
    """What each model would answer.

    Attributes:
        labels: (n,) the truth.
        answers: (n, models) labels, the dearest model's last.
        scores: of the first model (n, classes); None = it gives none.
    """

    labels: NDArray[np.integer]
    answers: NDArray[np.integer]
    scores: NDArray[np.floating] | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """The outcome by query: whether the answer was wrong, whether the last arm was asked, the threshold in force."""

    wrong: NDArray[np.bool_]
    asked: NDArray[np.bool_]
    threshold: NDArray[np.float64]


def play(policy: Cascade, known: Known, seed: int, late: int = 50) -> Played:
    """Answer every query by a cascade of two questions, and teach it.

    Args:
        policy: decides.
        known: what it gets for its questions.
        seed: of the draws.
        late: queries that are decided before the feedback of one is learnt.
    """
    count, arms = len(known.labels), known.answers.shape[1]
    state, waiting = policy.init(arms), deque[tuple[list[float | None], tuple[int, ...], Step]]()
    played = Played(np.zeros(count, bool), np.zeros(count, bool), np.zeros(count))
    draws = np.random.default_rng(seed).random(count)
    steps = policy.steps(state, arms)
    for number in range(count):
        outputs = {arm: _output(known, number, arm) for arm in range(arms)}
        ask = steps.after(steps.first, {arm: outputs[arm] for arm in steps.first})
        assert ask is not None
        is_asked = bool(draws[number] < ask.probability)
        chosen = steps.first + ask.arms if is_asked else steps.first
        answer = _served(steps.first, chosen, known.answers[number])
        played.wrong[number] = answer != known.labels[number]
        played.asked[number], played.threshold[number] = is_asked, ask.threshold
        losses = _losses(known, number, chosen)
        step = Step("escalate", ask.arms, 0, ask.probability, "asked" if is_asked else "kept", ask.confidence)
        waiting.append((losses, chosen, step))
        if len(waiting) > late:
            before, arms_asked, taken = waiting.popleft()
            state = policy.observe(state, arms, Lesson(arms_asked, (), before, steps=(taken,)))
            steps = policy.steps(state, arms) if number % 20 == 0 else steps
    return played


def _served(first: Sequence[int], chosen: Sequence[int], answers: NDArray[np.integer]) -> int:
    return int(answers[chosen[-1] if len(chosen) > len(first) else first[0]])


def _losses(known: Known, number: int, chosen: Sequence[int]) -> list[float | None]:
    answers, label = known.answers[number].tolist(), int(known.labels[number])
    return [float(answer != label) if arm in chosen else None for arm, answer in enumerate(answers)]


def _output(known: Known, number: int, arm: int) -> ModelOutput:
    scores = Tensor.of(known.scores[number]) if known.scores is not None and arm == 0 else None
    return ModelOutput(f"m{arm}", "1", Outcome.OK, int(known.answers[number, arm]), scores)
