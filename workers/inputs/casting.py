"""Casts numbers to the type and form that a model takes, row by row, where nothing is lost by it. Pure.

float64 becomes float32 if finite numbers stay finite. Whole numbers become floats, and floats become whole numbers, if
they stay equal. Another form with the same numbers in the same order, such as (1, 4) for (4,), is accepted. It also
tells whether one version takes the inputs of another, as far as their records or some rows tell.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from schemas.records import NamedTensors, Tensor
from workers.manifest import described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from schemas.records import Input, Model

# What tensors hold.
Numbers: TypeAlias = "NDArray[np.bool_ | np.integer | np.floating]"


def takes_alike(model: Model, other: Model) -> bool:
    """Tell whether one version surely takes the inputs of another; for texts the records do not say which texts.

    Floats for whole numbers are not sure: only the numbers tell whether they are whole (`takes_none`).
    """
    if model.dtype is None or other.dtype is None:
        return model.takes == other.takes
    return is_same_form(other.shape, model.shape) and np.can_cast(other.dtype, model.dtype, "same_kind")


def takes_none(model: Model, other: Model, rows: Sequence[Input]) -> bool:
    """Tell whether some rows fit the other version, and none fits this one."""
    return any(_takes(other, row) for row in rows) and not any(_takes(model, row) for row in rows)


def taken(model: Model) -> str:
    """Return the input of a version for people: `float32[4]`."""
    return "texts, bytes or columns" if model.takes is None else described(model.takes, model.shape)


def _takes(model: Model, row: Input) -> bool:
    if isinstance(row, NamedTensors):
        return {form.name for form in row.dtype} == {form.name for form in model.inputs}
    if not isinstance(row, Tensor):
        return model.takes is None
    if model.dtype is None:  # a row of a data frame's columns may be an array
        return True
    if not is_same_form(row.shape, model.shape) or len(row.data) != _bytes(row):
        return False
    return bool(cast(np.frombuffer(row.data, row.dtype), model.dtype)[1].all())


def _bytes(row: Tensor) -> int:
    return np.dtype(row.dtype).itemsize * math.prod(row.shape)


def is_same_form(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Tell whether two shapes hold the same numbers in the same order: dimensions of 1 do not count."""
    return [size for size in given if size != 1] == [size for size in wanted if size != 1]


def cast(numbers: Numbers, dtype: str) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return numbers as another type, and which of them are unchanged by it.

    Examples:
        >>> found, fits = cast(np.array([1.0, 0.5]), "int64")
        >>> found.tolist(), fits.tolist()
        ([1, 0], [True, False])
    """
    with np.errstate(all="ignore"):
        found = numbers.astype(dtype)
        return found, np.asarray(_fits(numbers, found), dtype=np.bool_)


def _fits(given: Numbers, found: Numbers) -> object:
    """Tell for each number whether it is unchanged."""
    if found.dtype.kind == "f" == given.dtype.kind:
        return np.isfinite(found) | ~np.isfinite(given)
    if found.dtype.kind in "iu" and given.dtype.kind == "f":
        return _is_within(given, found.dtype.name) & (found == given)
    if found.dtype.kind in "iu" and given.dtype.kind in "iu":
        return _is_within(given, found.dtype.name)
    if found.dtype.kind == "f" and given.dtype.kind in "iu":
        fits = _is_within(found, given.dtype.name)
        return fits & (np.where(fits, found, 0).astype(given.dtype) == given)
    return found.astype(given.dtype) == given  # from or to booleans


def _is_within(numbers: Numbers, whole: str) -> NDArray[np.bool_]:
    """Tell which numbers fit into a type of whole numbers; for floats the upper bound is a power of two."""
    bounds = np.iinfo(whole)
    if numbers.dtype.kind == "f":
        return (numbers >= float(bounds.min)) & (numbers < float(bounds.max + 1))
    return (numbers >= bounds.min) & (numbers <= bounds.max)
