"""What columns hold, as the log shows it: whole numbers, numbers, texts, true and false, lists of numbers."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import orjson

from schemas.records import NamedTensors, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Input, Value

MOST_COLUMNS: Final = 2_000  # of named inputs: an input with more different names stays a text
INPUT: Final = "input"


class ColumnKinds:
    """The kinds that have been met, by column."""

    def __init__(self) -> None:
        self._met: defaultdict[str, set[str]] = defaultdict(set)
        self._is_named = True  # whether all inputs were rows with names

    def note(self, column: str, value: Value | None) -> None:
        """Note a value."""
        if value is not None:
            self._met[column].add(_kind(value))

    def note_input(self, given: Input) -> None:
        """Note what models were asked about; a row with names has a column for each."""
        row = named_row(given)
        if row is None or len(self._met) + len(row) > MOST_COLUMNS:
            self._is_named = False
            self._met[INPUT].add("numbers" if isinstance(given, Tensor) else "text")
            return
        for name, cell in row.items():
            self.note(f"{INPUT}.{name}", cell)
            self._met[f"{INPUT}.{name}"].discard("numbers")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of inputs, in the order in which they were met."""
        if not self._is_named or not self._met:
            return (INPUT,)
        return tuple([name for name in self._met if name.startswith(f"{INPUT}.")]) or (INPUT,)

    def of(self, column: str) -> str:
        """Return what a column holds: whole, number, flag, text or numbers."""
        met = self._met.get(column, set())
        if met <= {"whole", "number"} and met:
            return "number" if "number" in met else "whole"
        return next(iter(met)) if len(met) == 1 else "text"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int):
        return "whole" if -(1 << 63) <= value < 1 << 63 else "text"
    if isinstance(value, float):
        return "number"
    return "numbers" if isinstance(value, Tensor) else "text"


def named_row(given: Input) -> Mapping[str, Any] | None:
    """Return a row with names; None = it is an array, bytes or another text."""
    if not isinstance(given, str) or not given.startswith("{"):
        return None
    try:
        row = orjson.loads(given)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def fitted(kind: str, value: Any) -> Any:
    """Return a value as a column of its kind holds it."""
    if value is None or kind in {"whole", "flag"}:
        return value
    if kind == "numbers":
        return value.numpy().ravel().tolist() if isinstance(value, Tensor) else None
    return float(value) if kind == "number" else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, NamedTensors):
        return json.dumps(value.lists())
    return json.dumps(value.numpy().tolist() if isinstance(value, Tensor) else value)
