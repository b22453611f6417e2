"""The models of a plan as roles know them: their records, how workers batch them, and how they behave."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas.records import Model, Outcome
from streams.operators.contract import Predicted
from streams.testing import ModelBehaviour
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from streams.operators.contract import Load, Predict
    from workers.simulation.plan import RolePlan, SimulatedModel

_INSIDE_US: Final = 1_000  # a model inside selection that takes less keeps it from everything else
_CLASSES: Final = ("0", "1")


class RoleModels:
    """The models of a plan; a batch takes `more_us` longer than its model."""

    def __init__(self, plan: RolePlan, more_us: int) -> None:
        self._plan, self._more_us = plan, more_us

    def record(self, model: SimulatedModel) -> Model:
        """Return its record."""
        is_text = model.name in self._plan.answers
        return Model(
            model.name,
            "1",
            "function",
            "",
            "",
            "label" if is_text else "scores",
            "int64",
            (1,),
            () if is_text else _CLASSES,
            partitions=model.topic_partitions,
            bytes=self._plan.loads.get(model.name, (0, 0))[1],
        )

    def behaviour(self, model: SimulatedModel, random: np.random.Generator) -> ModelBehaviour:
        """Return what it answers, and how long that takes."""
        of_times, of_answers = random.spawn(2)
        draw, load_us = model.service.sampler(of_times), self._plan.loads.get(model.name, (0, 0))[0]
        texts = self._plan.answers.get(model.name, ())

        def predict(batch: Predict) -> tuple[Predicted, int]:
            return _answers(len(batch.rows), texts, of_answers), draw(len(batch.rows)) + self._more_us

        is_blocking = model.name in self._plan.inline and draw(1) < _INSIDE_US
        return ModelBehaviour(predict, partial(_loaded, load_us), is_blocking)


def worker_settings(model: SimulatedModel, *, is_inside: bool = False) -> WorkerSettings:
    """Return how workers batch a model."""
    return WorkerSettings(
        1, model.controller, model.parameters or None, model.objective_us, model.queue_rows, is_inside=is_inside
    )


def _loaded(load_us: int, _load: Load) -> tuple[str | None, int]:
    return None, load_us


def _answers(rows: int, texts: tuple[str, ...], random: np.random.Generator) -> Predicted:
    """Return texts as they are drawn, or one of two classes, as sure as it happens."""
    fine = (Outcome.OK,) * rows
    if texts:
        return Predicted(fine, tuple([texts[at] for at in random.integers(len(texts), size=rows).tolist()]))
    sure = random.uniform(0.5, 1.0, rows)
    return Predicted(fine, np.zeros(rows, np.int64), np.stack([sure, 1.0 - sure], axis=1))
