"""Rows of a data frame: each travels as a JSON text with a value for each column, by name or in order. Pure.

'{"age": 41, "job": "nurse"}'  or  '[41, "nurse"]'  ─▶  (41.0, "nurse")
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from schemas.records import Tensor
from workers.manifest import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input
    from workers.manifest import Signature

# Larger magnitudes overflow when they are squared in float32 or summed in float64. scikit-learn's models disagree about
# which of them they refuse. No measured feature comes near.
MAGNITUDE = 1e30
# The placeholder for a row that was not given.
_BLANKS = {"float64": 0.0, "int64": 0, "bool": False, "string": "", "category": ""}
_TEXTS = {"string", "category"}


def blank_row(signature: Signature) -> str:
    """Return a row of zeros and empty texts."""
    return json.dumps({name: _BLANKS[kind] for name, kind in signature.columns})


def parsed(signature: Signature, row: Input) -> tuple[object, ...] | str:
    """Return the values of a row in the order of the columns, or its fault."""
    values = _values(signature, row)
    if isinstance(values, str):
        return values
    found = []
    for (name, kind), value in zip(signature.columns, values, strict=True):
        fits, plain = _plain(kind, value, allow_missing=signature.allow_nan)
        if not fits:
            return f"column {name} takes {_NAMES[kind]}, got {_shown(value)}"
        found.append(plain)
    return tuple(found)


def _values(signature: Signature, row: Input) -> Sequence[object] | str:
    names = [name for name, _ in signature.columns]
    if isinstance(row, Tensor):
        return _numbers(signature, row)
    if not isinstance(row, str):
        return f"takes {signature}, as a JSON text, got bytes"
    try:
        found = json.loads(row)
    except (ValueError, RecursionError):
        return f"takes {signature}, as a JSON text, got {row[:40]!r}"
    if isinstance(found, dict):
        missing = [name for name in names if name not in found]
        return f"has no column {missing[0]}" if missing else [found[name] for name in names]
    if isinstance(found, list) and len(found) == len(names):
        return found
    got = f"{len(found)} values" if isinstance(found, list) else _shown(found)
    return f"takes {len(names)} columns ({named(signature.columns)}), got {got}"


def _numbers(signature: Signature, row: Tensor) -> Sequence[object] | str:
    """Return the numbers of an array, if all columns are numbers."""
    is_plain = not any(kind in _TEXTS for _, kind in signature.columns)
    numbers = row.numpy().ravel().tolist() if is_plain else ()
    if len(numbers) == len(signature.columns):
        return numbers
    return f"takes {signature}, as a JSON text, got {row.dtype}{[*row.shape]}"


def _plain(kind: str, value: object, *, allow_missing: bool) -> tuple[bool, object]:
    """Return whether a value fits a column, and the value."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return allow_missing and kind in {"float64", *_TEXTS}, math.nan
    if kind in _TEXTS:
        return isinstance(value, str), value
    if not isinstance(value, (int, float)) or not abs(value) < MAGNITUDE:
        return False, value
    if kind == "bool":
        return value in {0, 1}, bool(value)
    if kind == "int64":
        is_whole = value == int(value) and -(1 << 63) <= value < 1 << 63
        return is_whole, int(value)
    return True, float(value)


def _shown(value: object) -> str:
    """Return a value for people, however large or deep it is."""
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "nothing (package the model with allow_nan=True if values may be missing)"
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value[:40]) if isinstance(value, str) else f"{value!r:.40}"


_NAMES = {
    "float64": "a number",
    "int64": "a whole number",
    "bool": "true or false",
    "string": "a text",
    "category": "a text",
}
