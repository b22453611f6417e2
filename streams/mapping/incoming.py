"""Rows of other topics as queries and feedback."""

from __future__ import annotations

import struct
from datetime import date
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from schemas import topics
from schemas.errors import SchemaError
from schemas.inputs import as_features, as_input, as_label, named_tensors, row_text
from schemas.records import Feedback, KeyedFeedback, MetricFeedback, Query, Tensor
from schemas.told import as_places, by_id
from streams.mapping.errors import MappingError
from streams.mapping.fields import FieldSource, time_us
from streams.mapping.spec import NO_SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from schemas.records import Input, Value
    from streams.mapping.spec import Incoming, IncomingFeedback
    from streams.operators.contract import Record

    Row = Mapping[str, Any]

_NUMBERS: Final = (int, float)
_COUNTED: Final = frozenset({int, float, bool})
_CELLS: Final = (str, bool, int, float, date)
# Of an id or context: it travels with the query, its answer and its observation.
MOST_TEXT: Final = 4_096


class Made(NamedTuple):
    """A record for one of Skysail's own topics, and the key by which its partition is found."""

    key: bytes
    record: Query | Feedback | KeyedFeedback | MetricFeedback


def query_of(
    row: Row, application: str, record: Record, incoming: Incoming, now_us: int, *, is_named: bool = False
) -> Made:
    """Return the query that a row asks.

    Args:
        row: what is in the record.
        application: that is asked.
        record: it came in. Its place is the query's id where no field gives one.
        incoming: which fields are what.
        now_us: the time, from which its objective counts where no field says when it was sent.
        is_named: whether its models take rows by name: numbers alone then travel so, too, each as it stands.

    Raises:
        MappingError: a field is missing, or cannot be what it is meant to be.
    """
    place = f"{record.topic.removeprefix(topics.OUTSIDE)}-{record.partition}-{record.offset}"
    query_id = place if incoming.id is None else _text("id", incoming.id.of(row))
    context = None if incoming.key is None else _text("key", incoming.key.of(row))
    asked = _whole(row) if incoming.input == NO_SOURCE else _input(incoming.input, row, is_named=is_named)
    features = () if incoming.features is None else _features(incoming.features.of(row))
    sent_us = now_us if incoming.sent is None else time_us(incoming.sent, incoming.sent.of(row))
    slo_ms = None if incoming.slo_ms is None else _number("slo_ms", incoming.slo_ms.of(row))
    priority = 0 if incoming.priority is None else int(_number("priority", incoming.priority.of(row)))
    version = None if incoming.version is None else _text("version", incoming.version.of(row))
    query = Query(query_id, application, asked, context, sent_us, slo_ms, priority, features, version)
    return Made((query_id if context is None else context).encode(errors="surrogatepass"), query)


def feedback_of(row: Row, application: str, told: IncomingFeedback, record: Record) -> Made | None:
    """Return the feedback that a row gives; None: it says nothing yet, what it tells is null.

    Where a later record replaces an earlier one, it takes back what was told.

    Raises:
        MappingError: a field is missing, or cannot be what it is meant to be.
    """
    query_id = "" if told.id is None else _text("id", told.id.of(row))
    key = query_id if told.key is None else _text("key", told.key.of(row))
    what = _told(row, told)
    if what is None and not told.replaces:
        return None
    weight, sent_us, teacher = (
        _weight(row, told),
        _sent_us(row, told, record),
        record.topic.removeprefix(topics.OUTSIDE),
    )
    who = "", application, query_id if told.replaces else key, told.within_us
    made = KeyedFeedback(
        *who, sent_us=sent_us, revises=told.replaces, weight=weight, teacher=teacher, **({} if what is None else what)
    )
    is_by_id = not (told.replaces or told.within_us)
    return Made(key.encode(errors="surrogatepass"), by_id(made, query_id, sent_us) if is_by_id else made)


def _told(row: Row, told: IncomingFeedback) -> Mapping[str, Any] | None:
    """Return what a row tells, by fields of feedback: a label, a loss, places, or a metric; None: nothing yet."""
    if told.metric:
        came_to = None if told.value is None else told.value.of(row)
        return None if came_to is None else {"metric": told.metric, "value": _finite("value", came_to)}
    if told.places is not None:
        found = told.places.of(row)
        if not isinstance(found, list) and found is not None:
            raise MappingError("places", f"are a list, not {found!r:.80}")
        return {"places": as_places(found)} if found else None
    label = None if told.label is None else told.label.of(row)
    loss = None if told.loss is None else told.loss.of(row)
    if label is None and loss is None:
        return None
    if loss is not None and not 0.0 <= (loss := _number("loss", loss)) <= 1.0:
        raise MappingError("loss", f"is {loss:g}: a loss lies between 0 and 1")
    return {"label": None if label is None else _label(label), "loss": loss}


