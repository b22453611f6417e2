"""Rows from elsewhere as the records that a mapping makes of them: queries, feedback, observations."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from schemas import topics
from schemas.errors import SchemaError
from schemas.inputs import as_features, as_input, as_label
from schemas.records import Feedback, Observation, Query
from streams.mapping.errors import MappingError
from streams.mapping.fields import time_us
from streams.operators.contract import Record
from streams.trace.decided import loss_of, observation, record
from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from schemas.codec import Codec
    from streams.mapping.fields import FieldSource
    from streams.trace.mapping import TraceMapping
    from streams.trace.tables import Row

MOST_QUERIES: Final = 10_000_000  # of a row


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
        features = () if mapping.features is None else as_features(_numbers(mapping.features, row))
        application = str(mapping.application.of(row))
        asked = "" if mapping.input is None else _input(_numbers(mapping.input, row))
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


def _numbers(source: FieldSource, row: Row) -> Any:
    """Return a value; several are numbers, which in CSV are texts."""
    value = source.of(row)
    return [float(one) for one in value] if source.columns else value


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


def _time_us(row: Row, source: FieldSource | None, number: int) -> int:
    """Return a time, or how long something takes, in microseconds; nothing takes none."""
    if source is None:
        return 0
    try:
        return time_us(source, source.of(row))
    except MappingError as error:
        raise TraceError(f"row {number + 1}: {error}") from error
