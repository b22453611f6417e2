"""The loss of an answer of several named outputs: the weighted mean of what each costs, by a rule of its own.

    outputs: {each: {boxes: {absolute: true, span: 4}, label: zero_one}, weights: {label: 3}}

The outputs are the tensors of an answer, or the members of a JSON object. A label may tell some of them: what it does
not tell is not judged. A model that leaves out of a JSON answer what the label tells, or writes it in another form, has
it wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from policies.errors import LossError, require
from policies.structured import answered, members
from schemas.records import NamedTensors, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from schemas.records import Value

    Part = Callable[[Value | None, Value | None], float]

_WRONG: Final = 1.0


@dataclass(frozen=True, slots=True)
class OutputLosses:
    """Judges each named output by its own loss.

    Attributes:
        each: the loss of an answer's part, by name.
        weights: of some of them, positive; the others have 1.
    """

    each: Mapping[str, Part]
    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        """Check the names and weights."""
        require(bool(self.each), "outputs: `each` names no output")
        strangers = ", ".join(sorted({*self.weights} - {*self.each}))
        require(not strangers, f"outputs: weights are of {strangers}, which `each` does not name")
        for name, weight in self.weights.items():
            require(0.0 < weight < inf, f"outputs: the weight of {name} is {weight}; make it positive")

    def loss(self, answer: Value | None, label: Value | None) -> float:
        """Return the weighted mean of the losses of the outputs that the label tells.

        Raises:
            LossError: the label tells none, or another one, or one in a form that its loss does not take.
        """
        told = {name: one for name, one in members(label).items() if one is not None}
        if not told or not told.keys() <= self.each.keys():
            raise LossError(f"the label's outputs are not among those that `loss` names: {', '.join(self.each)}")
        given = answered(members, answer)
        largest = max(self.weights.get(name, 1.0) for name in told)
        parts = {name: self.weights.get(name, 1.0) / largest for name in told}  # their sum stays finite
        lost = sum(parts[name] * self._part(name, answer, given, true) for name, true in told.items())
        return min(1.0, lost / sum(parts.values()))

    def _part(self, name: str, answer: Value | None, given: Mapping[str, Value | None], true: Value) -> float:
        part = self.each[name]
        if isinstance(answer, NamedTensors):  # its form is the package's: what does not fit is the label's fault
            if name not in given:
                raise LossError(f"the answer has no output {name!r:.40}; it has {', '.join(given)}")
            return _judged(part, name, given[name], true)
        try:
            return _judged(part, name, given.get(name), true)
        except LossError:
            _judged(part, name, true, true)  # raises where the label is at fault
            return _WRONG


def _judged(part: Part, name: str, given: Value | None, true: Value) -> float:
    """Return what a part costs; of two tensors its numbers are judged one by one."""
    if isinstance(given, Tensor) and isinstance(true, Tensor):
        return part(NamedTensors.named({name: given.numpy()}), NamedTensors.named({name: true.numpy()}))
    return part(given, true)
