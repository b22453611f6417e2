"""Says how rows from elsewhere become queries, feedback and observations.

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
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from schemas import topics
from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streams.trace.tables import Row

UNITS_US: Final[Mapping[str, float]] = {"s": 1e6, "ms": 1e3, "us": 1.0}
ISO: Final = "iso"
_KEYS: Final = ("column", "columns", "value", "unit", "low", "high", "by")


class FieldSource(NamedTuple):
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

    application: FieldSource
    time: FieldSource
    input: FieldSource | None = None
    id: FieldSource | None = None
    context: FieldSource | None = None
    features: FieldSource | None = None
    label: FieldSource | None = None
    loss: FieldSource | None = None
    delay: FieldSource | None = None
    count: FieldSource | None = None
    over: FieldSource | None = None
    chosen: FieldSource | None = None
    propensity: FieldSource | None = None
    arms: FieldSource | None = None
    cost: FieldSource | None = None
    reward: FieldSource | None = None

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


def _source(key: str, value: object) -> FieldSource:
    if not isinstance(value, dict):
        return FieldSource(value=value)
    for name in value:
        if name not in _KEYS:
            raise TraceError(_unknown(f"{key}.{name}", [f"{key}.{known}" for known in _KEYS]))
    unit = value.get("unit")
    if unit is not None and unit not in (*UNITS_US, ISO):
        raise TraceError(f"{key}.unit is {unit!r}; there are: {', '.join((*UNITS_US, ISO))}")
    if (by := value.get("by")) not in (None, "name", "place"):
        raise TraceError(f"{key}.by is {by!r}; there are: name, place")
    columns = tuple(value.get("columns") or ())
    return FieldSource(value.get("column"), columns, value.get("value"), unit, _bounds(key, value), by)


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
