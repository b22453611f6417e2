"""Rows of a data frame: each travels as a JSON text with a value for each column, by name or in order. Pure.

'{"age": 41, "job": "nurse"}'  or  '[41, "nurse"]'  ─▶  (41.0, "nurse")
"""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from schemas.records import Tensor
from workers.manifest import MOMENT, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input
    from workers.manifest import Signature

# Larger magnitudes overflow when they are squared in float32 or summed in float64. scikit-learn's models disagree about
# which of them they refuse. No measured feature comes near.
MAGNITUDE = 1e30
# The placeholder for a row that was not given.
_BLANKS = {"float64": 0.0, "int64": 0, "bool": False, "string": "", "category": "", "category_int64": 0}
_TEXTS = {"string", "category"}
_NUMBERS = {"float64", "int64", "bool", "category_int64", "any"}
# A moment's part of a second, and how many units a second has.
_FRACTION = re.compile(r"[.,](\d+)")
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def blank_row(signature: Signature) -> str:
    """Return a row of zeros and empty texts."""
    return json.dumps({name: _blank(kind) for name, kind in signature.read})


def _blank(kind: str) -> object:
    moment = MOMENT.fullmatch(kind)
    return ("1970-01-01T00:00:00Z" if moment[2] else "1970-01-01T00:00:00") if moment else _BLANKS[kind]


def parsed(signature: Signature, row: Input) -> tuple[object, ...] | str:
    """Return the values of a row in the order of the columns that the model reads, or its fault."""
    values = _values(signature, row)
    if isinstance(values, str):
        return values
    found = []
    for (name, kind), value in zip(signature.columns, values, strict=True):
        if kind == "any":
            continue
        fits, plain = _plain(kind, value, allow_missing=signature.allow_nan)
        if not fits:
            return f"column {name} takes {_named(kind)}, got {_shown(value)}"
        found.append(plain)
    return tuple(found)


def _values(signature: Signature, row: Input) -> Sequence[object] | str:
    if isinstance(row, Tensor):
        return _numbers(signature, row)
    if not isinstance(row, str):
        return f"takes {signature}, as a JSON text, got bytes"
    try:
        found = json.loads(row)
    except (ValueError, RecursionError):
        return f"takes {signature}, as a JSON text, got {row[:40]!r}"
    if isinstance(found, dict):
        missing = [name for name, _ in signature.read if name not in found]
        return f"has no column {missing[0]}" if missing else [found.get(name) for name, _ in signature.columns]
    if isinstance(found, list) and len(found) == len(signature.columns):
        return found
    got = f"{len(found)} values" if isinstance(found, list) else _shown(found)
    return f"takes {len(signature.columns)} columns ({named(signature.columns)}), got {got}"


def _numbers(signature: Signature, row: Tensor) -> Sequence[object] | str:
    """Return the numbers of an array, if all columns are numbers."""
    is_plain = all(kind in _NUMBERS for _, kind in signature.columns)
    numbers = row.numpy().ravel().tolist() if is_plain else ()
    if len(numbers) == len(signature.columns):
        return numbers
    return f"takes {signature}, as a JSON text, got {row.dtype}{[*row.shape]}"


def _plain(kind: str, value: object, *, allow_missing: bool) -> tuple[bool, object]:
    """Return whether a value fits a column unchanged, and the value."""
    moment = MOMENT.fullmatch(kind)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        nothing: object = np.datetime64("NaT") if moment else math.nan
        return allow_missing and (moment is not None or kind in {"float64", *_TEXTS}), nothing
    if moment:
        found = _moment(value, moment[1], is_zoned=moment[2] is not None)
        return found is not None, found
    if kind in _TEXTS:
        return isinstance(value, str), value
    return _number(kind, value)


def _number(kind: str, value: object) -> tuple[bool, object]:
    if not isinstance(value, (int, float)) or not abs(value) < MAGNITUDE:
        return False, value
    if kind == "bool":
        return value in {0, 1}, bool(value)
    if kind in {"int64", "category_int64"}:
        is_whole = value == int(value) and -(1 << 63) <= value < 1 << 63
        return is_whole, int(value)
    return float(value) == value, float(value)


def _moment(value: object, unit: str, *, is_zoned: bool) -> np.datetime64 | None:
    """Return a moment in a unit, of one with a zone its time in UTC; None if it is none, or would be changed by it."""
    if not isinstance(value, str):
        return None
    try:
        told = datetime.fromisoformat(value)  # it drops what follows a microsecond
    except ValueError:
        return None
    parts = _FRACTION.search(value)
    digits = parts[1].ljust(9, "0") if parts else "0"
    units, step = _UNITS[unit], 10**9 // _UNITS[unit]
    if (told.tzinfo is not None) != is_zoned or int(digits[:9]) % step or digits[9:].strip("0"):
        return None
    since = told.replace(tzinfo=None, microsecond=0) - datetime(1970, 1, 1) - (told.utcoffset() or timedelta())  # noqa: DTZ001 - both in UTC
    found = since // timedelta(seconds=1) * units + int(digits[:9]) // step
    return np.datetime64(found, unit) if abs(found) < 1 << 63 else None  # type: ignore[call-overload] # one of `_UNITS`


def _shown(value: object) -> str:
    """Return a value for people, however large or deep it is."""
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "nothing (package the model with allow_nan=True if values may be missing)"
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value[:40]) if isinstance(value, str) else f"{value!r:.40}"


def _named(kind: str) -> str:
    moment = MOMENT.fullmatch(kind)
    if moment is None:
        return _NAMES[kind]
    return f"a moment in ISO 8601 {'with' if moment[2] else 'without'} its zone, in whole {moment[1]}"


_NAMES = {
    "float64": "a number",
    "int64": "a whole number",
    "bool": "true or false",
    "string": "a text",
    "category": "a text",
    "category_int64": "a whole number",
}
