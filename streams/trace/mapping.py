"""Turns rows from elsewhere into queries and feedback, as a mapping says.

application: digits                                   the same for all, or {column: app}
time: {column: TIMESTAMP}                             ISO times, or with `unit`: s, ms, us
input: {columns: [ContextTokens, GeneratedTokens]}    numbers; {column: text}; or {value: [1.0]}
id: {column: request}                                 default: the file's name and the row's number
context: {column: user}
features: {columns: [age, hour]}
label: {column: answer}                               gives feedback; so does `loss`
delay: {column: answered_after, unit: ms}             of the feedback; or {value: 30}, in seconds
count: {column: requests}                             a row stands for so many queries, evenly over `over`
over: {value: 300}
"""

from __future__ import annotations

import difflib
import heapq
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from schemas import topics
from schemas.errors import SchemaError
from schemas.inputs import as_features, as_input, as_label
from schemas.records import Feedback, Query
from streams.operators.contract import Record
from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from schemas.codec import Codec
    from streams.trace.tables import Row

UNITS_US: Final[Mapping[str, float]] = {"s": 1e6, "ms": 1e3, "us": 1.0}
ISO: Final = "iso"
MOST_QUERIES: Final = 10_000_000  # of a row
_KEYS: Final = ("column", "columns", "value", "unit")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_US: Final = timedelta(microseconds=1)


class Source(NamedTuple):
    """Where a value comes from: a column, several, or the same for all rows; and the unit of a time."""

    column: str | None = None
    columns: tuple[str, ...] = ()
    value: Any = None
    unit: str | None = None

    def of(self, row: Row) -> Any:
        """Return a row's value; several columns give a list of numbers.

        Raises:
            TraceError: the row has no such column.
        """
        try:
            if self.column is not None:
                return row[self.column]
            return [float(row[name]) for name in self.columns] if self.columns else self.value
        except KeyError as error:
            raise TraceError(f"there is no column {error}; there are: {', '.join(map(str, row))}") from None


@dataclass(frozen=True, slots=True)
class TraceMapping:
    """Which columns make queries and feedback; see the head of this file."""

    application: Source
    time: Source
    input: Source
    id: Source | None = None
    context: Source | None = None
    features: Source | None = None
    label: Source | None = None
    loss: Source | None = None
    delay: Source | None = None
    count: Source | None = None
    over: Source | None = None

    @classmethod
    def parse(cls, document: object) -> TraceMapping:
        """Return the mapping in a document, as YAML has it.

        Raises:
            TraceError: a key is unknown or missing.
        """
        if not isinstance(document, dict):
            raise TraceError("a mapping holds keys and values, such as `application: digits`")
        known = [one.name for one in fields(cls)]
        for key in document:
            if key not in known:
                raise TraceError(_unknown(str(key), known))
        missing = [name for name in ("application", "time", "input") if name not in document]
        if missing:
            raise TraceError(f"the mapping lacks {', '.join(missing)}")
        return cls(**{key: _source(key, value) for key, value in document.items()})


