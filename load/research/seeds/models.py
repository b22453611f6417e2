"""A model that takes its time, fails and hangs, in virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from load.research.seeds.plan import COMPUTING, PARTITIONS
from schemas.records import Model, Outcome, Tensor
from streams.operators.contract import Predicted
from workers.errors import HungError
from workers.executors.thread import OffLoopExecutor, Timed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from numpy.typing import NDArray

    from schemas.records import Input

# How often a version of a model is right; others are wrong in most cases.
_RIGHT = {("good", "1"): 0.9, ("good", "2"): 0.8, ("bad", "2"): 0.6}
_SELDOM_RIGHT = 0.3
_SLOW_S = 3.0  # longer than anybody waits
# A model is timed on so many batches before it is asked at once, at first and after it was wrong there.
_PROOFS, _PROOFS_AGAIN = 2, 10
_COY = 0.01  # of the times that it is asked at once, when it is not known to be quick
LABELS = 3
_SCALE = 1_000.0
_K = 2  # inputs whose sum a parity model is asked about


def truth(number: int) -> int:
    """Return the label of an input."""
    return number % LABELS


def said(name: str, version: str, number: int) -> int:
    """Return what a version of a model answers to an input, whoever asks it and however often."""
    drawn = blake2b(f"{name}@{version} {number}".encode(), digest_size=4).digest()
    is_right = int.from_bytes(drawn) / 2**32 < _RIGHT.get((name, version), _SELDOM_RIGHT)
    return truth(number) if is_right else (truth(number) + 1) % LABELS


def model(name: str, version: str = "1", **more: Any) -> Model:
    """Return the record by which a model is deployed."""
    known = partial(
        Model, name, version, "function", "/nowhere", "", dtype="float32", shape=(1,), partitions=PARTITIONS
    )
    if name not in COMPUTING:
        return known(output="label", **more)
    is_sum = name == COMPUTING[1]
    return known(output="scores", parity_of=f"{COMPUTING[0]}@1" if is_sum else "", parity_k=_K if is_sum else 0)


class SimulatedModel(OffLoopExecutor):
    """Implements `workers.executors.thread.Executor`.

    Args:
        name: of the model.
        random: draws how long it takes and what it answers.
        faulty: the share of batches that are slow, fail in part, or hang.
        version: of the model.
        slow: the share of batches that take longer than anybody waits.
    """

    def __init__(self, name: str, random: Random, faulty: float, version: str = "1", slow: float = 0.0) -> None:
        self._name = name
        self._version = version
        self._intercept = float(_K) if name == COMPUTING[1] else 1.0
        self._random = random
        self._faulty = faulty
        self._slow = slow
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
        if self._slow and random.random() < self._slow:
            predict_s += _SLOW_S
        await asyncio.sleep(predict_s)
        scores = self._computed(inputs)
        answers = np.array([self._answer(given) for given in inputs]) if scores is None else scores.argmax(axis=1)
        return Timed(Predicted(_taken(outcomes, inputs), answers, scores), int(predict_s * 1e6))

    async def stop(self) -> None:
        """Let go of nothing."""

    def _computed(self, inputs: Sequence[Input]) -> NDArray[np.float64] | None:
        """Return features (n, 2) that are affine in the input, or None if the model answers labels."""
        if self._name not in COMPUTING:
            return None
        rows = [[float(given.numpy()[0]) / _SCALE, self._intercept] for given in inputs if isinstance(given, Tensor)]
        return np.array(rows)

    def _answer(self, given: Input) -> int:
        self._random.random()  # what seeds have found they find again: all that is drawn after it stays as it was
        number = float(given.numpy()[0]) if isinstance(given, Tensor) else 0.0
        return said(self._name, self._version, int(number) if isfinite(number) else 0)


def _taken(outcomes: Sequence[Outcome], inputs: Sequence[Input]) -> tuple[Outcome, ...]:
    """Return outcomes as they are for rows of numbers; models take no others."""
    its = zip(outcomes, inputs, strict=True)
    return tuple([outcome if isinstance(given, Tensor) else Outcome.INVALID for outcome, given in its])


class InstantModel(SimulatedModel):
    """One that is asked at once where it is known to be quick, as `ThreadExecutor` is; now and then that goes wrong."""

    def __init__(self, name: str, random: Random, faulty: float, version: str = "1", slow: float = 0.0) -> None:
        super().__init__(name, random, faulty, version, slow)
        self._proofs = _PROOFS
        self._running = 0

    def instant(self, rows: int) -> int:
        """Return how many rows may be asked at once: mostly all; none while a batch runs."""
        if self._running:
            return 0
        drawn = self._random.random()
        if self._proofs or drawn < _COY:
            return 0
        return rows if drawn < 0.9 else self._random.randint(1, rows)

    def run_quick(self, inputs: Sequence[Input], patience_s: float) -> Timed | None:
        """Answer at once, or refuse a row, leave all to `run`, or break."""
        random, outcomes = self._random, [Outcome.OK] * len(inputs)
        if random.random() < self._faulty:
            self._proofs = _PROOFS_AGAIN
            match random.randrange(3):
                case 0:
                    raise ValueError("as the seed says")
                case 1:
                    return None
                case _:
                    outcomes[random.randrange(len(inputs))] = Outcome.INVALID
        answers = np.array([self._answer(given) for given in inputs])
        return Timed(Predicted(_taken(outcomes, inputs), answers), random.randint(50, 900))

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict after a while, which is timed."""
        self._running += 1
        try:
            timed = await super().run(inputs, patience_s)
        finally:
            self._running -= 1
        self._proofs = max(0, self._proofs - 1)
        return timed
