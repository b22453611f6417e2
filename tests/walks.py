"""Logs of policies that ask several models, with what these have answered, and a policy that asks in turn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from policies.cascade import ASKED
from policies.contract import Ask
from schemas.records import Decision, JoinStatus, ModelOutput, Observation, Outcome, Step, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.lessons import Lesson
    from schemas.records import Value

ARMS = ("small", "middle", "large")
STEP_US = 1_000_000
OWN = f"{__name__}:InTurn"


@dataclass(frozen=True)
class Turns:
    """Asks the next arm for certain below a confidence of 0.6, by a coin below 0.8, else never."""

    first: tuple[int, ...] = (0,)

    def after(self, asked: tuple[int, ...], outputs: Mapping[int, ModelOutput]) -> Ask | None:
        """Return the next question."""
        if len(asked) == 3:
            return None
        scores = outputs[asked[-1]].scores
        assert scores is not None
        confidence = float(scores.numpy().max())
        return Ask((len(asked),), chance(confidence), confidence, 0.6)

    def chance(self, _: int, confidence: float) -> float:
        """Return how likely a question is."""
        return chance(confidence)

    def votes(self, answers: Mapping[int, Value | None]) -> Mapping[int, float]:
        """Return that the last one counts."""
        return {arm: float(arm == max(answers)) for arm in answers}


class InTurn:
    """A policy from outside that asks in turn and learns nothing."""

    def init(self, arms: int) -> tuple[float, ...]:
        """Return nothing."""
        return (0.0,)

    def propensities(self, state: tuple[float, ...], arms: int) -> tuple[float, ...]:
        """Return those of the first question."""
        return (1.0, *(0.0,) * (arms - 1))

    def select(self, state: tuple[float, ...], arms: int, u: float) -> tuple[int, ...]:
        """Return the first arm."""
        return (0,)

    def observe(self, state: tuple[float, ...], arms: int, lesson: Lesson) -> tuple[float, ...]:
        """Return the same."""
        return state

    def steps(self, state: tuple[float, ...], arms: int) -> Turns:
        """Return what it asks."""
        return Turns()


def chance(confidence: float) -> float:
    """Return how likely the next question is."""
    return 1.0 if confidence < 0.6 else 0.5 if confidence < 0.8 else 0.0


def output(arm: int, answer: int, confidence: float) -> ModelOutput:
    """Return what a model of two classes answers, and how sure it is."""
    scores = [1.0 - confidence] * 2
    scores[answer] = confidence
    return ModelOutput(ARMS[arm], "1", Outcome.OK, answer, Tensor.of(np.array(scores)))


def row(
    number: int, losses: Sequence[float], confidences: Sequence[float], chosen: tuple[int, ...],
    shares: tuple[float, ...], steps: tuple[Step, ...] = (),
) -> tuple[Observation, tuple[ModelOutput, ...]]:  # fmt: skip
    """Return a decision and its outputs: the label is 0, so a loss of 1 is the answer 1."""
    at, known = number * STEP_US, tuple([losses[arm] if arm in chosen else None for arm in range(3)])
    decision = Decision(chosen, number, "shop", "logged", ARMS, shares)
    its = None, decision, known, losses[chosen[-1]], 0, JoinStatus.JOINED, at, at + STEP_US // 2
    seen = Observation(f"q-{number}", "shop", *its, steps=steps)
    return seen, tuple([output(arm, int(losses[arm]), confidences[arm]) for arm in chosen])


def ensemble(count: int, seed: int = 0) -> list[tuple[Observation, tuple[ModelOutput, ...]]]:
    """Return the log of a policy that asks every model; a model errs less often where it is sure."""
    random, rows = np.random.default_rng(seed), []
    for number in range(count):
        confidences = [float(random.choice([0.55, 0.7, 0.95])) for _ in range(3)]
        losses = [float(random.random() < (1.0 - sure) * (1.2 - 0.5 * arm)) for arm, sure in enumerate(confidences)]
        rows.append(row(number, losses, confidences, (0, 1, 2), (1.0, 1.0, 1.0)))
    return rows


def population() -> tuple[list[tuple[Observation, tuple[ModelOutput, ...]]], float, float]:
    """Return the log of a policy that asks on by a coin, each case as often as it comes, and two means of losses.

    The one of `InTurn`, and the one of what was served.
    """
    rows: list[tuple[Observation, tuple[ModelOutput, ...]]] = []
    costs: list[float] = []
    paid: list[float] = []
    cases = product((0.0, 1.0), (0.0, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0))  # the last model is the best one
    for sure, second, losses in product((0.55, 0.7, 0.95), (0.55, 0.7), [*cases]):
        one, two = chance(sure), chance(second)
        costs.append((1.0 - one) * losses[0] + one * (1.0 - two) * losses[1] + one * two * losses[2])
        first = Step("escalate", (1,), 0, 0.5, "kept", sure)
        last = Step("escalate", (2,), 0, 0.5, "kept", second)
        for asked, shares, steps in (
            ((0,), (1.0, 0.5, 0.0), (first,)),
            ((0,), (1.0, 0.5, 0.0), (first,)),
            ((0, 1), (1.0, 0.5, 0.25), (first._replace(outcome=ASKED), last)),
            ((0, 1, 2), (1.0, 0.5, 0.25), (first._replace(outcome=ASKED), last._replace(outcome=ASKED))),
        ):
            for _ in range(3):  # each third of the log, whose losses are predicted from the others, is all of it
                rows.append(row(len(rows), losses, (sure, second, 0.9), asked, shares, steps))
            paid.append(losses[asked[-1]])
    return rows, float(np.mean(costs)), float(np.mean(paid))
