"""A run of rows, a column at a time; of Parquet no row is ever an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Cells: TypeAlias = "NDArray[Any] | list[Any]"


class RowBlock:
    """A run of a file's rows.

    Attributes:
        first: the place of its first row in the file.
        rows: how many.
        names: of the columns, in order.
        arrow: the same as a record batch of Arrow; None = it was read otherwise.
        is_text: whether all cells are texts, also those that are numbers, as in CSV.
        ids: what its rows are called that have no id of their own; None = by their places.
        keys: of records, by row; None = they are none.
        faults: why rows cannot be read, by row.
        until: the place behind its last row.
    """

    __slots__ = ("_cells", "arrow", "faults", "first", "ids", "is_text", "keys", "names", "rows", "until")

    def __init__(
        self, first: int, rows: int, cells: Mapping[str, Cells], arrow: Any = None, *, is_text: bool = False
    ) -> None:
        self.is_text = is_text
        self.ids: Sequence[str] | None = None
        self.keys: Sequence[bytes | None] | None = None
        self.faults: Mapping[int, str] = {}
        self.until = first + rows
        self.first = first
        self.rows = rows
        self.names = tuple(cells) if arrow is None else tuple(arrow.schema.names)
        self.arrow = arrow
        self._cells = dict(cells)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def column(self, name: str) -> Cells:
        """Return a column: an array of numbers, or a list in which None is nothing."""
        if name not in self._cells:
            self._cells[name] = [None] * self.rows if self.arrow is None else _plain(self.arrow.column(name))
        return self._cells[name]

    def flat(self, name: str) -> NDArray[Any] | None:
        """Return a column of lists of one length as an array (rows, length); None = it is no such column of Arrow."""
        if self.arrow is None or not self.rows:
            return None
        from pyarrow import types

        column = self.arrow.column(name)
        kind = column.type
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        if not is_list or column.null_count or not types.is_floating(kind.value_type):
            return None
        lengths = {*np.unique(column.value_lengths().to_numpy(zero_copy_only=False)).tolist()}
        if len(lengths) != 1:
            return None
        values: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
        return values.reshape(self.rows, lengths.pop())

    def listed(self, name: str) -> list[Any]:
        """Return a column as Python's own values."""
        if self.arrow is not None:
            found: list[Any] = self.arrow.column(name).to_pylist()
            return found
        cells = self.column(name)
        return cells.tolist() if isinstance(cells, np.ndarray) else cells

    def as_rows(self) -> Iterator[dict[str, Any]]:
        """Yield its rows by name."""
        columns = [self.listed(name) for name in self.names]
        if not columns:
            return ({} for _ in range(self.rows))
        return (dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True))


def _plain(column: Any) -> Cells:
    """Return a column of Arrow: numbers as an array, where nothing is NaN; all else as a list."""
    from pyarrow import types

    kind = column.type
    if types.is_floating(kind) or types.is_boolean(kind) or (types.is_integer(kind) and not column.null_count):
        numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if numbers.dtype != object:
            return numbers
    found: list[Any] = column.to_pylist()
    return found


def of_rows(first: int, rows: Sequence[Mapping[str, Any]]) -> RowBlock:
    """Return rows by column; what a row has not is nothing."""
    names = dict.fromkeys(name for row in rows for name in row)
    return RowBlock(first, len(rows), {name: [row.get(name) for row in rows] for name in names})
