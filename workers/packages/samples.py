"""Derives the kind of a model's input from sample rows: arrays, texts, bytes, or a data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from schemas.errors import SchemaError
from schemas.inputs import row_text
from schemas.records import Tensor
from workers.errors import PackageError
from workers.manifest import Signature

if TYPE_CHECKING:
    from schemas.records import Input

_KINDS = {"f": "float64", "i": "int64", "u": "int64", "b": "bool"}  # of a column, by the kind of its dtype


def batch(sample: Any) -> Any:
    """Return sample rows in a known form: an array or a list of texts, or a data frame as it is."""
    if is_frame(sample):
        return sample
    if hasattr(sample, "to_numpy"):  # a series
        sample = sample.to_numpy()
    if isinstance(sample, np.ndarray) and sample.ndim == 1 and sample.dtype.kind in "UOT":
        return sample.tolist()
    return sample


def is_frame(sample: Any) -> bool:
    """Tell whether it is a data frame of pandas, without importing pandas."""
    return all(hasattr(sample, name) for name in ("columns", "dtypes", "itertuples"))


def numbers_of(frame: Any) -> Any:
    """Return a data frame as an array, for an estimator that knows no columns.

    Raises:
        PackageError: it does not hold numbers only.
    """
    if all(dtype.kind in _KINDS for dtype in frame.dtypes):
        return frame.to_numpy()
    raise PackageError(
        "the estimator was fitted on an array, but the sample is a data frame with texts: give the sample as an array"
    )


def signature(sample: Any, *, allow_nan: bool) -> Signature:
    """Return the signature of one row.

    Raises:
        PackageError: these rows cannot travel.
    """
    if is_frame(sample):
        return _table(sample, allow_nan=allow_nan)
    if isinstance(sample, np.ndarray):
        if sample.ndim == 0 or len(sample) == 0:
            raise PackageError("the sample input must be a batch of at least one row, such as X[:5]")
        return Signature("tensor", sample.dtype.name, sample.shape[1:], allow_nan)
    rows = sample if isinstance(sample, list | tuple) else ()
    for kind, cls in (("string", str), ("bytes", bytes)):
        if rows and all(isinstance(row, cls) for row in rows):
            return Signature(kind)
    raise PackageError(
        "the sample input must be an array (n, ...), a list of strings or of byte strings, or a data frame of pandas"
    )


def inputs(sample: Any) -> list[Input]:
    """Return sample rows as they will travel.

    Raises:
        PackageError: a value in a data frame cannot.
    """
    if isinstance(sample, np.ndarray):
        return [Tensor.of(row) for row in sample]
    if not is_frame(sample):
        return [*sample]
    try:
        return [
            row_text(dict(zip(sample.columns, row, strict=True))) for row in sample.itertuples(index=False, name=None)
        ]
    except SchemaError as error:
        raise PackageError(f"the sample input: {error}") from error


def _table(frame: Any, *, allow_nan: bool) -> Signature:
    if not len(frame):
        raise PackageError("the sample input must be a batch of at least one row, such as X.head()")
    names = [*frame.columns]
    if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise PackageError("the columns of the data frame must have names, each its own: rows are given by them")
    columns = tuple((name, _column(name, frame[name])) for name in names)
    return Signature("table", allow_nan=allow_nan, columns=columns)


def _column(name: str, values: Any) -> str:
    kind = _KINDS.get(values.dtype.kind)
    if kind is not None:
        return kind
    if all(isinstance(value, str) for value in values.dropna()):
        return "category" if str(values.dtype) == "category" else "string"
    raise PackageError(
        f"column {name} holds {values.dtype}, which cannot travel: make numbers, booleans or texts of it before fitting"
    )
