"""The loss of a structured answer: the share of its fields that differ from the label's.

    fields                                          of all fields that the label tells
    fields: {names: [total, at], tolerance: 0.05}   of these, `at` with all that is in it

The answer is a JSON text or several tensors. A field that it has not differs; what it has beside them does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from policies.errors import LossError, require
from policies.structured import answered, leaves
from schemas.records import NamedTensors

if TYPE_CHECKING:
    from policies.structured import Leaves
    from schemas.records import Value

# Labels may travel as float32: closer numbers are the same. Whole numbers are ids as well, and are compared exactly.
_SAME: Final = 1e-6


@dataclass(frozen=True, slots=True)
class FieldShare:
    """Counts the fields that differ.

    Attributes:
        names: of fields, or of objects with all that is in them, with dots; none = all that the label tells.
        tolerance: how far a number may be off, as a part of the label's.
    """

    names: tuple[str, ...] = ()
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        """Check the tolerance."""
        require(0.0 <= self.tolerance < 1.0, f"fields: tolerance is {self.tolerance}; make it 0 or more, below 1")

    def loss(self, answer: Value | None, label: Value | None) -> float:
        """Return the share of the label's fields that an answer has otherwise, or not at all.

        Raises:
            LossError: the label has no such fields.
        """
        told = {path: true for path, true in leaves(label).items() if self._is_meant(path)}
        if not told:
            raise LossError(f"the label tells none of the fields that `loss` names: {', '.join(self.names)}")
        given = answered(leaves, answer)
        if isinstance(label, NamedTensors):
            _check_finite(told)
        if isinstance(answer, NamedTensors):
            _check_forms(given, told)
        differing = [path for path, true in told.items() if path not in given or not self._same(given[path], true)]
        return len(differing) / len(told)

    def _is_meant(self, path: tuple[str, ...]) -> bool:
        dotted = ".".join(path)
        return not self.names or any(dotted == name or dotted.startswith(f"{name}.") for name in self.names)

    def _same(self, given: Any, true: Any) -> bool:
        if isinstance(true, list) and isinstance(given, list):
            return len(given) == len(true) and all(map(self._same, given, true))
        if _is_number(given) and _is_number(true):
            return bool(given == true) or self._is_close(given, true)
        return type(given) is type(true) and bool(given == true)

    def _is_close(self, given: float, true: float) -> bool:
        if isinstance(given, int) and isinstance(true, int) and not self.tolerance:
            return False
        try:
            return abs(given - true) <= max(self.tolerance, _SAME) * abs(true) < inf
        except OverflowError:  # numbers of 400 digits
            return False


def _check_finite(told: Leaves) -> None:
    for path, true in told.items():
        if not np.isfinite(true).all():
            raise LossError(f"the label's {'.'.join(path)!r:.40} is not finite")


def _check_forms(given: Leaves, told: Leaves) -> None:
    for path, true in told.items():
        if path not in given or np.shape(given[path]) != np.shape(true):
            raise LossError(f"the label's {'.'.join(path)!r:.40} is no tensor of the answer's form")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
