"""Rows of files from elsewhere: CSV, JSON lines, npz, Parquet."""

from __future__ import annotations

import csv
import json
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

import numpy as np

from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

Row: TypeAlias = "Mapping[str, Any]"


# A line of a file, and all lines of one row of a CSV file: twice the largest input, written as JSON numbers.
LINE_BYTES: Final = 64 << 20
NPZ_BYTES: Final = 4 << 30  # of all arrays: they are held together
BATCH_ROWS: Final = 256  # of Parquet, read at a time
BATCH_BYTES: Final = 1 << 30
# What readers raise over a file that is not what its ending says: none of it is a fault of ours.
_FAULTS: Final = (
    OSError, ValueError, TypeError, KeyError, EOFError, RecursionError, MemoryError, NotImplementedError, csv.Error,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def rows(path: Path) -> Iterator[Row]:
    """Yield a file's rows, by column; the file's ending says what it is.

    Raises:
        TraceError: it is none that is known, not readable as such, or larger at one place than any that is meant.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise TraceError(f"{path} is of no known kind; there are: {', '.join(_READERS)}")
    try:
        if not path.is_file():
            raise TraceError(f"{path} is no file that can be read to its end; copy it to one first")
        yield from read(path)
    except _FAULTS as error:
        if isinstance(error, TraceError):
            raise
        what = str(error) or type(error).__name__
        raise TraceError(f"{path} cannot be read as {path.suffix.lower()}: {what:.300}") from error


class _Lines:
    """The lines of a text, of which one row may take so many bytes."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._left = LINE_BYTES

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(self._left):
            self._left -= len(line)
            if self._left <= 0:
                raise ValueError(f"a row takes more than {LINE_BYTES:,} characters")
            yield line

    def next_row(self) -> None:
        """Begin another row."""
        self._left = LINE_BYTES


def _csv(path: Path) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        lines = _Lines(file)
        for row in csv.DictReader(iter(lines)):
            yield row
            lines.next_row()


def lines_of(path: Path, errors: str = "strict") -> Iterator[tuple[int, str]]:
    """Yield a file's lines that are not empty, with their numbers from 1 on.

    Args:
        path: of the file.
        errors: what is done about bytes that are no UTF-8, as in `open`.

    Raises:
        OSError: it cannot be read.
        ValueError: a line is longer than any that is meant.
    """
    with path.open(encoding="utf-8", errors=errors) as file:
        lines = _Lines(file)
        for number, line in enumerate(lines, start=1):
            lines.next_row()
            if line.strip():
                yield number, line


def _json_lines(path: Path) -> Iterator[Row]:
    for number, line in lines_of(path):
        row = json.loads(line)
        if not isinstance(row, dict):
            raise TraceError(f"{path}, line {number}: an object is needed, not {type(row).__name__}")
        yield row


def _npz(path: Path) -> Iterator[Row]:
    """Yield one row for each index of the arrays' first dimension; a row may hold arrays."""
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > NPZ_BYTES:
        raise ValueError(f"its arrays take {size:,} bytes, and {NPZ_BYTES:,} are held at most")
    with np.load(path, allow_pickle=False) as file:
        columns = {name: file[name] for name in file.files}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise TraceError(f"{path} has arrays of different lengths: { {n: len(c) for n, c in columns.items()} }")
    for index in range(*lengths):
        yield {name: column[index] for name, column in columns.items()}


def _parquet(path: Path) -> Iterator[Row]:
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                if batch.nbytes > BATCH_BYTES:
                    raise ValueError(f"{batch.num_rows} of its rows take {batch.nbytes:,} bytes")
                yield from batch.to_pylist()
    except ArrowException as error:
        raise ValueError(str(error)) from error


_READERS: Final[Mapping[str, Callable[[Path], Iterator[Row]]]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".dsjson": _json_lines,
    ".npz": _npz,
    ".parquet": _parquet,
}
