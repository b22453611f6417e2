"""Turns rows from elsewhere into queries and feedback, as a mapping says.

application: digits                                   the same for all, or {column: app}
time: {column: TIMESTAMP}                             ISO times, or with `unit`: s, ms, us
input: {columns: [ContextTokens, GeneratedTokens]}    numbers; {column: text}; or {value: [1.0]}
id: {column: request}                                 default: the file's name and the row's number
context: {column: user}
features: {columns: [age, hour]}
label: {column: answer}                               gives feedback; so does `loss`
delay: {column: answered_after, unit: ms}             of the feedback; or {value: 30}, in seconds
chosen, propensity, arms, cost, reward                of a decision; see `streams/trace/decided.py`
count: {column: requests}                             a row stands for so many queries, evenly over `over`
over: {value: 300}
"""

from __future__ import annotations

import difflib
import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from schemas import topics
from schemas.errors import SchemaError
from schemas.inputs import as_features, as_input, as_label
from schemas.records import Feedback, Observation, Query
from streams.operators.contract import Record
from streams.trace.decided import loss_of, observation, record
from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from schemas.codec import Codec
    from streams.trace.tables import Row

UNITS_US: Final[Mapping[str, float]] = {"s": 1e6, "ms": 1e3, "us": 1.0}
ISO: Final = "iso"
_KEYS: Final = ("column", "columns", "value", "unit", "low", "high", "by")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_US: Final = timedelta(microseconds=1)


class Source(NamedTuple):
    """Where a value comes from: a column, several, or the same for all rows; and how it is to be read.

    Attributes:
        column: its name; `c.user.age` is `age` in `user` in `c`, where there is no such column.
        columns: of numbers.
        value: the same for all rows.
        unit: of a time.
        bounds: of a cost or reward: the lowest and the highest.
        by: `place`: a number is a place among the arms, from 0 on.
    """

    column: str | None = None
    columns: tuple[str, ...] = ()
    value: Any = None
    unit: str | None = None
    bounds: tuple[float, float] | None = None
    by: str | None = None

    def of(self, row: Row) -> Any:
        """Return a row's value; several columns give a list of numbers.

        Raises:
            TraceError: the row has no such column.
        """
        try:
            if self.column is not None:
                return _cell(row, self.column)
            return [float(_cell(row, name)) for name in self.columns] if self.columns else self.value
        except KeyError as error:
            raise TraceError(f"there is no column {error}; there are: {', '.join(map(str, row))}") from None


def _cell(row: Row, name: str) -> Any:
    """Return a row's value of a column, or of a path through objects."""
    if name in row or "." not in name:
        return row[name]
    found: Any = row
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise KeyError(name)
        found = found[part]
    return found


@dataclass(frozen=True, slots=True)
class TraceMapping:
    """Which columns make queries and feedback; see the head of this file."""

    application: Source
    time: Source
    input: Source | None = None
    id: Source | None = None
    context: Source | None = None
    features: Source | None = None
    label: Source | None = None
    loss: Source | None = None
    delay: Source | None = None
    count: Source | None = None
    over: Source | None = None
    chosen: Source | None = None
    propensity: Source | None = None
    arms: Source | None = None
    cost: Source | None = None
    reward: Source | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose records it makes."""
        asked = (topics.QUERIES, topics.FEEDBACK) if self.input is not None else ()
        return (*asked, *((topics.OBSERVATIONS,) if self.chosen is not None else ()))

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
        needed = ["application", "time", *([] if "chosen" in document else ["input"])]
        needed += ["propensity"] if "chosen" in document else []
        missing = [name for name in needed if name not in document]
        if missing:
            raise TraceError(f"the mapping lacks {', '.join(missing)}")
        _check_decision(document)
        return cls(**{key: _source(key, value) for key, value in document.items()})


def _check_decision(document: Mapping[str, object]) -> None:
    told = [name for name in ("loss", "cost", "reward") if name in document]
    if len(told) > 1:
        raise TraceError(f"the mapping has {' and '.join(told)}: one says what a row cost")
    if "chosen" in document and not told:
        raise TraceError("the mapping lacks loss, cost or reward: what came of what was chosen")
    if "chosen" in document and "count" in document:
        raise TraceError("a row with `chosen` is one decision: leave out `count`")


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
    if (by := value.get("by")) not in (None, "name", "place"):
        raise TraceError(f"{key}.by is {by!r}; there are: name, place")
    columns = tuple(value.get("columns") or ())
    return Source(value.get("column"), columns, value.get("value"), unit, _bounds(key, value), by)


def _bounds(key: str, value: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return between what a cost or reward lies."""
    if "low" not in value and "high" not in value:
        return None
    try:
        low, high = float(value.get("low", 0.0)), float(value.get("high", 1.0))
    except (TypeError, ValueError) as error:
        raise TraceError(f"{key}: low and high are numbers: {error}") from error
    if not (low < high and isfinite(high - low)):
        raise TraceError(f"{key}: low is {low:g} and high {high:g}; make low the smaller one")
    return low, high


