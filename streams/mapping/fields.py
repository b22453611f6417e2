"""Where a value of a row comes from, and how it is read: the one language of `trace import`, `from`, `to`, `feedback`.

{column: TIMESTAMP}            a column, or a path through objects: `order.user.age`
{columns: [age, hour]}         several: a list; or by name: {columns: {age: user.age, hour: hour}}
{value: 1.0}                   the same for all
{expression: "amount * 1.2"}   see `expressions`
unit: s | ms | us | iso        of a time
low, high                      of a cost or reward: the lowest and the highest
by: name | place               of an arm: its name, or its place among the arms
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streams.mapping.errors import MappingError
from streams.mapping.expressions import Expression, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

UNITS_US: Final[Mapping[str, float]] = {"s": 1e6, "ms": 1e3, "us": 1.0}
ISO: Final = "iso"
_KEYS: Final = ("column", "columns", "value", "expression", "unit", "low", "high", "by")
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])")
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_US: Final = timedelta(microseconds=1)


class FieldSource(NamedTuple):
    """Where a value comes from, and how it is to be read; see the head of this file.

    Attributes:
        column: its name; `c.user.age` is `age` in `user` in `c`, where there is no such column.
        columns: of numbers.
        value: the same for all rows.
        unit: of a time.
        bounds: of a cost or reward: the lowest and the highest.
        by: `place`: a number is a place among the arms, from 0 on.
        expression: of the row.
        names: of the columns, where they are not called by their paths.
    """

    column: str | None = None
    columns: tuple[str, ...] = ()
    value: Any = None
    unit: str | None = None
    bounds: tuple[float, float] | None = None
    by: str | None = None
    expression: Expression | None = None
    names: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """What its columns are called."""
        return self.names or self.columns

    @property
    def paths(self) -> tuple[str, ...]:
        """What it reads of a row."""
        alone = () if self.column is None else (self.column,)
        return (*alone, *self.columns, *(() if self.expression is None else self.expression.paths))

    def of(self, row: Mapping[str, Any]) -> Any:
        """Return a row's value; several columns give a list.

        Raises:
            MappingError: the row has no such column, or its expression has no value.
        """
        column = self.column
        if column is not None:
            return row[column] if column in row else _cell(row, column)
        if self.columns:
            return [_cell(row, name) for name in self.columns]
        return self.value if self.expression is None else self.expression.value(row)


def _cell(row: Mapping[str, Any], name: str) -> Any:
    """Return a row's value of a column, or of a path through objects.

    Raises:
        MappingError: there is none.
    """
    if name in row:
        return row[name]
    found: Any = row
    parts = name.split(".")
    for depth, part in enumerate(parts):
        if not isinstance(found, Mapping):
            raise MappingError(name, f"{'.'.join(parts[:depth])} is no object, but {found!r:.80}")
        if part not in found:
            where = f"{'.'.join(parts[:depth])} has no {part}" if depth else "there is no such field"
            raise MappingError(name, f"{where}; there are: {', '.join(map(str, found))[:400]}")
        found = found[part]
    return found


def source(key: str, given: object, *, is_path: bool = True) -> FieldSource:
    """Return what a key of a mapping says.

    Args:
        key: its name.
        given: as YAML has it.
        is_path: whether a text alone is a path, and a list the paths of columns; else they are the value.

    Raises:
        MappingError: it says nothing that is known.
    """
    if not isinstance(given, Mapping):
        if is_path and isinstance(given, str):
            return FieldSource(column=given)
        if is_path and isinstance(given, list) and given and all(isinstance(one, str) for one in given):
            return FieldSource(columns=tuple(given))
        return FieldSource(value=given)
    for name in given:
        if name not in _KEYS:
            raise unknown(f"{key}.{name}", [f"{key}.{known}" for known in _KEYS])
    ways = [name for name in ("column", "columns", "value", "expression") if name in given]
    if len(ways) != 1:
        raise MappingError(
            key, f"one of column, columns, value, expression is needed, not {' and '.join(ways) or 'none'}"
        )
    unit, by = given.get("unit"), given.get("by")
    if unit is not None and unit not in (*UNITS_US, ISO):
        raise MappingError(f"{key}.unit", f"is {unit!r}; there are: {', '.join((*UNITS_US, ISO))}")
    if by not in (None, "name", "place"):
        raise MappingError(f"{key}.by", f"is {by!r}; there are: name, place")
    expression = None if "expression" not in given else parse(str(given["expression"]))
    columns = given.get("columns") or ()
    names = tuple(map(str, columns)) if isinstance(columns, Mapping) else ()
    columns = tuple(map(str, columns.values() if isinstance(columns, Mapping) else columns))
    return FieldSource(
        given.get("column"), columns, given.get("value"), unit, _bounds(key, given), by, expression, names
    )


def unknown(key: str, known: Iterable[str]) -> MappingError:
    """Return the error that says which key was probably meant."""
    nearest = difflib.get_close_matches(key, known, 1, cutoff=0.0)[0]
    return MappingError(key, f"unknown key: did you mean {nearest!r}? There are: {', '.join(known)}")


def duration_us(key: str, given: object) -> int:
    """Return how long something may take (us): a number and s, m, h or d, such as `30m`.

    Raises:
        MappingError: it is no such time, or none at all.
    """
    found = _DURATION.fullmatch(given) if isinstance(given, str) else None
    duration = 0 if found is None else round(float(found[1]) * _SECONDS[found[2]] * 1e6)
    if not duration:
        raise MappingError(key, f"is a time such as 90s, 30m, 2h or 1d, not {given!r:.80}")
    return duration


def _bounds(key: str, given: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return between what a cost or reward lies."""
    if "low" not in given and "high" not in given:
        return None
    try:
        low, high = float(given.get("low", 0.0)), float(given.get("high", 1.0))
    except (TypeError, ValueError) as error:
        raise MappingError(key, f"low and high are numbers: {error}") from error
    if not (low < high and isfinite(high - low)):
        raise MappingError(key, f"low is {low:g} and high {high:g}; make low the smaller one")
    return low, high


def time_us(given: FieldSource, value: Any) -> int:
    """Return a time, or how long something takes (us).

    Args:
        given: where it comes from.
        value: that it had there: a number in its unit, by default seconds; or a text in ISO 8601, without a zone UTC.

    Raises:
        MappingError: it is no time.
    """
    if isinstance(value, bool):
        raise MappingError(given.column or "time", f"{value} is no time")
    try:
        if given.unit == ISO or (given.unit is None and isinstance(value, str) and given.value is None):
            time = datetime.fromisoformat(value)
            return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _ONE_US
        return round(float(value) * UNITS_US[given.unit or "s"])
    except (TypeError, ValueError, OverflowError) as error:
        raise MappingError(given.column or "time", f"{value!r:.80} is no time: {error}") from error
