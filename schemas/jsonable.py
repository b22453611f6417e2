"""Records as JSON, for people and scripts: what `skysail tail` prints and what `skysail query` reads."""

from __future__ import annotations

import base64
import enum
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from schemas.errors import SchemaError
from schemas.records import DTYPES, Feedback, Input, Query, Tensor, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.avsc import Json

FromJson: TypeAlias = type[Query] | type[Feedback]

# Elements of a tensor shown, and characters of bytes; more says nothing to a reader of a terminal.
SHOWN = 8


def to_json(record: object, shown: int = SHOWN) -> dict[str, Json]:
    """Return a record as what `json.dumps` takes.

    Enumerations become their text, tensors `{"dtype", "shape", "values"}` with the first `shown` elements in C order
    and `"more"` for how many are left out, bytes `{"base64", "bytes"}` likewise shortened.
    """
    return {field.name: _value(getattr(record, field.name), shown) for field in fields(cast("Query", record))}


def _value(value: object, shown: int) -> Json:
    """Return one value of a record as JSON."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case enum.Enum():
            return str(value.value)
        case Tensor():
            return _tensor(value, shown)
        case bytes():
            return {"base64": base64.b64encode(value[: 3 * shown]).decode(), "bytes": len(value)}
        case tuple() | list():
            return [_value(item, shown) for item in value]
        case dict():
            return {str(key): _value(item, shown) for key, item in value.items()}
    return to_json(value, shown)


def _tensor(tensor: Tensor, shown: int) -> Json:
    """Return a tensor's dtype, shape and first elements; what is not finite becomes text, which JSON has no number for."""
    flat = tensor.numpy().reshape(-1)
    values = [item if np.isfinite(item) else str(item) for item in flat[:shown].tolist()]
    short: dict[str, Json] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "values": values}
    return short | {"more": flat.size - shown} if flat.size > shown else short


def query_from_json(document: Mapping[str, Json]) -> Query:
    """Return the query in a JSON object.

    `input` is a list (nested for more dimensions; float32), a string, `{"dtype", "values"[, "shape"]}` or `{"base64"}`.

    Raises:
        SchemaError: With the field's name, where one is missing, unknown or of the wrong type.
    """
    given = _known(document, Query)
    given["input"] = _input(given["input"])
    return Query(**given)  # type: ignore[arg-type]  # the encoder checks what JSON could not promise


def feedback_from_json(document: Mapping[str, Json]) -> Feedback:
    """Return the feedback in a JSON object; `label` may be a number, a string or, for scores, a list.

    Raises:
        SchemaError: With the field's name, where one is missing, unknown or of the wrong type.
    """
    given = _known(document, Feedback)
    label = given.get("label")
    if isinstance(label, list | dict):
        given["label"] = _input(label)
    return Feedback(**given)  # type: ignore[arg-type]  # the encoder checks what JSON could not promise
