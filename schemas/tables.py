"""A row of a data frame as it travels: a JSON text with a value for each column. Of pandas nothing is imported."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from schemas.errors import SchemaError

if TYPE_CHECKING:
    from schemas.avsc import Json


def row_text(row: Mapping[str, Any]) -> str:
    """Return a row, a value for each column, as a JSON text; NaN and NA become null.

    Raises:
        SchemaError: a value is no number, boolean, text or None.

    Examples:
        >>> row_text({"age": 41, "job": "nurse"})
        '{"age": 41, "job": "nurse"}'
    """
    return json.dumps({str(name): _cell(str(name), value) for name, value in row.items()}, ensure_ascii=False)


def named_row(x: Any) -> str | None:
    """Return what has named values as a JSON text: a mapping, or a row of a data frame that is not of numbers alone.

    None = it is something else. A row of numbers is better sent as such: models of numbers and of tables take it.

    Raises:
        SchemaError: a value cannot travel.
    """
    if isinstance(x, Mapping):
        return row_text(x)
    if not hasattr(x, "to_dict") or np.asarray(x).dtype.kind in "biuf":
        return None
    if hasattr(x, "columns") and len(x) == 1:
        return row_text({name: x[name].iloc[0] for name in x.columns})
    return None if hasattr(x, "columns") else row_text(x.to_dict())


def _cell(name: str, value: Any) -> Json:
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None or type(plain).__name__ == "NAType" or (isinstance(plain, float) and math.isnan(plain)):
        return None
    if isinstance(plain, (str, bool, int, float)):
        return plain
    raise SchemaError(f"column {name}: numbers, booleans, texts and None can travel, not {type(value).__name__}")
