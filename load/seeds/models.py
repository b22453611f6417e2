"""A model that takes its time, fails and hangs, in virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from load.seeds.plan import COMPUTING, PARTITIONS
from schemas.records import Model, Outcome, Tensor
from streams.operators.contract import Predicted
from workers.errors import HungError
from workers.executors.thread import Elsewhere, Timed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from numpy.typing import NDArray

    from schemas.records import Input

# How often a model is right; others are wrong in most cases.
_RIGHT = {"good": 0.9}
_SELDOM_RIGHT = 0.3
LABELS = 3
_SCALE = 1_000.0
_K = 2  # inputs whose sum a parity model is asked about


def truth(number: int) -> int:
    """Return the label of an input."""
    return number % LABELS


def model(name: str) -> Model:
    """Return the record by which a model is deployed."""
    known = partial(Model, name, "1", "function", "/nowhere", "", dtype="float32", shape=(1,), partitions=PARTITIONS)
    if name not in COMPUTING:
        return known(output="label")
    is_sum = name == COMPUTING[1]
    return known(output="scores", parity_of=f"{COMPUTING[0]}@1" if is_sum else "", parity_k=_K if is_sum else 0)


class SimulatedModel(Elsewhere):
    """Implements `workers.executors.thread.Executor`.

    Args:
        name: of the model.
        random: draws how long it takes and what it answers.
        faulty: the share of batches that are slow, fail in part, or hang.
    """

    def __init__(self, name: str, random: Random, faulty: float) -> None:
        self._name = name
        self._intercept = float(_K) if name == COMPUTING[1] else 1.0
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
        scores = self._computed(inputs)
        answers = np.array([self._answer(given) for given in inputs]) if scores is None else scores.argmax(axis=1)
        return Timed(Predicted(tuple(outcomes), answers, scores), int(predict_s * 1e6))

    async def stop(self) -> None:
        """Let go of nothing."""

    def _computed(self, inputs: Sequence[Input]) -> NDArray[np.float64] | None:
        """Return features (n, 2) that are affine in the input, or None if the model answers labels."""
        if self._name not in COMPUTING:
            return None
        rows = [[float(given.numpy()[0]) / _SCALE, self._intercept] for given in inputs if isinstance(given, Tensor)]
        return np.array(rows)

    def _answer(self, given: Input) -> int:
        assert isinstance(given, Tensor)
        label = truth(int(given.numpy()[0]))
        return label if self._random.random() < self._right else (label + 1) % LABELS
