"""A model that can be broken while it serves: the demo's stand-in for an upstream change that nobody announced.

It is a packaged scikit-learn model like the others, run through the `function` runtime. While the file `broken` exists
in the demo's folder, every digit it answers is one too high; nothing else about it changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workers.packages.loading import load_package

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

# The demo tells its workers where its folder is; outside the demo this model has no meaning.
FOLDER_VARIABLE = "DEMO_FOLDER"
INNER = "inner"
FLAG = "broken"


class Breakable:
    """The packaged model in `folder`, as long as nobody breaks it."""

    def __init__(self, folder: Path) -> None:
        self._runtime = load_package(folder / INNER).runtime
        self._flag = folder / FLAG

    def predict_batch(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        """Answer a batch, shape (n, 64), with n digits."""
        answers = np.asarray(self._runtime.predict_batch(rows).answers, dtype=np.int64)
        return broken(answers) if self._flag.exists() else answers


def broken(answers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what the model says instead of `answers` while it is broken: always wrong where it was right."""
    return (answers + 1) % 10
