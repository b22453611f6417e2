"""Rows of files from elsewhere: CSV, JSON lines, npz, Parquet."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

Row: TypeAlias = "Mapping[str, Any]"


def rows(path: Path) -> Iterator[Row]:
    """Yield a file's rows, by column; the file's ending says what it is.

    Raises:
        TraceError: it is none that is known, or not readable as such.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise TraceError(f"{path} is of no known kind; there are: {', '.join(_READERS)}")
    try:
        yield from read(path)
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{path} cannot be read as {path.suffix.lower()}: {error}") from error


def _csv(path: Path) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _json_lines(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            row = json.loads(line)
            if not isinstance(row, dict):
                raise TraceError(f"{path}, line {number}: an object is needed, not {type(row).__name__}")
            yield row


def _npz(path: Path) -> Iterator[Row]:
    """Yield one row for each index of the arrays' first dimension; a row may hold arrays."""
    with np.load(path, allow_pickle=False) as file:
        columns = {name: file[name] for name in file.files}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise TraceError(f"{path} has arrays of different lengths: { {n: len(c) for n, c in columns.items()} }")
    for index in range(*lengths):
        yield {name: column[index] for name, column in columns.items()}


def _parquet(path: Path) -> Iterator[Row]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            yield from batch.to_pylist()


_READERS: Final[Mapping[str, Callable[[Path], Iterator[Row]]]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".dsjson": _json_lines,
    ".npz": _npz,
    ".parquet": _parquet,
}
