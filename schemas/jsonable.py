"""Records as JSON, for people and scripts: `skysail tail` prints it, `skysail query` reads it."""

from __future__ import annotations

import base64
import enum
import math
from collections.abc import Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import numpy as np

from schemas.definitions import field_names
from schemas.errors import SchemaError
from schemas.inputs import as_candidates, as_features, has_fields, label_text, named_tensors, row_text
from schemas.records import DTYPES, Feedback, NamedTensors, Query, Tensor
from schemas.told import as_places

if TYPE_CHECKING:
    from schemas.avsc import Json
    from schemas.records import Input

# Elements of a tensor shown by default; more are useless on a terminal.
SHOWN = 8
_ARRAY = {"base64", "values"}  # either tells an array, or bytes


def to_json(record: object, shown: int = SHOWN) -> dict[str, Json]:
    """Return a record as what `json.dumps` takes.

    Enumerations become their text; tensors `{"dtype", "shape", "values"}` with the first `shown` elements in C order,
    named ones an object of such; bytes `{"base64", "bytes"}`, the text of the first `3 * shown` bytes and their number.
    """
    return {name: _value(getattr(record, name), shown) for name in field_names(type(record))}


def _value(value: object, shown: int) -> Json:
    """Return one value of a record as JSON."""
    match value:
        case bool() | int() | float() | str() | None:
            return value
        case list() | tuple() if not hasattr(value, "_fields"):
            return [_value(item, shown) for item in value]
        case Mapping():
            return {str(key): _value(item, shown) for key, item in value.items()}
        case enum.Enum():
            return str(value.value)
        case NamedTensors() | Tensor() | bytes():
            return _payload(value, shown)
        case _:
            return to_json(value, shown)


def _payload(value: Tensor | NamedTensors | bytes, shown: int) -> Json:
    """Return the beginning of a payload; elements that are not finite become text, as JSON has no number for them."""
    if isinstance(value, NamedTensors):
        return {name: _payload(Tensor.of(array), shown) for name, array in value.arrays().items()}
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value[: 3 * shown]).decode(), "bytes": len(value)}
    first = value.numpy().reshape(-1)[:shown].tolist()
    values: list[Json] = [item if math.isfinite(item) else str(item) for item in first]
    return {"dtype": value.dtype, "shape": list(value.shape), "values": values}


def query_from_json(document: Mapping[str, Json]) -> Query:
    """Return the query in a JSON object.

    `input` is a string, a number or list of numbers (nested for more dimensions; float32),
    `{"values": ..., "dtype": ...}` for another dtype, `{"base64": ...}` for bytes, or an object: with a value for each
    column, or of such arrays by name. `features` is a list of numbers,
    `candidates` a list of ids or of rows of numbers.

    Raises:
        SchemaError: With the field's name, where one is missing, unknown or of the wrong type.
    """
    given = _given(document, Query)
    given["input"] = _input("input", given["input"])
    if "features" in given:
        given["features"] = as_features(given["features"])
    if given.get("candidates") is not None:
        given["candidates"] = candidates_from_json(given["candidates"])
    return Query(**given)


def candidates_from_json(value: Json) -> Tensor | tuple[str, ...]:
    """Return a query's candidates: ids, or rows of features.

    Raises:
        SchemaError: they are none.
    """
    try:
        return as_candidates(value)  # type: ignore[arg-type]  # whatever JSON may hold: what is no row is refused
    except (TypeError, ValueError, OverflowError) as error:
        raise SchemaError(str(error) if isinstance(error, SchemaError) else f"candidates: {error}") from error


def feedback_from_json(document: Mapping[str, Json]) -> Feedback:
    """Return the feedback in a JSON object.

    `label` is a number, a string, for scores a list (float32), or an object: of tensors by name, or of the fields of a
    JSON answer. `places` is a list of
    objects with `position` or `item`, and `label` or `loss`.

    Raises:
        SchemaError: With the field's name, where one is missing, unknown or of the wrong type.
    """
    given = _given(document, Feedback)
    label = given.get("label")
    if isinstance(label, dict) and has_fields(label) and not _has_arrays(label):
        given["label"] = label_text(label)
    elif isinstance(label, list | dict):
        given["label"] = _input("label", label)
    if "places" in given:
        given["places"] = as_places(given["places"])
    return Feedback(**given)


def _given(document: Mapping[str, Json], record: type) -> dict[str, Any]:
    """Return a copy of the object once its names are known to be the record's."""
    known = signature(record).parameters
    for name in document:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise SchemaError(f"{record.__name__}.{name}: no such field; {hint}")
    for name, field in known.items():
        if name not in document and field.default is Parameter.empty:
            raise SchemaError(f"{record.__name__}.{name}: missing")
    return dict(document)


def _input(name: str, value: Json) -> Input:
    """Return an input (or a label of scores) in the form that `query_from_json` describes."""
    match value:
        case str():
            return value
        case {"base64": str(text), **rest} if not rest:
            return _decode_base64(name, text)
        case {"values": values, "dtype": str(dtype), **rest} if not rest and dtype in DTYPES:
            return _array(name, values, dtype)
        case bool() | int() | float() | list():
            return _array(name, value, "float32")
        case dict() if value and not _ARRAY & {*value}:
            if name == "label" or any(isinstance(one, list | dict) for one in value.values()):
                return _named(name, value)
            return row_text(value)
    raise SchemaError(
        f'{name}: a string, numbers, {{"values": ..., "dtype": ...}} with dtype one of {", ".join(DTYPES)}, '
        f'{{"base64": ...}}, or an object with a value for each column, is needed, not {value!r:.80}'
    )


def _has_arrays(label: Mapping[str, Json]) -> bool:
    """Tell whether a label is an array that says its type, or has such by name."""
    return any(_ARRAY & {*one} for one in (label, *label.values()) if isinstance(one, dict))


def _named(name: str, value: Mapping[str, Json]) -> NamedTensors:
    """Return arrays by name as named tensors."""
    found = {one: _input(f"{name}.{one}", given) for one, given in value.items()}
    try:
        return named_tensors(found)
    except TypeError as error:
        raise SchemaError(f"{name}: {error}") from error


def _decode_base64(name: str, text: str) -> bytes:
    """Return the bytes behind a base64 text."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise SchemaError(f"{name}: not base64, {error}") from error


def _array(name: str, values: Json, dtype: str) -> Tensor:
    """Return numbers as a tensor; the nesting of the lists is its shape."""
    try:
        return Tensor.of(np.asarray(values, dtype=dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"{name}: not an array of {dtype}, {error}") from error
