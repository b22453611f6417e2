"""Conditions on the items of an answer, written as a person would: `label == car and score >= 0.5`.

A condition is one comparison, or several that all must hold. A field is compared with a number or a text. A field that
an item lacks, or that is of another kind, fulfils no comparison but `!=`.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from policies.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_COMPARISON = re.compile(r"\s*(\w+)\s*(==|!=|>=|<=|>|<)\s*(\S.*?)\s*", re.DOTALL)
_AND = re.compile(r"\s+and\s+")
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class FieldCondition(NamedTuple):
    """One field against one value."""

    field: str
    how: str
    value: float | str

    def holds(self, fields: Mapping[str, object]) -> bool:
        """Tell whether an item with these fields fulfils it."""
        found = fields.get(self.field)
        is_same_kind = isinstance(found, int | float) if isinstance(self.value, float) else isinstance(found, str)
        if self.how in {"==", "!="}:
            return (is_same_kind and found == self.value) == (self.how == "==")
        return is_same_kind and _ORDERS[self.how](found, self.value)


class Condition(NamedTuple):
    """Comparisons that all must hold; without one everything fulfils it."""

    comparisons: tuple[FieldCondition, ...] = ()

    def holds(self, fields: Mapping[str, object]) -> bool:
        """Tell whether an item with these fields fulfils it.

        Examples:
            >>> parse("label == car and score >= 0.5").holds({"label": "car", "score": 0.75})
            True
        """
        return all(one.holds(fields) for one in self.comparisons)


@lru_cache(maxsize=1024)
def parse(text: str) -> Condition:
    """Read a condition; quotes around a text are left out, and make a number a text.

    Raises:
        PolicyError: it is none.
    """
    return Condition(tuple([_comparison(part, text) for part in _AND.split(text)])) if text.strip() else Condition()


def _comparison(part: str, text: str) -> FieldCondition:
    match = _COMPARISON.fullmatch(part)
    if match is None:
        raise PolicyError(f"{text!r} is no condition: write FIELD == VALUE, and `and` between several")
    field, how, written = match.groups()
    if len(written) > 1 and written[0] == written[-1] and written[0] in "'\"":
        return FieldCondition(field, how, written[1:-1])
    try:
        return FieldCondition(field, how, float(written))
    except ValueError:
        return FieldCondition(field, how, written)
