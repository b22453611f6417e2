"""Three models whose answers stand in the row; the last one is slow.

A row holds the three answers, and for how many milliseconds the last model sleeps over it. Skysail runs each model in a
worker (packaged by dotted path). Systems that run models in line call them one after the other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
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
        said = [model(rows) for model in tuple(MODELS.values())[: self.models]]
        if self.models < len(MODELS):
            return said[0]
        return np.where(said[1] == said[2], said[1], said[0])
