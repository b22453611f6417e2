"""Converts a user's input row or label to the form that travels. Nothing here depends on pandas.

array, list, Series, one row of a data frame ─▶ Tensor        mapping, row with texts ─▶ JSON text
string, bytes, Tensor ─▶ as they are                          numpy number ─▶ number
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from schemas.errors import SchemaError
from schemas.records import DTYPES, Tensor
from schemas.tables import row_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from schemas.records import Input, Value

# Anything with `to_numpy()`, as pandas' and polars' objects have, will do, too: `object` would swallow the others.
Row: TypeAlias = "Input | NDArray[np.generic] | Sequence[Any] | Mapping[str, Any] | float | np.generic | Any"
_WANTED = "an input is an array or list of numbers, a row of a data frame, a mapping, a string or bytes"


def as_input(x: Row) -> Input:
    """Make one input row; numbers keep their type, which workers bring to the model's where nothing is lost by it.

    Raises:
        TypeError: it is not numbers, a row, a string or bytes.
    """
    if isinstance(x, (Tensor, str, bytes)):
        return x
    if isinstance(x, Mapping):
        return _text(x)
    try:
        array = np.asarray(x.to_numpy() if hasattr(x, "to_numpy") else x)
    except ValueError as error:  # lists of different lengths
        raise TypeError(f"{_WANTED}, not a {type(x).__name__} that is no array: {error}") from error
    if array.dtype.kind not in "biuf" and hasattr(x, "to_dict"):
        return _named(x, array)
    if array.dtype.kind not in "biuf":
        of = {"U": "texts", "S": "bytes"}.get(array.dtype.kind, f"{array.dtype}s")
        raise TypeError(f"{_WANTED}, not a {type(x).__name__} of {of}")
    return _tensor(array)


def as_label(value: Any) -> Value:
    """Make a label: a number or text, numpy's too; a list or array of scores.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (Tensor, int, float, str)):
        return value
    array = np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"a label is a number, a text or a list of scores, not {type(value).__name__}: {value!r:.80}")
    return _tensor(array) if array.shape else as_label(array[()])


def _tensor(array: NDArray[Any]) -> Tensor:
    """Wrap an array, in the machine's order of bytes and a type that travels: halves and long doubles do not."""
    if array.dtype.name not in DTYPES:
        array = array.astype(np.float32 if array.dtype.itemsize < np.float64().itemsize else np.float64)
    return Tensor.of(array.astype(array.dtype.newbyteorder("="), copy=False))


def _named(x: Any, array: NDArray[Any]) -> Input:
    """Make a row with texts, or of numbers that pandas keeps as objects: one number a column, or a value by name."""
    values = array.ravel().tolist()
    if all(isinstance(value, (int, float)) for value in values):
        return _tensor(np.asarray(values).reshape(array.shape))
    found = x.to_dict()
    if array.ndim > 1:
        if len(array) != 1:
            raise TypeError(f"an input is one row of a data frame, not {len(array)}; take frame.iloc[0]")
        found = {name: next(iter(column.values())) for name, column in found.items()}
    return _text(found)


def _text(row: Mapping[str, Any]) -> str:
    """Write a row as the JSON text that a model of a data frame's columns takes."""
    try:
        return row_text(row)
    except SchemaError as error:
        raise TypeError(f"{_WANTED}: {error}") from error
