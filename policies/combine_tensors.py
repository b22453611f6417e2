"""Makes one answer of several models' named tensors, output by output.

    fractions        each number's weighted mean or median
    whole numbers    a weighted vote, of the whole output

So boxes are averaged and the class beside them is voted on. An output keeps its type and shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from schemas.records import NamedTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Middle = Callable[[Floats, Floats], Floats]
    Arrays = Sequence[NDArray[np.generic]]


def combine_tensors(weights: Floats, answers: Sequence[NamedTensors], middle: Middle) -> NamedTensors:
    """Return the answer of several models, which have one form.

    Args:
        weights: (n,), not negative, of which one is positive.
        answers: n of them.
        middle: returns the middle of (n, ...) values with n weights, (...).
    """
    columns = [answer.arrays() for answer in answers]
    names = columns[0].keys()
    return NamedTensors.named({name: _output(weights, [each[name] for each in columns], middle) for name in names})


def tensors_agree(one: NamedTensors, other: NamedTensors, near: float) -> bool:
    """Tell whether whole numbers are the same, and fractions so close (relatively)."""
    if one.dtype != other.dtype:
        return False
    pairs = zip(one.arrays().values(), other.arrays().values(), strict=True)
    return all(_is_near(left, right, near) for left, right in pairs)


def _output(weights: Floats, arrays: Arrays, middle: Middle) -> NDArray[np.generic]:
    if arrays[0].dtype.kind == "f":
        return np.asarray(middle(weights, np.stack(arrays).astype(np.float64)), arrays[0].dtype)
    votes: dict[bytes, float] = {}
    for weight, array in zip(weights.tolist(), arrays, strict=True):
        votes[array.tobytes()] = votes.get(array.tobytes(), 0.0) + weight
    best = max(votes, key=votes.__getitem__)  # the first of equals, which is the lowest arm's
    return next(array for array in arrays if array.tobytes() == best)


def _is_near(one: NDArray[np.generic], other: NDArray[np.generic], near: float) -> bool:
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    left, right = one.astype(np.float64), other.astype(np.float64)
    return bool((np.abs(left - right) <= near * np.maximum(np.abs(left), np.abs(right))).all())
