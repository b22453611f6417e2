"""What is believed of weights: a normal distribution, with covariances within groups of neighbours that go together.

    weights   w0  w1 w2  w3 w4  w5 w6        a group of two: their covariance is known, that with others is not
              ──  ─────  ─────  ─────
    numbers   means, precisions q, then the factors below each group's diagonal, row by row

The precision matrix is L diag(q) L', where L has ones on its diagonal and the factors below. An observation at x adds
curvature * x x' to each group's part, by method C1 of Gill, Golub, Murray and Saunders (Methods for modifying matrix
factorizations, Mathematics of Computation 28, 1974). Every q only grows, so the matrix stays positive definite whatever
comes, and is never inverted. Weights that go with no other have no factors, and q is their precision.

Every sum is made in a fixed order without BLAS, so that a fold over the log gives the same bits on every machine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from policies.contract import State

    Floats = NDArray[np.float64]


class _FactorRow(NamedTuple):
    """A row of L: the weight that it is of, the first one of its group, and where its factors begin in a belief."""

    weight: int
    first: int
    at: int


class Beliefs(NamedTuple):
    """The form of beliefs: how many weights there are, and where each group of them begins.

    Attributes:
        width: how many weights.
        firsts: of each weight the first one of its group.
        rows: of L, those that have factors.
        size: how many numbers a belief has.
    """

    width: int
    firsts: tuple[int, ...]
    rows: tuple[_FactorRow, ...]
    size: int

    def empty(self, ridge: float, means: Sequence[float] = ()) -> State:
        """Return the belief in these means, else 0, where each weight has this precision and goes with no other."""
        factors = self.size - 2 * self.width
        return (*(means or (0.0,) * self.width), *(ridge,) * self.width, *(0.0,) * factors)

    def apart(self, belief: Sequence[float], x: Sequence[float]) -> list[float]:
        """Return inverse(L) x: of each number what those before it in its group do not tell."""
        parts = [*x]
        for weight, first, at in self.rows:
            left = parts[weight]
            for factor, part in zip(belief[at : at + weight - first], parts[first:weight], strict=True):
                left -= factor * part
            parts[weight] = left
        return parts

    def variance(self, belief: Sequence[float], x: Sequence[float]) -> float:
        """Return the variance of w . x."""
        precisions = belief[self.width : 2 * self.width]
        return in_order([part * part / q for part, q in zip(self.apart(belief, x), precisions, strict=True)])

    def moved(self, belief: State, x: Sequence[float], push: float, curvature: float) -> State:
        """Return the belief whose means went by push * covariance x, and whose precision grew by curvature * x x'."""
        parts, width = self.apart(belief, x), self.width
        precisions = belief[width : 2 * width]
        step = [push * part / q for part, q in zip(parts, precisions, strict=True)]
        for weight, first, at in reversed(self.rows):  # L' step = inverse(diag(q)) parts
            for other in range(first, weight):
                step[other] -= belief[at + other - first] * step[weight]
        grown, gains = self._grown(parts, precisions, curvature)
        means = [mean + by for mean, by in zip(belief[:width], step, strict=True)]
        return (*means, *grown, *self._turned(belief, x, parts, gains))

    def variances(self, precisions: Floats, factors: Floats, x: Floats) -> Floats:
        """Return the variances (n,) of w . x for beliefs of these inverse precisions (n, width) and factors (n, f)."""
        parts = np.array(x) if not self.rows else np.tile(x, (len(precisions), 1))
        begin = 2 * self.width
        for weight, first, at in self.rows:
            known = factors[:, at - begin : at - begin + weight - first]
            parts[:, weight] -= (known * parts[:, first:weight]).sum(axis=1)
        found: Floats = (precisions * (parts * parts)).sum(axis=1)
        return found

    def _grown(
        self, parts: Sequence[float], precisions: Sequence[float], curvature: float
    ) -> tuple[list[float], list[float]]:
        """Return the new q, and how much each turns the factors of its column."""
        grown, gains, left = [], [], curvature
        for weight, (part, q, first) in enumerate(zip(parts, precisions, self.firsts, strict=True)):
            left = curvature if weight == first else left
            more = q + left * part * part
            grown.append(more)
            gains.append(left * part / more)
            left *= q / more
        return grown, gains

    def _turned(
        self, belief: Sequence[float], x: Sequence[float], parts: Sequence[float], gains: Sequence[float]
    ) -> list[float]:
        """Return the new factors."""
        turned = []
        for weight, first, at in self.rows:
            left = x[weight]
            for other, factor in enumerate(belief[at : at + weight - first], first):
                left -= factor * parts[other]
                turned.append(factor + gains[other] * left)
        return turned


def in_order(values: Iterable[float]) -> float:
    """Return a sum that adds one number after the other; `sum` rounds otherwise from Python 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total


@lru_cache(maxsize=64)
def beliefs(features: int, together: int) -> Beliefs:
    """Return the form for a constant and so many features, of which so many neighbours go together at a time.

    The constant goes with the first of them, unless each goes alone.
    """
    width, size, firsts = features + 1, 2 * (features + 1), [0]
    rows = []
    for feature in range(features):
        first = feature - feature % together + 1
        firsts.append(0 if together > 1 and first == 1 else first)
        weight = feature + 1
        if weight > firsts[weight]:
            rows.append(_FactorRow(weight, firsts[weight], size))
            size += weight - firsts[weight]
    return Beliefs(width, tuple(firsts), tuple(rows), size)
