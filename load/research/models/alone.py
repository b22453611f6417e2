"""A linear SVM that looks at each row of a batch by itself, so that only its way there and back is shared."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from load.models.training import linear_svm, pixels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from load.models.training import Estimator


def svm(rows: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Answer `rows` (n, 64) of bytes by n calls of the estimator; the first batch waits until it is fitted."""
    estimator = _fitted()
    return np.concatenate([estimator.predict(rows[number : number + 1]) for number in range(len(rows))])


@cache
def _fitted() -> Estimator:
    svm: Estimator = linear_svm(pixels())
    return svm
