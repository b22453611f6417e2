"""Derives the kind of a model's input from sample rows: arrays, texts, bytes, or a data frame."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from schemas.errors import SchemaError
from schemas.inputs import row_text
from schemas.records import NamedTensors, dense_of, forms_of
from workers.errors import PackageError
from workers.manifest import MOMENT, Signature
from workers.runtimes.tables import PandasFrame

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from schemas.records import Input
    from workers.runtimes.contract import Rows
    from workers.runtimes.tables import Series

_log = logging.getLogger(__name__)
_KINDS = {"f": "float64", "i": "int64", "u": "int64", "b": "bool"}  # of a column, by the kind of its dtype


def batch(sample: object) -> Rows | PandasFrame:
    """Return sample rows in one of the forms that are known: an array, texts or byte strings, or a data frame as it is.

    Raises:
        PackageError: these are no rows that can travel.
    """
    if isinstance(sample, PandasFrame):
        return sample
    if isinstance(sample, Mapping):
        return _records({str(name): np.asarray(_plain(array)) for name, array in sample.items()})
    sample = _plain(sample)
    if np.ma.is_masked(sample):
        raise PackageError("some numbers of the sample input are masked: fill them")
    if isinstance(sample, np.ndarray):
        if sample.ndim != 1 or sample.dtype.kind not in "UOT":
            return sample
        sample = sample.tolist()
    if isinstance(sample, list | tuple) and sample:
        for cls in (str, bytes):
            if all(isinstance(row, cls) for row in sample):
                return sample
    raise PackageError(
        "the sample input must be an array (n, ...), arrays by name, a list of strings or of byte strings, or a data"
        " frame of pandas"
    )


def _plain(sample: Any) -> Any:
    """Return a series, or a tensor of torch, as an array."""
    if hasattr(sample, "to_numpy"):
        return sample.to_numpy()
    return sample.detach().cpu().numpy() if hasattr(sample, "detach") else sample


def _records(arrays: Mapping[str, NDArray[np.generic]]) -> NDArray[np.void]:
    """Return arrays by name, which have as many rows, as one array of records.

    Raises:
        PackageError: they have not, or are no numbers that can travel.
    """
    counts = {array.shape[:1] for array in arrays.values()}
    if len(counts) != 1 or not next(iter(counts)):
        raise PackageError("the arrays of the sample input must have as many rows each, (n, ...)")
    try:
        return NamedTensors.named(arrays, *counts).numpy()
    except ValueError as error:
        raise PackageError(f"the sample input: {error}") from error


def numbers_of(frame: PandasFrame) -> NDArray[np.generic]:
    """Return a data frame as an array, for an estimator that knows no columns.

    Raises:
        PackageError: it does not hold numbers only.
    """
    if all(dtype.kind in _KINDS for dtype in frame.dtypes):
        return frame.to_numpy()
    raise PackageError(
        "the estimator was fitted on an array, but the sample is a data frame with texts: give the sample as an array"
    )


def signature(
    sample: Rows | PandasFrame, *, allow_nan: bool, by_reference: bool = False, unused: Collection[str] = ()
) -> Signature:
    """Return the signature of one row.

    Args:
        sample: a batch.
        allow_nan: rows may hold NaN.
        by_reference: a text is the address of a row.
        unused: columns of a data frame that the model does not read; those that cannot travel are taken for such.

    Raises:
        PackageError: these rows cannot travel.
    """
    if isinstance(sample, PandasFrame):
        return replace(_table(sample, unused, allow_nan=allow_nan), by_reference=by_reference)
    if isinstance(sample, np.ndarray):
        if sample.ndim == 0 or len(sample) == 0:
            raise PackageError("the sample input must be a batch of at least one row, such as X[:5]")
        dtype = forms_of(sample.dtype) or sample.dtype.name
        return Signature("tensor", dtype, sample.shape[1:], allow_nan, by_reference=by_reference)
    return Signature("string" if isinstance(sample[0], str) else "bytes", by_reference=by_reference)


def kept(sample: Rows | PandasFrame, its: Signature) -> Rows | PandasFrame:
    """Return a sample without the columns that the model does not read."""
    if not isinstance(sample, PandasFrame):
        return sample
    frame: Any = sample
    found: PandasFrame = frame[[name for name, _ in its.read]]
    return found


def inputs(sample: Rows | PandasFrame) -> list[Input]:
    """Return sample rows as they will travel.

    Raises:
        PackageError: a value in a data frame cannot.
    """
    if isinstance(sample, np.ndarray):
        return [dense_of(row) for row in sample]
    if not isinstance(sample, PandasFrame):
        return [*sample]
    try:
        return [
            row_text(dict(zip(map(str, sample.columns), row, strict=True)))
            for row in sample.itertuples(index=False, name=None)
        ]
    except SchemaError as error:
        raise PackageError(f"the sample input: {error}") from error


def _table(frame: PandasFrame, unused: Collection[str], *, allow_nan: bool) -> Signature:
    if not len(frame):
        raise PackageError("the sample input must be a batch of at least one row, such as X.head()")
    names = [name for name in frame.columns if isinstance(name, str)]
    if len(names) < len([*frame.columns]) or len({*names}) < len(names):
        raise PackageError("the columns of the data frame must have names, each its own: rows are given by them")
    columns = tuple((name, "any" if name in unused else _column(frame[name])) for name in names)
    strangers = [f"{name} ({frame[name].dtype})" for name, kind in columns if kind == "any" and name not in unused]
    if strangers:
        _log.warning("the model is not given what cannot travel: %s", ", ".join(strangers))
    found = Signature("table", allow_nan=allow_nan, columns=columns)
    if not found.read:
        raise PackageError(f"no column can travel: {', '.join(strangers)}; make numbers, texts or moments of them")
    return found


def _column(values: Series) -> str:
    """Return the kind of a column; `any` of one whose values cannot travel."""
    kind = _KINDS.get(values.dtype.kind)
    if kind is not None:
        return kind
    if MOMENT.fullmatch(str(values.dtype)):
        return str(values.dtype)
    is_category = str(values.dtype) == "category"
    if all(isinstance(value, str) for value in values.dropna()):
        return "category" if is_category else "string"
    if is_category and all(isinstance(value, int | np.integer) for value in {*values.dropna()}):
        return "category_int64"
    return "any"
