"""How often an arm was taught, and how well it did, with each feature that is a yes and with each two of them.

    block   lessons, reward | for each feature: lessons, reward where it is on | for each two: where both are

Whatever one or two features say is worked out from these: where the first is on and the second is not, there were as
many as where the first is on, less those where both are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Cell(NamedTuple):
    """Lessons of an arm in one group, and their reward, 1 - loss, summed."""

    lessons: float
    reward: float

    @property
    def loss(self) -> float:
        """Summed."""
        return max(0.0, self.lessons - self.reward)

    @property
    def mean(self) -> float:
        """Mean reward; before a lesson a half."""
        return self.reward / self.lessons if self.lessons > 0.0 else 0.5

    @property
    def variance(self) -> float:
        """Of the mean, as if one lesson had gone well and one had not; so it is never 0."""
        lessons = self.lessons + 2.0
        mean = (self.reward + 1.0) / lessons
        return mean * (1.0 - mean) / lessons

    def less(self, other: Cell) -> Cell:
        """Return what is left without another's lessons, which are among its own."""
        lessons = max(0.0, self.lessons - other.lessons)
        return Cell(lessons, min(lessons, max(0.0, self.reward - other.reward)))


def numbers(features: int) -> int:
    """Return how many numbers an arm has."""
    return 2 * (1 + features + features * (features - 1) // 2)


def _place(one: int, other: int, features: int) -> int:
    """Return where the numbers of two features begin, the smaller index first; of one with itself its own."""
    if one == other:
        return 2 * (1 + one)
    low, high = (one, other) if one < other else (other, one)
    return 2 * (1 + features + low * (2 * features - low - 1) // 2 + high - low - 1)


@dataclass(frozen=True, slots=True)
class ArmCounts:
    """The numbers of one arm.

    Attributes:
        block: as above.
        features: how many there are.
    """

    block: tuple[float, ...]
    features: int

    def at(self, path: Sequence[tuple[int, bool]]) -> Cell:
        """Return the lessons where each of at most two features is on, or is not."""
        if not path:
            return self._cell(0)
        (first, first_on), *others = path
        if not others:
            its = self._cell(_place(first, first, self.features))
            return its if first_on else self._cell(0).less(its)
        second, second_on = others[0]
        both = self._cell(_place(first, second, self.features))
        if first_on and second_on:
            return both
        one, other = self.at(((first, True),)), self.at(((second, True),))
        if first_on or second_on:
            return (one if first_on else other).less(both)
        return self._cell(0).less(one).less(other.less(both))

    def _cell(self, place: int) -> Cell:
        return Cell(self.block[place], self.block[place + 1])

    @staticmethod
    def added(
        block: tuple[float, ...], on: Sequence[int], features: int, weight: float, reward: float
    ) -> tuple[float, ...]:
        """Return a block with one more lesson of a weight, given which features were on."""
        found = list(block)
        places = [0, *[_place(one, other, features) for index, one in enumerate(on) for other in on[index:]]]
        for place in places:
            found[place] += weight
            found[place + 1] += weight * reward
        return tuple(found)
