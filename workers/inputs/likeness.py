"""Whether one version takes the inputs of another, as far as their records tell. Pure.

Numbers that are cast without loss, and dimensions of 1, make no difference (`casting`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from schemas.records import Tensor
from workers.inputs.casting import is_same_form
from workers.manifest import described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input, Model


def takes_alike(model: Model, other: Model) -> bool:
    """Tell whether one version takes the inputs of another; for texts the records do not say which texts."""
    if model.dtype is None or other.dtype is None:
        return model.dtype == other.dtype
    return _takes_numbers(model, other.dtype, other.shape)


def takes_none(model: Model, other: Model, rows: Sequence[Input]) -> bool:
    """Tell whether some rows fit the other version, and none fits this one."""
    return any(_takes(other, row) for row in rows) and not any(_takes(model, row) for row in rows)


def taken(model: Model) -> str:
    """Return the input of a version for people: `float32[4]`."""
    return "texts, bytes or columns" if model.dtype is None else described(model.dtype, model.shape)


def _takes(model: Model, row: Input) -> bool:
    if not isinstance(row, Tensor):
        return model.dtype is None
    if model.dtype is None:  # a row of a data frame's columns may be an array
        return True
    return _takes_numbers(model, row.dtype, row.shape)


def _takes_numbers(model: Model, dtype: str, shape: tuple[int, ...]) -> bool:
    return is_same_form(shape, model.shape) and np.can_cast(dtype, str(model.dtype), "same_kind")
