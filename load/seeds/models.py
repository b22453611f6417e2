"""A model that takes its time, fails and hangs, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from load.seeds.plan import PARTITIONS
from schemas.records import Model, Outcome, Tensor
from streams.operators.contract import Predicted
from workers.errors import HungError
from workers.executors.thread import Elsewhere, Timed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from schemas.records import Input

# How often a model is right; others are wrong in most cases.
_RIGHT = {"good": 0.9}
_SELDOM_RIGHT = 0.3
LABELS = 3


def truth(number: int) -> int:
    """Return the label of an input."""
    return number % LABELS


def model(name: str) -> Model:
    """Return the record by which a model is deployed."""
    return Model(name, "1", "function", "/nowhere", "", "label", "float32", (1,), partitions=PARTITIONS)


class SimulatedModel(Elsewhere):
    """Implements `workers.executors.thread.Executor`.

    Args:
        name: of the model.
        random: draws how long it takes and what it answers.
        faulty: the share of batches that are slow, fail in part, or hang.
    """

    def __init__(self, name: str, random: Random, faulty: float) -> None:
        self._right = _RIGHT.get(name, _SELDOM_RIGHT)
        self._random = random
        self._faulty = faulty
        self.ready = False

    async def start(self) -> None:
        """Load, which takes a while."""
        await asyncio.sleep(self._random.uniform(0.01, 1.0))
        self.ready = True

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict after a while, or hang."""
        random = self._random
        predict_s = random.uniform(0.001, 0.01) + 0.0002 * len(inputs)
        outcomes = [Outcome.OK] * len(inputs)
        if random.random() < self._faulty:
            match random.randrange(10):
                case 0:
                    await asyncio.sleep(patience_s)
                    raise HungError("as the seed says")
                case 1 | 2 | 3:
                    outcomes = [random.choice((Outcome.OK, Outcome.FAILED)) for _ in inputs]
                case _:
                    predict_s *= random.uniform(5, 100)
        await asyncio.sleep(predict_s)
        answers = np.array([self._answer(given) for given in inputs])
        return Timed(Predicted(tuple(outcomes), answers), int(predict_s * 1e6))

    async def stop(self) -> None:
        """Let go of nothing."""

    def _answer(self, given: Input) -> int:
        assert isinstance(given, Tensor)
        label = truth(int(given.numpy()[0]))
        return label if self._random.random() < self._right else (label + 1) % LABELS
