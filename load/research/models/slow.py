"""Three models whose answers stand in the row; the last one is slow.

A row holds the three answers, and for how many milliseconds the last model sleeps over it. Skysail runs each model in a
worker (packaged by dotted path). Other systems call them one after the other, or each in a thread, with a time limit.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LATE = 3  # the column


def first(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer column 0 of `rows` (n, 4)."""
    return rows[:, 0].astype(np.int64)


def second(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer column 1."""
    return rows[:, 1].astype(np.int64)


def dawdling(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer column 2 after as long as the slowest row takes: a batch is as late."""
    time.sleep(float(rows[:, _LATE].max()) / 1e3)
    return rows[:, 2].astype(np.int64)


MODELS = {"first": first, "second": second, "dawdling": dawdling}


@dataclass(frozen=True, slots=True)
class InLine:
    """An estimator that asks the first of the models, one after the other, and answers what most say.

    Attributes:
        models: how many, 2 or 3.
    """

    models: int

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the answers to `rows` (n, 4); where no two agree, the first model's."""
        return _most([model(rows) for model in tuple(MODELS.values())[: self.models]])


@dataclass(frozen=True, slots=True)
class InThreads:
    """An estimator that asks all models at once, and answers without the last one if it takes too long.

    Attributes:
        wait_s: for how long the last one is waited for.
    """

    wait_s: float

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the answers to `rows` (n, 4), as `InLine` with three models, or with two."""
        *prompt, late = [_threads().submit(model, rows) for model in MODELS.values()]
        said = [future.result() for future in prompt]
        try:
            return _most([*said, late.result(self.wait_s)])
        except LateError:
            return _most(said)


def _most(said: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return what most say; the first one's where no two agree."""
    return said[0] if len(said) < len(MODELS) else np.where(said[1] == said[2], said[1], said[0])


@cache
def _threads() -> ThreadPoolExecutor:
    """Return threads, of which one that dawdles over an earlier batch leaves others free."""
    return ThreadPoolExecutor(4 * len(MODELS))
