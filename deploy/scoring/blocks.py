"""Rows of files by columns: Parquet, CSV, JSON lines, Avro.

FILE ─▶ RowBlock, RowBlock, ...     a run of rows, a column at a time; of Parquet no row is ever an object
"""

from __future__ import annotations

import csv
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import fastavro
import numpy as np
import orjson

from deploy.errors import DeployError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Cells: TypeAlias = "NDArray[Any] | list[Any]"

LINE_BYTES: Final = 64 << 20  # of one row: twice the largest input, written as JSON numbers
# What readers raise over a file that is not what its ending says.
_FAULTS: Final = (
    OSError, ValueError, TypeError, KeyError, EOFError, RecursionError, csv.Error, IndexError, NotImplementedError,
)  # fmt: skip


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


def files(place: Path) -> list[Path]:
    """Return the files of a folder that can be read, in order of their names, or the one that is meant.

    Raises:
        UsageError: there is none, or they are of several kinds.
    """
    if not place.exists():
        raise UsageError(f"there is no {place}")
    if not place.is_dir():
        kind(place)
        return [place]
    hidden = (".", "_")
    found = sorted(path for path in place.rglob("*") if path.is_file() and not path.name.startswith(hidden))
    known = [path for path in found if path.suffix.lower() in _READERS]
    kinds = {kind(path) for path in known}
    if len(kinds) != 1:
        held = f"files of several kinds ({', '.join(sorted(kinds))})" if kinds else "no file that can be read"
        raise UsageError(f"{place} holds {held}; there are: {', '.join(_READERS)}")
    return known


def kind(path: Path) -> str:
    """Return the name of a file's kind, by its ending: parquet, csv, json, avro.

    Raises:
        UsageError: it is of none.
    """
    found = _READERS.get(path.suffix.lower())
    if found is None:
        raise UsageError(f"{path} is of no known kind; there are: {', '.join(_READERS)}")
    return found[0]


def count(path: Path) -> int | None:
    """Return how many rows a file has, where that is known without reading it."""
    if kind(path) != "parquet":
        return None
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def blocks(path: Path, start: int, size: int) -> Iterator[RowBlock]:
    """Yield a file's rows from `start` on, up to `size` at a time.

    Raises:
        UsageError: it is of no known kind.
        DeployError: it is not what its ending says.
    """
    kind(path)
    try:
        yield from _READERS[path.suffix.lower()][1](path, start, size)
    except _FAULTS as error:
        what = str(error) or type(error).__name__
        raise DeployError(f"{path} cannot be read as {path.suffix.lower()}: {what:.300}") from error


def _opened(path: Path) -> Any:
    from pyarrow import ArrowException, parquet

    try:
        return parquet.ParquetFile(path)
    except ArrowException as error:
        raise DeployError(f"{path} cannot be read as .parquet: {error}") from error


def _parquet(path: Path, start: int, size: int) -> Iterator[RowBlock]:
    with _opened(path) as file:
        groups, before = [], 0  # row groups that are over before `start` are not read
        for number in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(number).num_rows
            if groups or before + rows > start:
                groups.append(number)
            else:
                before += rows
        first = before
        for batch in file.iter_batches(batch_size=size, row_groups=groups) if groups else ():
            skipped = max(0, min(start - first, batch.num_rows))
            first += batch.num_rows
            if skipped < batch.num_rows:
                left = batch.slice(skipped)
                yield RowBlock(first - left.num_rows, left.num_rows, {}, left)


def _csv(path: Path, start: int, size: int) -> Iterator[RowBlock]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, strict=True)
        names = next(lines, [])
        if len({*names}) < len(names):
            raise ValueError(f"its first line names a column twice: {', '.join(names)[:200]}")
        rows = (line for line in lines if line)
        first = len([*islice(rows, start)]) if start else 0
        while chunk := [*islice(rows, size)]:
            for place, line in enumerate(chunk):
                if len(line) != len(names):
                    raise ValueError(f"row {first + place} has {len(line)} fields, not {len(names)}")
            cells = {name: [*column] for name, column in zip(names, zip(*chunk, strict=True), strict=True)}
            yield RowBlock(first, len(chunk), cells, is_text=True)
            first += len(chunk)


def _json_lines(path: Path, start: int, size: int) -> Iterator[RowBlock]:
    with path.open("rb") as file:
        lines = (line for line in iter(lambda: file.readline(LINE_BYTES), b"") if line.strip())
        first = sum(1 for _ in islice(lines, start))
        while chunk := [*islice(lines, size)]:
            yield of_rows(first, [_object(line, first + place) for place, line in enumerate(chunk)])
            first += len(chunk)


def _object(line: bytes, place: int) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except ValueError as error:
        raise ValueError(f"row {place} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise TypeError(f"row {place} is a JSON object, not {type(row).__name__}")
    return row


def _avro(path: Path, start: int, size: int) -> Iterator[RowBlock]:
    with path.open("rb") as file:
        rows = fastavro.reader(file)
        first = sum(1 for _ in islice(rows, start))
        while chunk := [*islice(rows, size)]:
            yield of_rows(first, chunk)
            first += len(chunk)


def of_rows(first: int, rows: Sequence[Mapping[str, Any]]) -> RowBlock:
    """Return rows by column; what a row has not is nothing."""
    names = dict.fromkeys(name for row in rows for name in row)
    return RowBlock(first, len(rows), {name: [row.get(name) for row in rows] for name in names})


_READERS: Final[Mapping[str, tuple[str, Callable[[Path, int, int], Iterator[RowBlock]]]]] = {
    ".parquet": ("parquet", _parquet),
    ".csv": ("csv", _csv),
    ".jsonl": ("json", _json_lines),
    ".ndjson": ("json", _json_lines),
    ".avro": ("avro", _avro),
}
