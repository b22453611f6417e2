"""A row of a data frame as it travels: a JSON text with a value for each column. It imports no pandas."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from schemas.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def _cell(name: str, value: Any) -> Json:
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None or type(plain).__name__ == "NAType" or (isinstance(plain, float) and math.isnan(plain)):
        return None
    if isinstance(plain, (str, bool, int, float)):
        return plain
    raise SchemaError(f"column {name}: numbers, booleans, texts and None can travel, not {type(value).__name__}")
