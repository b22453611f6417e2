"""Losses of numbers for which the direction of an error, or the size of what was true, counts.

    asymmetric: {over: 1, under: 4}     each unit too much costs 1, each unit too little 4
    quantile: 0.9                       the same with over = 0.1 and under = 0.9: least where 9 of 10 labels are below
    relative: {least: 10}               the error as a part of the label's size, which counts as 10 at least

An error of `span` in the dearer direction costs a loss of 1, and larger errors cost no more. Below that the loss is the
cost itself, on another scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from policies.errors import require
from policies.losses import number, of_tensors
from schemas.records import NamedTensors

if TYPE_CHECKING:
    from policies.losses import Floats
    from schemas.records import Value


@dataclass(frozen=True, slots=True)
class Directed:
    """What a unit of error costs in each direction.

    Attributes:
        over: of an answer above the label, not negative.
        under: of one below it.
    """

    over: float
    under: float

    def __post_init__(self) -> None:
        """Check the rates."""
        for name, rate in (("over", self.over), ("under", self.under)):
            require(0.0 <= rate < inf, f"asymmetric: {name} is {rate}; it must not be negative")
        require(self.most > 0.0, "asymmetric: over and under are both 0, so no error costs anything")

    @property
    def most(self) -> float:
        """What a unit of error costs in the dearer direction."""
        return max(self.over, self.under)

    def loss(self, answer: Value | None, label: Value | None, span: float) -> float:
        """Return the loss of an answer.

        Raises:
            LossError: the answer or the label is no number, nor are they tensors of one form.
        """
        if isinstance(answer, NamedTensors):
            return of_tensors(answer, label, lambda given, true: self._mean(given - true, span))
        error = number(answer, "answer") - number(label, "label")
        rate = self.over if error > 0.0 else self.under
        return min(1.0, rate / self.most * (abs(error) / span)) if rate else 0.0

    def _mean(self, errors: Floats, span: float) -> float:
        rates = np.where(errors > 0.0, self.over, self.under) / self.most
        return float(np.minimum(1.0, rates * (np.abs(errors) / span)).mean())


@dataclass(frozen=True, slots=True)
class Relative:
    """The error as a part of the label's size.

    Attributes:
        least: the least size that counts, so that labels near 0 do not outweigh all others; 0 = any does.
    """

    least: float = 0.0

    def __post_init__(self) -> None:
        """Check the size."""
        require(0.0 <= self.least < inf, f"relative: least is {self.least}; it must not be negative")

    def loss(self, answer: Value | None, label: Value | None, span: float) -> float:
        """Return the loss of an answer; where the size counts as 0, it is 0 or 1.

        Raises:
            LossError: the answer or the label is no number, nor are they tensors of one form.
        """
        if isinstance(answer, NamedTensors):
            return of_tensors(answer, label, lambda given, true: self._mean(given, true, span))
        true = number(label, "label")
        error, size = abs(number(answer, "answer") - true), max(abs(true), self.least) * span
        return min(1.0, error / size) if size else float(error > 0.0)

    def _mean(self, given: Floats, true: Floats, span: float) -> float:
        errors, sizes = np.abs(given - true), np.maximum(np.abs(true), self.least) * span
        known = sizes > 0.0
        shares = np.where(known, errors / np.where(known, sizes, 1.0), errors > 0.0)
        return float(np.minimum(1.0, shares).mean())
