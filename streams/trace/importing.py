"""A trace of rows from elsewhere."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from streams.trace.manifest import TraceError
from streams.trace.mapped import mapped
from streams.trace.tables import rows
from streams.trace.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.trace.manifest import TraceManifest
    from streams.trace.mapping import TraceMapping

_AT_ONCE: Final = 10_000


def imported(file: Path, mapping: TraceMapping, folder: Path, about: TraceManifest, codec: Codec) -> TraceManifest:
    """Write a file's rows to a trace; return what that holds. One that was interrupted is completed.

    Args:
        file: CSV, JSON lines, npz or Parquet.
        mapping: which columns make queries, feedback and observations.
        folder: of the trace.
        about: for its manifest.
        codec: of the records.

    Raises:
        TraceError: the file cannot be read, a row does not fit, or the folder holds something else.
    """
    records = mapped(rows(file), mapping, codec, file.stem)
    with TraceWriter(folder, about, codec) as writer:
        for topic in mapping.topics:
            writer.expect(topic, {0: 0})
        while some := [*islice(_checked(records, file), _AT_ONCE)]:
            writer.add(some)
            writer.write()
    return writer.manifest


def _checked(records: Iterator[Record], file: Path) -> Iterator[Record]:
    """Yield records, until a row holds what no query can: a time in no year, half a letter."""
    try:
        yield from records
    except (OverflowError, RecursionError, UnicodeError) as error:
        raise TraceError(f"{file} has a row that does not fit the mapping: {error}") from error