def _finite(name: str, value: Any) -> float:
    if not isfinite(found := _number(name, value)):
        raise MappingError(name, f"is {found:g}: a metric's value is a finite number")
    return found


def _weight(row: Row, told: IncomingFeedback) -> float | None:
    weight = None if told.weight is None else told.weight.of(row)
    if weight is not None and not (weight := _number("weight", weight)) > 0.0:
        raise MappingError("weight", f"is {weight:g}: a weight is above 0")
    return weight


def _sent_us(row: Row, told: IncomingFeedback, record: Record) -> int:
    return record.timestamp_us if told.sent is None else time_us(told.sent, told.sent.of(row))


def withdrawal_of(application: str, told: IncomingFeedback, record: Record) -> Made | None:
    """Return what takes back feedback; None: a record without a value means nothing here.

    It does where a later record replaces an earlier one and the query has no key of its own: then the record's key is
    its id, as in a compacted topic.

    Raises:
        MappingError: the key cannot be an id.
    """
    if not told.replaces or told.key is not None or record.key is None:
        return None
    try:
        query_id = _text("key", record.key.decode())
    except UnicodeDecodeError as error:
        raise MappingError("key", f"is no text: {error}") from error
    told_us, teacher = record.timestamp_us, record.topic.removeprefix(topics.OUTSIDE)
    taken_back = KeyedFeedback("", application, query_id, 0, None, None, told_us, revises=True, teacher=teacher)
    return Made(record.key, taken_back)


def _text(name: str, value: Any) -> str:
    """Return a text, or a whole number as one."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise MappingError(name, f"is a text or whole number, not {value!r:.80}")
    found = str(value)
    if not 0 < len(found) <= MOST_TEXT:
        raise MappingError(name, f"has 1 to {MOST_TEXT:,} characters, not {len(found):,}")
    return found


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise MappingError(name, f"is a number, not {value!r:.80}")
    try:
        return float(value)
    except OverflowError as error:
        raise MappingError(name, f"is too large a number: {value!r:.80}") from error


def _label(value: Any) -> Value:
    try:
        return as_label(int(value) if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError) as error:
        raise MappingError("label", str(error)) from error


def _features(value: Any) -> tuple[float, ...]:
    try:
        return as_features(value)
    except SchemaError as error:
        raise MappingError("features", str(error)) from error


def _whole(row: Row) -> Input:
    """Return all fields that can be columns as a row by name: a model takes those that it was fitted on."""
    cells = {name: value for name, value in row.items() if value is None or isinstance(value, _CELLS)}
    if not cells:
        raise MappingError("value", "has no field that can be a column: a number, a text, true, false or null")
    return row_text(cells)


def _input(given: FieldSource, row: Row, *, is_named: bool) -> Input:
    """Return what models are asked about: numbers as float32; else tensors or a row by name, or a text."""
    value = given.of(row)
    try:
        if given.columns:
            if not is_named and _COUNTED.issuperset(map(type, value)):
                return Tensor("float32", (len(value),), _floats(len(value))(*value))
            if any(isinstance(one, list) for one in value):
                return named_tensors(dict(zip(given.named, value, strict=True)))
            return row_text({name: _cell(name, one) for name, one in zip(given.named, value, strict=True)})
        if isinstance(value, list) or (isinstance(value, _NUMBERS) and not isinstance(value, bool)):
            return as_input(np.atleast_1d(np.asarray(value, np.float32)))
        return as_input(value)
    except MappingError:
        raise
    except (SchemaError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise MappingError(f"input {given.column or ''}".strip(), str(error)) from error


@lru_cache(256)
def _floats(count: int) -> Callable[..., bytes]:
    """Return what writes so many numbers as a tensor has them; it raises where one is too large for float32."""
    return struct.Struct(f"<{count}f").pack


def _cell(name: str, value: Any) -> Any:
    """Return what stands in a column."""
    if value is None or isinstance(value, _CELLS):
        return value
    raise MappingError(f"input {name}", f"is a number, a text, true, false or null, not {value!r:.80}")
