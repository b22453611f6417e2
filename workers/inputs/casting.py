"""What is as good as what a model takes: numbers of another type or form, where nothing is lost by it. Pure.

float64 becomes float32 where what is finite stays so; whole numbers become floats, and floats whole numbers, where they
stay equal; a form of the same numbers in the same order, as (1, 4) for (4,), is as good. Rows are cast one by one. Of
two versions it tells whether one takes what the other takes, as far as their records say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from schemas.records import Tensor
from workers.manifest import described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from schemas.records import Input, Model


def takes_alike(model: Model, other: Model) -> bool:
    """Tell whether a version takes what another one takes; of texts the records do not tell which."""
    if model.dtype is None or other.dtype is None:
        return model.dtype == other.dtype
    return _takes_numbers(model, other.dtype, other.shape)


def takes_none(model: Model, other: Model, rows: Sequence[Input]) -> bool:
    """Tell whether there are rows that fit another version, and not one that fits this one."""
    return any(_takes(other, row) for row in rows) and not any(_takes(model, row) for row in rows)


def taken(model: Model) -> str:
    """Say what a version takes: `float32[4]`."""
    return "texts, bytes or columns" if model.dtype is None else described(model.dtype, model.shape)


def _takes(model: Model, row: Input) -> bool:
    if not isinstance(row, Tensor):
        return model.dtype is None
    if model.dtype is None:  # of a data frame's columns a row may be an array
        return True
    return _takes_numbers(model, row.dtype, row.shape)


def _takes_numbers(model: Model, dtype: str, shape: tuple[int, ...]) -> bool:
    return is_same_form(shape, model.shape) and np.can_cast(dtype, str(model.dtype), "same_kind")


def is_same_form(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Tell whether two shapes hold the same numbers in the same order: dimensions of 1 tell nothing apart."""
    return [size for size in given if size != 1] == [size for size in wanted if size != 1]


def cast(numbers: NDArray[Any], dtype: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return numbers as another type, and which of them it holds without loss.

    Examples:
        >>> found, fits = cast(np.array([1.0, 0.5]), "int64")
        >>> found.tolist(), fits.tolist()
        ([1, 0], [True, False])
    """
    with np.errstate(all="ignore"):
        found = numbers.astype(dtype)
        return found, np.asarray(_fits(numbers, found), dtype=np.bool_)


def _fits(given: NDArray[Any], found: NDArray[Any]) -> Any:
    """Tell of each number whether it has stayed what it was."""
    if found.dtype.kind == "f" == given.dtype.kind:
        return np.isfinite(found) | ~np.isfinite(given)
    if found.dtype.kind in "iu" and given.dtype.kind == "f":
        return _is_within(given, found.dtype) & (found == given)
    if found.dtype.kind in "iu" and given.dtype.kind in "iu":
        return _is_within(given, found.dtype)
    if found.dtype.kind == "f" and given.dtype.kind in "iu":
        fits = _is_within(found, given.dtype)
        return fits & (np.where(fits, found, 0).astype(given.dtype) == given)
    return found.astype(given.dtype) == given  # from or to booleans


def _is_within(numbers: NDArray[Any], whole: np.dtype[Any]) -> Any:
    """Tell which numbers a type of whole numbers has room for; of a float the bound above is a power of two."""
    bounds = np.iinfo(whole)
    if numbers.dtype.kind == "f":
        return (numbers >= float(bounds.min)) & (numbers < float(bounds.max + 1))
    return (numbers >= bounds.min) & (numbers <= bounds.max)
