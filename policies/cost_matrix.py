"""What each mistake costs, by the true class and the class that was answered.

    cost: {fraud: {ok: 40}, ok: {fraud: 1}}     a fraud that was called ok costs 40, an alarm about nothing 1
    cost: {fraud: {"*": 40}, "*": {"*": 1}}     `*` stands for every class that has no entry of its own

Right answers cost 0 unless the matrix says otherwise. Classes are compared as text, so 1 and 1.0 are the class "1". A
label that is no class of the matrix is refused; with a row `*` there is none. An answer that is none costs the most.
"""

from __future__ import annotations

from math import isfinite, prod
from typing import TYPE_CHECKING, Any, Final

from policies.errors import LossError, PolicyError, UnknownLabelError, require
from policies.losses import class_text, kind_of, label_of
from schemas.records import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Value

    Cells = Mapping[str, Mapping[str, float]]

OTHERS: Final = "*"
_MOST_CLASSES: Final = 1_000  # named ones; a record of an application has room for so many


class CostMatrix:
    """The costs of mistakes, none below 0.

    Args:
        given: costs by true class, then by answer.

    Attributes:
        cells: the same, with classes as text.
        most: what the worst mistake costs, positive.

    Raises:
        PolicyError: it is none; the message says what is lacking.
    """

    __slots__ = ("_classes", "cells", "most")

    def __init__(self, given: Mapping[Any, Any]) -> None:
        self.cells = _read(given)
        answers = {answer for row in self.cells.values() for answer in row}
        self._classes = ({*self.cells} | answers) - {OTHERS}
        self.most = max(cost for row in self.cells.values() for cost in row.values())
        require(self.most > 0.0, "cost: no mistake costs anything; give at least one a cost above 0")
        require(len(self._classes) <= _MOST_CLASSES, f"cost: more than {_MOST_CLASSES} classes; use '*' for most")
        if lacking := self._lacking():
            truth, answer = lacking
            raise PolicyError(
                f"cost: nothing says what {answer!r} costs where {truth!r} is true: add"
                f" `{truth}: {{{answer}: ...}}`, or '*' for all that is not named"
            )

    def _lacking(self) -> tuple[str, str] | None:
        """Return a true class and an answer whose cost nothing says; None = there is none."""
        others = self.cells.get(OTHERS, {})
        if OTHERS in others:
            return None
        for truth in sorted(self._classes):
            row = self.cells.get(truth, {})
            if OTHERS not in row and (answers := self._classes - row.keys() - others.keys() - {truth}):
                return truth, min(answers)
        return None

    def cost(self, truth: str, answer: str) -> float:
        """Return what an answer costs.

        Raises:
            UnknownLabelError: the truth is no class of the matrix.
        """
        if truth not in self._classes and OTHERS not in self.cells:
            raise UnknownLabelError(f"the label is none of the classes that `loss` names: {_few(self._classes)}")
        found = self._found(truth, answer)
        return self.most if found is None else found

    def loss(self, answer: Value | None, label: Value | None, classes: Sequence[str]) -> float:
        """Return what an answer costs, as a share of the worst mistake.

        Args:
            answer: a label, or one score a class.
            label: what was true.
            classes: names of the scores' classes; none = they are called 0, 1, ...

        Raises:
            UnknownLabelError: the label is no class of the matrix.
            LossError: the answer is no class at all, or the label none.
        """
        truth = class_text(label_of(label))
        return self.cost(truth, _answered(answer, classes)) / self.most

    def _found(self, truth: str, answer: str) -> float | None:
        row, others = self.cells.get(truth), self.cells.get(OTHERS, {})
        if row is not None and answer in row:
            return row[answer]
        if truth == answer:
            return 0.0
        for cells, key in ((row or {}, OTHERS), (others, answer), (others, OTHERS)):
            if key in cells:
                return cells[key]
        return None


def _answered(answer: Value | None, classes: Sequence[str]) -> str:
    """Return the class that was answered, as text."""
    if not isinstance(answer, Tensor):
        if not isinstance(answer, int | float | str) or (isinstance(answer, float) and not isfinite(answer)):
            raise LossError(f"loss `cost` is of classes, and the answer is {kind_of(answer)}: take another loss")
        return class_text(answer)
    if not prod(answer.shape):
        raise LossError("there are no scores; the model must give one for each class")
    best = int(answer.numpy().argmax())
    return classes[best] if best < len(classes) else str(best)


def _read(given: Any) -> Cells:
    require(isinstance(given, dict) and bool(given), "cost: write {TRUE CLASS: {ANSWER: COST}}")
    return {_name(truth): _row(truth, row) for truth, row in given.items()}


def _row(truth: object, given: Any) -> Mapping[str, float]:
    require(isinstance(given, dict) and bool(given), f"cost: {truth!r} is to be {{ANSWER: COST}}, not {given!r}")
    return {_name(answer): _cost(f"{truth}: {answer}", cost) for answer, cost in given.items()}


def _name(key: object) -> str:
    if isinstance(key, bool):
        raise PolicyError(f"cost: the class {key} is a yes or no of YAML: put it in quotes")
    require(isinstance(key, str | int | float), f"cost: {key!r} names no class")
    return class_text(key)  # type: ignore[arg-type]  # it was checked


def _cost(where: str, cost: Any) -> float:
    is_number = isinstance(cost, int | float) and not isinstance(cost, bool)
    require(is_number and 0.0 <= cost < float("inf"), f"cost: {where} is {cost!r}; a cost is a number, 0 at least")
    return float(cost)


def _few(classes: set[str]) -> str:
    names = sorted(classes)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} others" if len(names) > 8 else "")