class _Later(NamedTuple):
    at_us: int
    number: int
    place: int  # feedback before what was observed with it
    told: Feedback | Observation
    key: bytes


def mapped(rows: Iterable[Row], mapping: TraceMapping, codec: Codec, name: str) -> Iterator[Record]:
    """Yield queries, feedback and observations as they would have been in Kafka, each topic in one partition, by time.

    Args:
        rows: the earliest first.
        mapping: which columns make what.
        codec: of the records.
        name: begins the ids, where no column gives them.

    Raises:
        TraceError: a row does not fit the mapping, or is earlier than the one before it.
    """
    later: list[_Later] = []
    offsets: Counter[str] = Counter()
    last_us = -1
    for number, row in enumerate(rows):
        for at_us, query in _queries(row, number, mapping, name):
            if at_us < last_us:
                raise TraceError(f"row {number + 1} is earlier than the one before it: sort the rows by time")
            last_us = at_us
            while later and later[0].at_us <= at_us:
                yield _written(heapq.heappop(later), offsets, codec)
            key = (query.query_id if query.context is None else query.context).encode()
            if mapping.input is not None:
                yield Record(topics.QUERIES, 0, offsets[topics.QUERIES], at_us, key, codec.encode(query))
            offsets[topics.QUERIES] += 1
            known_us = at_us + _time_us(row, mapping.delay, number)
            for place, told in enumerate(_all_told(row, query, mapping, number, at_us, known_us)):
                heapq.heappush(later, _Later(known_us, offsets[topics.QUERIES], place, told, key))
    while later:
        yield _written(heapq.heappop(later), offsets, codec)


def _all_told(
    row: Row, query: Query, mapping: TraceMapping, number: int, at_us: int, known_us: int
) -> Iterator[Feedback | Observation]:
    """Yield the feedback of a row, and what was observed where it says what was chosen."""
    if mapping.input is not None and (feedback := _told(row, query, mapping, number)) is not None:
        yield feedback
    if mapping.chosen is not None:
        its = query.query_id, query.application, query.context, query.features
        try:
            yield observation(row, mapping, *its, at_us, known_us)
        except (TypeError, ValueError) as error:
            raise TraceError(f"row {number + 1} does not fit the mapping: {error}") from error


def _written(later: _Later, offsets: Counter[str], codec: Codec) -> Record:
    topic = topics.FEEDBACK if isinstance(later.told, Feedback) else topics.OBSERVATIONS
    offset = offsets[topic]
    offsets[topic] += 1
    if isinstance(later.told, Feedback):
        return _feedback(later, later.told, offset, codec)
    return record(later.told, offset, codec)


def _queries(row: Row, number: int, mapping: TraceMapping, name: str) -> Iterator[tuple[int, Query]]:
    """Yield what a row stands for: one query, or a number of them evenly over a time."""
    try:
        at_us = _time_us(row, mapping.time, number)
        count = 1 if mapping.count is None else int(float(mapping.count.of(row)))
        over_us = _time_us(row, mapping.over, number)
        given = f"{name}-{number}" if mapping.id is None else str(mapping.id.of(row))
        context = None if mapping.context is None else str(mapping.context.of(row))
        features = () if mapping.features is None else as_features(mapping.features.of(row))
        application = str(mapping.application.of(row))
        asked = "" if mapping.input is None else _input(mapping.input.of(row))
    except (SchemaError, TypeError, ValueError) as error:
        raise TraceError(f"row {number + 1} does not fit the mapping: {error}") from error
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
        loss = loss_of(row, mapping)
        if (label is None or label == "") and loss is None:
            return None
        known = None if label is None or label == "" else as_label(_number(label))
        return Feedback(query.query_id, known, loss)
    except (TypeError, ValueError) as error:
        raise TraceError(f"row {number + 1} does not fit the mapping: {error}") from error


def _number(label: Any) -> Any:
    """Return a whole number that is written as text, as in CSV, as one; other labels as they are."""
    return int(label) if isinstance(label, str) and label.lstrip("-").isdecimal() else label


def _feedback(later: _Later, told: Feedback, offset: int, codec: Codec) -> Record:
    feedback = told._replace(sent_us=later.at_us)
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
