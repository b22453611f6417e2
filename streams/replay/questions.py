"""The questions of a query after its first one, as they were recorded: what had come by then, and what was expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.records import Outcome
from streams.operators.selection.admission import Admission
from streams.operators.selection.again.plan import OVERDUE
from streams.operators.selection.latencies import QUANTILE, Latencies
from streams.operators.selection.questions import OVERLOADED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import ModelOutput, ModelPredictions, Prediction


class RecordedLatencies(Latencies):
    """The latencies that selection went by when it made one prediction."""

    __slots__ = ("_last_chance_us", "_needed_us")

    def __init__(self) -> None:
        """Know nothing yet."""
        super().__init__()
        self._needed_us: dict[str, float] = {}
        self._last_chance_us: dict[str, int] = {}

    def follow(self, prediction: Prediction) -> None:
        """Take those of a prediction's steps."""
        self._needed_us, self._last_chance_us = {}, {}
        arms = () if prediction.decision is None else prediction.decision.arms
        for step in prediction.steps:
            for arm in step.arms:
                self._needed_us[arms[arm]] = float(step.needed_us)
                if step.kind == OVERDUE:
                    self._last_chance_us[arms[arm]] = step.at_us

    def add(self, model: str, latency_us: float, now_us: int) -> None:
        """Learn nothing: what was expected is recorded."""

    def miss(self, model: str, given_us: int, now_us: int) -> None:
        """Learn nothing, likewise."""

    def expected_us(self, models: tuple[str, ...], now_us: int) -> tuple[float, ...]:
        """Return what the step needed that asked each model."""
        return tuple([self._needed_us.get(model, 0.0) for model in models])

    def quantile_us(self, model: str, share: float = QUANTILE) -> int | None:
        """Return None: nothing is hedged again."""
        return None

    def last_chance_us(self, model: str, until_us: int) -> int | None:
        """Return when the model was asked because the answers before were overdue; None = it was not."""
        return self._last_chance_us.get(model)


class RecordedAdmission(Admission):
    """The refusals of one prediction's later questions; what was refused at first has no decision to replay."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        """Refuse nothing."""
        super().__init__()
        self._refused: frozenset[str] = frozenset()

    def follow(self, prediction: Prediction) -> None:
        """Take those of a prediction's steps."""
        arms = () if prediction.decision is None else prediction.decision.arms
        refused = [step for step in prediction.steps if step.outcome == OVERLOADED]
        self._refused = frozenset([arms[arm] for step in refused for arm in step.arms])

    def clear(self) -> None:
        """Refuse nothing again."""
        self._refused = frozenset()

    def admits(self, model: str, due_us: int, now_us: int, priority: int = 0) -> bool:
        """Tell whether no step says that a model has refused."""
        return model not in self._refused

    def ask(self, models: Sequence[str], due_us: int, now_us: int, rows: int = 1) -> None:
        """Count nothing."""

    def report(self, batch: ModelPredictions, now_us: int, *, is_beside: bool = False) -> None:
        """Learn nothing."""


def outputs_before(prediction: Prediction, number: int) -> tuple[ModelOutput, ...]:
    """Return the outputs that made a step due: of the models asked last, or of all where one of those failed.

    Args:
        prediction: with all its outputs.
        number: of the step, from 0.
    """
    decision, steps = prediction.decision, prediction.steps
    if decision is None:
        return ()
    later = {arm for step in steps[number:] for arm in step.arms}
    asked = [arm for arm in decision.chosen if arm not in later]
    latest = set(steps[number - 1].arms if number else asked)
    names = {decision.arms[arm] for arm in asked}, {decision.arms[arm] for arm in latest}
    before, last = (tuple([one for one in prediction.outputs if one.model in its]) for its in names)
    return last if all(output.outcome is Outcome.OK for output in last) else before