def _unknown(key: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(key, known, 1, cutoff=0.0)[0]
    return f"the mapping has an unknown key {key!r}: did you mean {nearest!r}? There are: {', '.join(known)}"


def _source(key: str, value: object) -> Source:
    if not isinstance(value, dict):
        return Source(value=value)
    for name in value:
        if name not in _KEYS:
            raise TraceError(_unknown(f"{key}.{name}", [f"{key}.{known}" for known in _KEYS]))
    unit = value.get("unit")
    if unit is not None and unit not in (*UNITS_US, ISO):
        raise TraceError(f"{key}.unit is {unit!r}; there are: {', '.join((*UNITS_US, ISO))}")
    return Source(value.get("column"), tuple(value.get("columns") or ()), value.get("value"), unit)


class _Later(NamedTuple):
    at_us: int
    number: int
    feedback: Feedback
    key: bytes


def mapped(rows: Iterable[Row], mapping: TraceMapping, codec: Codec, name: str) -> Iterator[Record]:
    """Yield queries and feedback as they would have been in Kafka, each topic in one partition, by time.

    Args:
        rows: the earliest first.
        mapping: which columns make what.
        codec: of the records.
        name: begins the ids, where no column gives them.

    Raises:
        TraceError: a row does not fit the mapping, or is earlier than the one before it.
    """
    later: list[_Later] = []
    asked = told = 0
    last_us = -1
    for number, row in enumerate(rows):
        for at_us, query in _queries(row, number, mapping, name):
            if at_us < last_us:
                raise TraceError(f"row {number + 1} is earlier than the one before it: sort the rows by time")
            last_us = at_us
            while later and later[0].at_us <= at_us:
                yield _feedback(heapq.heappop(later), told, codec)
                told += 1
            key = (query.query_id if query.context is None else query.context).encode()
            yield Record(topics.QUERIES, 0, asked, at_us, key, codec.encode(query))
            if (feedback := _told(row, query, mapping, number)) is not None:
                heapq.heappush(later, _Later(at_us + _time_us(row, mapping.delay, number), asked, feedback, key))
            asked += 1
    while later:
        yield _feedback(heapq.heappop(later), told, codec)
        told += 1


def _queries(row: Row, number: int, mapping: TraceMapping, name: str) -> Iterator[tuple[int, Query]]:
    """Yield what a row stands for: one query, or a number of them evenly over a time."""
    try:
        at_us = _time_us(row, mapping.time, number)
        count = 1 if mapping.count is None else int(float(mapping.count.of(row)))
        over_us = _time_us(row, mapping.over, number)
        given = f"{name}-{number}" if mapping.id is None else str(mapping.id.of(row))
        context = None if mapping.context is None else str(mapping.context.of(row))
        features = () if mapping.features is None else as_features(mapping.features.of(row))
        application, asked = str(mapping.application.of(row)), _input(mapping.input.of(row))
    except (SchemaError, TypeError, ValueError) as error:
        raise TraceError(f"row {number + 1} does not fit the mapping: {error}") from error
    if count > MOST_QUERIES:
        raise TraceError(
            f"row {number + 1} stands for {count:,} queries; write several rows for more than {MOST_QUERIES:,}"
        )
    for index in range(count):
        query_id = given if mapping.count is None else f"{given}-{index}"
        sent_us = at_us + over_us * index // max(1, count)
        yield sent_us, Query(query_id, application, asked, context, sent_us, features=features)


def _input(value: Any) -> Any:
    """Return an input; numbers without a type of their own become float32, as models take them."""
    return as_input(np.asarray(value, np.float32) if isinstance(value, list | int | float) else value)


def _told(row: Row, query: Query, mapping: TraceMapping, number: int) -> Feedback | None:
    """Return the feedback of a row; None where it has none."""
    try:
        label = None if mapping.label is None else mapping.label.of(row)
        loss = None if mapping.loss is None else mapping.loss.of(row)
        if (label is None or label == "") and (loss is None or loss == ""):
            return None
        known = None if label is None or label == "" else as_label(_number(label))
        return Feedback(query.query_id, known, None if loss is None or loss == "" else float(loss))
    except (TypeError, ValueError) as error:
        raise TraceError(f"row {number + 1} does not fit the mapping: {error}") from error


def _number(label: Any) -> Any:
    """Return a whole number that is written as text, as in CSV, as one; other labels as they are."""
    return int(label) if isinstance(label, str) and label.lstrip("-").isdecimal() else label


def _feedback(later: _Later, offset: int, codec: Codec) -> Record:
    feedback = later.feedback._replace(sent_us=later.at_us)
    return Record(topics.FEEDBACK, 0, offset, later.at_us, later.key, codec.encode(feedback))


def _time_us(row: Row, source: Source | None, number: int) -> int:
    """Return a time, or how long something takes, in microseconds; nothing takes none."""
    if source is None:
        return 0
    value = source.of(row)
    try:
        if source.unit == ISO or (source.unit is None and isinstance(value, str) and source.column is not None):
            time = datetime.fromisoformat(value)
            return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _ONE_US
        return round(float(value) * UNITS_US[source.unit or "s"])
    except (TypeError, ValueError) as error:
        raise TraceError(f"row {number + 1}: {value!r} is no time: {error}") from error
