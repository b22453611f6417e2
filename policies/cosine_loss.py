"""The loss of an embedding: (1 - cosine) / 2 of two vectors, 0 in one direction and 1 in opposite ones.

Their lengths do not count. A vector of zeros has no direction: it is as far as a right angle from all that have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies.errors import LossError
from policies.losses import kind_of, of_tensors
from schemas.records import NamedTensors, Tensor

if TYPE_CHECKING:
    from policies.losses import Floats
    from schemas.records import Value


def cosine(answer: Value | None, label: Value | None) -> float:
    """Return (1 - cosine) / 2 of two vectors; of several tensors the mean over those that the label names.

    Raises:
        LossError: they are no vectors of one form.
    """
    if isinstance(answer, Tensor):
        if not isinstance(label, Tensor):
            raise LossError(f"the label is {kind_of(label)}; send a list of as many numbers as the answer has")
        answer, label = _alone(answer), _alone(label)
    if not isinstance(answer, NamedTensors):
        raise LossError(f"loss `cosine` is of vectors, and the answer is {kind_of(answer)}: take another loss")
    return of_tensors(answer, label, _apart)


def _apart(given: Floats, true: Floats) -> float:
    """Return a quarter of the squared distance of their directions, which is (1 - cosine) / 2; exact where equal."""
    if not np.isfinite(given).all():
        return 1.0
    one, other = _direction(given), _direction(true)
    if one.any() and other.any():
        return min(1.0, float(np.square(one - other).sum()) / 4.0)
    return 0.5 if one.any() or other.any() else 0.0  # what has no direction is as far from all of them


def _direction(vector: Floats) -> Floats:
    largest = np.abs(vector).max()
    if not largest:
        return vector
    scaled = vector / largest  # so that squares neither overflow nor vanish
    return np.asarray(scaled / np.sqrt(np.square(scaled).sum()))


def _alone(tensor: Tensor) -> NamedTensors:
    return NamedTensors.named({"answer": tensor.numpy()})
