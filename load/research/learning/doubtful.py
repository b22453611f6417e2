"""A policy of somebody's own that asks in turn and learns nothing: the next model in doubt, by a coin in some."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from policies.contract import Ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.lessons import Lesson
    from schemas.records import ModelOutput, Value


def chance(confidence: float) -> float:
    """Return how likely the judged policy asks on."""
    return 1.0 if confidence < 0.6 else 0.5 if confidence < 0.8 else 0.0


class Doubtful(NamedTuple):
    """Asks the next model by the last one's confidence."""

    first: tuple[int, ...] = (0,)

    def after(self, asked: tuple[int, ...], outputs: Mapping[int, ModelOutput]) -> Ask | None:
        """Return the next question."""
        if len(asked) == 3:
            return None
        scores = outputs[asked[-1]].scores
        confidence = 0.0 if scores is None else float(scores.numpy().max())
        return Ask((len(asked),), chance(confidence), confidence, 0.6)

    def chance(self, _: int, confidence: float) -> float:
        """Return how likely a question is."""
        return chance(confidence)

    def votes(self, answers: Mapping[int, Value | None]) -> Mapping[int, float]:
        """Return that the last answer counts."""
        return {arm: float(arm == max(answers)) for arm in answers}


class AskInTurn:
    """A policy of somebody's own that asks in turn and learns nothing."""

    def init(self, arms: int) -> tuple[float, ...]:
        """Return one number."""
        return (float(arms),)

    def propensities(self, _: tuple[float, ...], arms: int) -> tuple[float, ...]:
        """Return those of the first question."""
        return (1.0, *(0.0,) * (arms - 1))

    def select(self, _: tuple[float, ...], __: int, ___: float) -> tuple[int, ...]:
        """Return the first model."""
        return (0,)

    def observe(self, state: tuple[float, ...], _: int, __: Lesson) -> tuple[float, ...]:
        """Return the same."""
        return state

    def steps(self, _: tuple[float, ...], __: int) -> Doubtful:
        """Return what it asks."""
        return Doubtful()
