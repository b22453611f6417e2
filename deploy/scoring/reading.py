"""Rows of files: Parquet, CSV, JSON lines, Avro.

FILE ─▶ RowBlock, RowBlock, ...     each of so many rows at most, and of so many bytes

A line that is no row of its kind stands in its place with the reason, and the others are read.
"""

from __future__ import annotations

import csv
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import fastavro
import orjson

from deploy.errors import DeployError, UsageError
from deploy.scoring.blocks import RowBlock, of_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

BLOCK_BYTES: Final = 64 << 20  # of rows as they are written; as Python's own values they take a few times that
LINE_BYTES: Final = 64 << 20  # of one row: twice the largest input, written as JSON numbers
_CELL_BYTES: Final = 16  # of a number that is no text
# What readers raise over a file that is not what its ending says.
_FAULTS: Final = (
    OSError, ValueError, TypeError, KeyError, EOFError, RecursionError, csv.Error, IndexError, NotImplementedError,
)  # fmt: skip


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
    groups: list[int] = []
    with _opened(path) as file:
        before, widest = 0, 1  # row groups that are over before `start` are not read
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            widest = max(widest, group.total_byte_size // max(1, group.num_rows))
            if groups or before + group.num_rows > start:
                groups.append(number)
            else:
                before += group.num_rows
        first, most = before, max(1, min(size, BLOCK_BYTES // widest))
        for batch in file.iter_batches(batch_size=most, row_groups=groups) if groups else ():
            skipped = max(0, min(start - first, batch.num_rows))
            first += batch.num_rows
            if skipped < batch.num_rows:
                left = batch.slice(skipped)
                yield RowBlock(first - left.num_rows, left.num_rows, {}, left)


class _ReadRow(NamedTuple):
    """A row, how many bytes it takes, and why it cannot be read; "" = it can."""

    row: Any
    size: int
    fault: str = ""


def _runs(rows: Iterator[_ReadRow], most: int) -> Iterator[list[_ReadRow]]:
    """Yield runs of rows, of so many and of `BLOCK_BYTES` at most; a larger row is a run of its own."""
    for first in rows:
        run, size = [first], first.size
        for each in islice(rows, most - 1) if size < BLOCK_BYTES else ():
            run.append(each)
            size += each.size
            if size >= BLOCK_BYTES:
                break
        yield run


def _faults(run: Iterable[_ReadRow]) -> dict[int, str]:
    return {place: each.fault for place, each in enumerate(run) if each.fault}


def _skip(rows: Iterator[object], most: int) -> int:
    """Pass over so many rows; returns how many there were."""
    return sum(1 for _ in islice(rows, most))


def _csv(path: Path, start: int, size: int) -> Iterator[RowBlock]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, strict=True)
        names = next(lines, [])
        if len({*names}) < len(names):
            raise ValueError(f"its first line names a column twice: {', '.join(names)[:200]}")
        rows = (line for line in lines if line)
        first = _skip(rows, start)
        for run in _runs((_fields(line, len(names)) for line in rows), size):
            columns = zip(*[each.row for each in run], strict=True)
            cells = {name: [*column] for name, column in zip(names, columns, strict=True)}
            block = RowBlock(first, len(run), cells, is_text=True)
            block.faults = _faults(run)
            yield block
            first += len(run)


def _fields(line: list[str], width: int) -> _ReadRow:
    size = sum(map(len, line))
    if len(line) == width:
        return _ReadRow(line, size)
    return _ReadRow((line + [""] * width)[:width], size, f"the line has {len(line)} fields, not {width}")


def _json_lines(path: Path, start: int, size: int) -> Iterator[RowBlock]:
    with path.open("rb") as file:
        pieces = iter(lambda: file.readline(LINE_BYTES), b"")
        lines = (line for line in _whole_lines(pieces) if line.strip())
        first = _skip(lines, start)
        yield from _by_row(first, map(_object, lines), size)


def _whole_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines; of one that is too long the beginning."""
    for piece in pieces:
        rest = piece
        while _is_cut(rest):
            rest = next(pieces, b"")
        yield piece


def _is_cut(piece: bytes) -> bool:
    return len(piece) == LINE_BYTES and not piece.endswith(b"\n")


def _object(line: bytes) -> _ReadRow:
    if _is_cut(line):
        return _ReadRow({}, 0, f"the line has more than {LINE_BYTES >> 20} MiB")
    try:
        row = orjson.loads(line)
    except ValueError as error:
        return _ReadRow({}, 0, f"the line is no JSON: {error}")
    if not isinstance(row, dict):
        return _ReadRow({}, 0, f"the line is a JSON object, not {type(row).__name__}")
    return _ReadRow(row, len(line))


def _avro(path: Path, start: int, size: int) -> Iterator[RowBlock]:
    with path.open("rb") as file:
        rows = iter(fastavro.reader(file))
        first = _skip(rows, start)
        yield from _by_row(first, map(_record, rows), size)


def _record(row: Any) -> _ReadRow:
    if not isinstance(row, dict):
        raise TypeError("its rows are no records: a schema of the type `record` is needed")
    return _ReadRow(row, sum(map(_bytes, row.values())))


def _bytes(cell: Any) -> int:
    """Return about how many bytes a cell takes."""
    if isinstance(cell, str | bytes):
        return len(cell)
    return _CELL_BYTES * len(cell) if isinstance(cell, list | dict) else _CELL_BYTES


def _by_row(first: int, rows: Iterator[_ReadRow], size: int) -> Iterator[RowBlock]:
    for run in _runs(rows, size):
        block = of_rows(first, [each.row for each in run])
        block.faults = _faults(run)
        yield block
        first += len(run)


_READERS: Final[Mapping[str, tuple[str, Callable[[Path, int, int], Iterator[RowBlock]]]]] = {
    ".parquet": ("parquet", _parquet),
    ".csv": ("csv", _csv),
    ".jsonl": ("json", _json_lines),
    ".ndjson": ("json", _json_lines),
    ".avro": ("avro", _avro),
}
