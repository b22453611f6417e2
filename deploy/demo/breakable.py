"""A model that can be broken while it serves: the demo's stand-in for an upstream change that nobody announced.

It is a packaged scikit-learn model like the others, run through the `function` runtime. While the file `broken` exists
beside the package, every digit it answers is one too high; nothing else about it changes.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workers.packaging import load_package

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workers.runtimes.contract import Runtime

# The demo tells its workers where its folder is; outside the demo this model has no meaning.
FOLDER_VARIABLE = "DEMO_FOLDER"
INNER = "inner"
FLAG = "broken"


def predict_batch(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer a batch, shape (n, 64), with n digits."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    answers = np.asarray(_inner(folder / INNER).predict_batch(rows).answers, dtype=np.int64)
    return broken(answers) if (folder / FLAG).exists() else answers


def broken(answers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what the model says instead of `answers` while it is broken: always wrong where it was right."""
    return (answers + 1) % 10


@cache
def _inner(package: Path) -> Runtime | Any:
    return load_package(package).runtime
