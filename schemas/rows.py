"""Many input rows at once: a data frame, an array, or any iterable of rows. Nothing here imports pandas.

Each row becomes what it would be alone (`schemas.inputs.as_input`), or the error that says why it is no input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from schemas.errors import SchemaError
from schemas.inputs import as_input, has_arrays, named_tensors
from schemas.records import NamedTensors, Tensor, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from schemas.inputs import Frame, Row
    from schemas.records import Input

# Whatever `each_input` takes.
Rows: TypeAlias = "Iterable[Row] | NDArray[np.generic] | Frame"


class _PlacedRows(Protocol):
    """What pandas' frames have."""

    def __getitem__(self, row: int) -> Row: ...


def each_input(rows: Rows) -> Iterator[Input | TypeError | SchemaError]:
    """Yield each row as it travels, or why it cannot.

    Args:
        rows: of pandas or polars, an array whose first dimension is rows, such arrays by name, or rows as
            `Client.predict` takes them.

    Raises:
        TypeError: these are not rows but one, such as a text or a mapping.
    """
    if isinstance(rows, Mapping) and has_arrays(rows):
        return rows_of(named_tensors(rows, (len(next(iter(rows.values()))),)))
    if isinstance(rows, str | bytes | Mapping | Tensor | NamedTensors):
        raise TypeError(f"rows are needed, not a {type(rows).__name__}, which is one row: write [row]")
    if not isinstance(rows, Iterable):
        raise TypeError(f"rows are needed, not a {type(rows).__name__}")
    return map(_input, _rows(rows))


def _rows(rows: Rows) -> Iterable[Row]:
    if not hasattr(rows, "to_numpy") or len(getattr(rows, "shape", ())) != 2:
        return cast("Iterable[Row]", rows)
    array = cast("Frame", rows).to_numpy()
    if array.dtype.kind in "biuf":
        return cast("Iterable[Row]", array)
    if hasattr(rows, "iter_rows"):  # polars: its rows are mappings, as its columns keep their types
        return cast("Iterable[Row]", rows.iter_rows(named=True))
    placed = cast("_PlacedRows", rows.iloc)  # type: ignore[union-attr] # of pandas
    return (placed[row] for row in range(len(array)))


def _input(row: Row) -> Input | TypeError | SchemaError:
    try:
        return as_input(row)
    except (TypeError, SchemaError) as error:
        return error
