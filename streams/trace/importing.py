"""A trace of rows from elsewhere: by a mapping, where the first row that does not fit ends it; or of a `dsjson` log.

A log of a year has lines that no decision can be made of. They are left out, and told with their numbers.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from schemas.topics import OBSERVATIONS
from streams.trace.decided import record
from streams.trace.dsjson import TWICE, LeftOut, event, kept_share
from streams.trace.manifest import TraceError
from streams.trace.mapped import mapped
from streams.trace.tables import lines_of, rows
from streams.trace.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.trace.dsjson import DsjsonForm
    from streams.trace.manifest import TraceManifest
    from streams.trace.mapping import TraceMapping

_AT_ONCE: Final = 10_000
_SHOWN: Final = 5  # lines of each reason
_SURROGATES: Final = "surrogateescape"  # a line that is no UTF-8 is left out alone


class LinesLeftOut:
    """The lines of a log that were left out: how many by reason, and the first of each with its number.

    Attributes:
        counts: by reason.
        first: by reason, the first lines: `line 7: it lacks 'a'`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, list[str]] = {}

    def add(self, number: int, left: LeftOut) -> None:
        """Note one."""
        self.counts[left.reason] += 1
        shown = self.first.setdefault(left.reason, [])
        if len(shown) < _SHOWN:
            shown.append(f"line {number}: {left.detail:.200}" if left.detail else f"line {number}")


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
    records = _checked(mapped(rows(file), mapping, codec, file.stem), file)
    return _written(records, mapping.topics, folder, about, codec)


def imported_log(
    file: Path, form: DsjsonForm, folder: Path, about: TraceManifest, codec: Codec
) -> tuple[TraceManifest, LinesLeftOut]:
    """Write the events of a `dsjson` log to a trace; return what that holds, and what was left out.

    Args:
        file: a line an event.
        form: what the log does not say of itself.
        folder: of the trace.
        about: for its manifest.
        codec: of the records.

    Raises:
        TraceError: the file cannot be read, or holds no event that can be judged; or the folder holds something else.
    """
    left = LinesLeftOut()
    try:
        kept = min([kept_share(line) for _, line in lines_of(file, _SURROGATES)], default=1.0)
        events = _events(file, form._replace(kept=kept), codec, left)
        first = next(events, None)
        if first is None:
            why = "; ".join([f"{reason}: {lines[0]}" for reason, lines in left.first.items()])
            raise TraceError(f"{file} holds no event that can be judged{why and f' ({why})'}")
        return _written(chain([first], events), (OBSERVATIONS,), folder, about, codec), left
    except (OSError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{file} cannot be read: {error}") from error


def _events(file: Path, form: DsjsonForm, codec: Codec, left: LinesLeftOut) -> Iterator[Record]:
    """Yield an observation a line; note what is left out."""
    known: set[str] = set()
    last_us = 0
    for number, line in lines_of(file, _SURROGATES):
        found = event(line, form, f"{file.stem}-{number}", last_us)
        if not isinstance(found, LeftOut) and found.query_id in known:
            found = LeftOut(TWICE, found.query_id)
        if isinstance(found, LeftOut):
            left.add(number, found)
            continue
        yield record(found, len(known), codec)
        known.add(found.query_id)
        last_us = found.predicted_us


def _written(
    records: Iterator[Record], names: Iterable[str], folder: Path, about: TraceManifest, codec: Codec
) -> TraceManifest:
    with TraceWriter(folder, about, codec) as writer:
        for topic in names:
            writer.expect(topic, {0: 0})
        while some := [*islice(records, _AT_ONCE)]:
            writer.add(some)
            writer.write()
    return writer.manifest


def _checked(records: Iterator[Record], file: Path) -> Iterator[Record]:
    """Yield records, until a row holds what no query can: a time in no year, half a letter."""
    try:
        yield from records
    except (OverflowError, RecursionError, UnicodeError) as error:
        raise TraceError(f"{file} has a row that does not fit the mapping: {error}") from error
