"""Sets of labels beside each other: adaptive, as selection makes them, and fixed by what came first."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.conformal import aim, observe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sets:
    """What became of sets, by query: whether the true label was in it, and how many labels; all = every known one."""

    held: NDArray[np.bool_]
    sizes: NDArray[np.int64]

    def of(self, part: slice) -> Sets:
        """Return those of some queries."""
        return Sets(self.held[part], self.sizes[part])

    def windows(self, size: int) -> list[float]:
        """Return the share that held the true label, by windows of so many queries."""
        return [float(self.held[at : at + size].mean()) for at in range(0, len(self.held) - size + 1, size)]


def adaptive(
    weights: Sequence[Mapping[int | str, float]], labels: Sequence[int], coverage: float, late: int = 50
) -> Sets:
    """Make sets by the policy's arithmetic, in the order of the queries.

    Args:
        weights: of the labels of each query.
        labels: the true ones.
        coverage: promised.
        late: queries that are answered before the feedback on one is learnt.
    """
    state, waiting = aim(coverage), deque[float]()
    learnt: tuple[float, ...] = ()
    held, sizes = np.zeros(len(labels), bool), np.zeros(len(labels), np.int64)
    for number, (its, label) in enumerate(zip(weights, labels, strict=True)):
        held[number], sizes[number] = _judged(its, label, state.least)
        waiting.append(its.get(label, 0.0))
        if len(waiting) > late:
            learnt = observe(coverage, learnt, waiting.popleft())
            state = aim(coverage, learnt)
    return Sets(held, sizes)


def fixed(weights: Sequence[Mapping[int | str, float]], labels: Sequence[int], coverage: float, first: int) -> Sets:
    """Make sets by split conformal prediction: the weight that a label needs follows from the first queries alone."""
    known = sorted([its.get(label, 0.0) for its, label in zip(weights[:first], labels[:first], strict=True)])
    least = known[int((first + 1) * (1.0 - coverage)) - 1]
    judged = [_judged(its, label, least) for its, label in zip(weights, labels, strict=True)]
    return Sets(np.array([held for held, _ in judged]), np.array([size for _, size in judged]))


def _judged(weights: Mapping[int | str, float], label: int, least: float) -> tuple[bool, int]:
    """Return whether a set holds a label, and its size; at least the heaviest is in it."""
    members = [each for each, weight in weights.items() if weight >= least] or [max(weights, key=weights.__getitem__)]
    return least <= 0.0 or label in members, len(members)
