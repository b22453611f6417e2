"""Makes a dataset of the log of an application: from the topics of a deployment, or from a recorded trace.

log ─▶ records of the application, by id, on disk ─▶ bucket by bucket: joined ─▶ part-000000.parquet, ...

What was there when it began is in it: topics are read to their present end. It is written beside its place and put
there whole. One that is interrupted is begun anew.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deploy.dataset.kinds import ColumnKinds
from deploy.dataset.rows import COLUMNS, row_of
from deploy.dataset.spill import BUCKETS, Spill
from deploy.errors import UsageError
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Observation, Observations, Prediction, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import Self

    from schemas.codec import Codec
    from streams.operators.contract import Record

READ: Final = (topics.QUERIES, topics.PREDICTIONS, topics.OBSERVATIONS)
PART_ROWS: Final = 250_000
_TOLD: Final = 10_000  # records between two words of progress


class DatasetReport(NamedTuple):
    """What a dataset holds.

    Attributes:
        rows: in it.
        labelled: of them have a label.
        with_loss: of them have a loss.
        without_input: of them have no input, since their queries are no longer kept.
        unanswered: queries without an answer, which are not in it.
        unreadable: records of the log that are none.
        oldest_input_us: when the oldest query was asked that is still there; None = there is none.
        files: that hold the rows.
    """

    rows: int
    labelled: int
    with_loss: int
    without_input: int
    unanswered: int
    unreadable: int
    oldest_input_us: int | None
    files: tuple[str, ...]


class _SpilledLog:
    """The records of one application, on disk."""

    def __init__(self, folder: Path, codec: Codec, application: str) -> None:
        self.queries, self.predictions = Spill(folder, "queries"), Spill(folder, "predictions")
        self.observations = Spill(folder, "observations")
        self.kinds = ColumnKinds()
        self.unreadable = 0
        self.oldest_us: int | None = None
        self._codec, self._application = codec, application

    def take(self, record: Record) -> None:
        """Keep a record, if it is of the application."""
        if record.value is None:
            return
        try:
            if record.topic == topics.QUERIES:
                self._query(self._codec.decode(Query, record.value), record)
            elif record.topic == topics.PREDICTIONS:
                self._prediction(self._codec.decode(Prediction, record.value), record.value)
            else:
                for seen in self._codec.decode(Observations, record.value).items:
                    self._observation(seen)
        except DecodeError:
            self.unreadable += 1

    def _query(self, asked: Query, record: Record) -> None:
        if asked.application == self._application and record.value is not None:
            self.kinds.note_input(asked.input)
            self.queries.put(asked.query_id, record.value)
            at_us = asked.sent_us or record.timestamp_us
            self.oldest_us = at_us if self.oldest_us is None else min(self.oldest_us, at_us)

    def _prediction(self, answered: Prediction, value: bytes) -> None:
        if answered.application == self._application:
            self.kinds.note("answer", answered.answer)
            self.predictions.put(answered.query_id, value)

    def _observation(self, seen: Observation) -> None:
        if seen.application == self._application:
            self.kinds.note("label", seen.label)
            self.observations.put(seen.query_id, self._codec.encode(seen))

    def close(self) -> None:
        for spill in (self.queries, self.predictions, self.observations):
            spill.close()


def build(
    records: Iterable[Record],
    codec: Codec,
    application: str,
    folder: Path,
    tell: Callable[[int], None],
    *,
    labelled_only: bool = False,
    form: str = "parquet",
) -> DatasetReport:
    """Write the dataset of an application.

    Args:
        records: of the topics `READ`.
        codec: of the deployment.
        application: name.
        folder: that is made.
        tell: is called with how many records have been read.
        labelled_only: leave out what has no label.
        form: parquet or jsonl.

    Raises:
        UsageError: the folder is there already, or the log holds no answer of the application.
    """
    if folder.exists():
        raise UsageError(f"{folder} is there already: name another folder, or remove it")
    unfinished = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    spilt = unfinished / ".log"
    gathered = _SpilledLog(spilt, codec, application)
    for number, record in enumerate(records, start=1):
        gathered.take(record)
        if not number % _TOLD:
            tell(number)
    gathered.close()
    if not gathered.predictions.count:
        shutil.rmtree(unfinished)
        raise UsageError(f"there are no answers of application {application} in that time; see `skysail app list`")
    report = _written(gathered, codec, unfinished, form, labelled_only=labelled_only)
    shutil.rmtree(spilt)
    about = {"application": application, **report._asdict(), "columns": _columns(gathered.kinds)}
    (unfinished / "dataset.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    unfinished.rename(folder)
    return report


def _columns(kinds: ColumnKinds) -> dict[str, str]:
    """Return what each column holds, inputs first."""
    found = {name: kinds.of(name) for name in kinds.names}
    return found | {name: kind or kinds.of(name) for name, kind in COLUMNS.items()}


def _written(gathered: _SpilledLog, codec: Codec, folder: Path, form: str, *, labelled_only: bool) -> DatasetReport:
    counts = dict.fromkeys(("rows", "labelled", "with_loss", "without_input", "unanswered"), 0)
    with _Parts(folder, form, _columns(gathered.kinds)) as parts:
        for number in range(BUCKETS):
            for row, has_input in _joined(gathered, codec, number, counts):
                if labelled_only and row["label"] is None:
                    continue
                counts["rows"] += 1
                counts["labelled"] += row["label"] is not None
                counts["with_loss"] += row["loss"] is not None
                counts["without_input"] += not has_input
                parts.add(row)
    return DatasetReport(
        **counts, unreadable=gathered.unreadable, oldest_input_us=gathered.oldest_us, files=tuple(parts.files)
    )


def _joined(
    gathered: _SpilledLog, codec: Codec, number: int, counts: dict[str, int]
) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield the rows of a bucket, and whether each has its input."""
    queries, seen = gathered.queries.bucket(number), gathered.observations.bucket(number)
    for query_id, value in gathered.predictions.bucket(number).items():
        asked = queries.pop(query_id, None)
        known = seen.get(query_id)
        yield (
            row_of(
                None if asked is None else codec.decode(Query, asked),
                codec.decode(Prediction, value),
                None if known is None else codec.decode(Observation, known),
                gathered.kinds,
            ),
            asked is not None,
        )
    counts["unanswered"] += len(queries)


class _Parts:
    """Files of so many rows each.

    Attributes:
        files: their names.
    """

    def __init__(self, folder: Path, form: str, columns: dict[str, str]) -> None:
        self._folder, self._form, self._columns = folder, form, columns
        self._rows: list[dict[str, Any]] = []
        self.files: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows:
            self._write()

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= PART_ROWS:
            self._write()

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        name = f"part-{len(self.files):06d}.{self._form}"
        self.files.append(name)
        if self._form == "jsonl":
            _write_lines(self._folder / name, rows)
        else:
            _write_parquet(self._folder / name, rows, self._columns)


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _write_parquet(path: Path, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    types = {
        "text": pa.string(), "whole": pa.int64(), "number": pa.float64(), "flag": pa.bool_(),
        "numbers": pa.list_(pa.float64()), "texts": pa.list_(pa.string()), "moment": pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
    arrays = [pa.array([row[name] for row in rows], types[kind]) for name, kind in columns.items()]
    parquet.write_table(pa.Table.from_arrays(arrays, names=[*columns]), path, compression="zstd")
