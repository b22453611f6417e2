"""Shared parts of the policies: of those that ask one arm about each query, some of them, or all.

Each draws so that an arm is asked exactly with its propensity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import floor
from typing import TYPE_CHECKING, ClassVar

from policies.draw import pick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.contract import State


class OneArm(ABC):
    """Base of the policies that ask one arm about each query."""

    __slots__ = ()

    full_information: ClassVar[bool] = False

    @abstractmethod
    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return the exact probability that each arm is asked."""

    def select(self, state: State, arms: int, u: float) -> tuple[int, ...]:
        """Return one arm, by inverse CDF over the propensities; of a query without a situation."""
        return (pick(self.propensities(state, arms), u),)

    def weights(self, state: State, arms: int) -> tuple[float, ...]:
        """Return the propensities: one arm answers, so there are no votes to weigh."""
        return self.propensities(state, arms)


class SomeArms(ABC):
    """Base of the policies that ask several arms about each query: as many as the propensities sum to."""

    __slots__ = ()

    @abstractmethod
    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return the exact probability that each arm is asked; they sum to 1 at least."""

    def select(self, state: State, arms: int, u: float) -> tuple[int, ...]:
        """Return the arms that `systematic` draws."""
        return systematic(self.propensities(state, arms), u)


class EveryArm:
    """Part of the policies of full information: every model answers, and nothing is drawn."""

    __slots__ = ()

    full_information: ClassVar[bool] = True

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return 1.0 for every arm."""
        return (1.0,) * arms

    def floor(self, arms: int) -> float:
        """Return 1.0: every arm is asked."""
        return 1.0

    def select(self, state: State, arms: int, u: float) -> tuple[int, ...]:
        """Return all arms."""
        return tuple(range(arms))


def systematic(propensities: Sequence[float], u: float) -> tuple[int, ...]:
    """Return a set of arms, each with exactly its propensity.

    The propensities stand side by side on a line of their sum's length. An arm is asked if one of the points u, u + 1,
    u + 2, ... lies on its piece. So as many are asked as the sum says, rounded up or down.

    Args:
        propensities: one for each arm, in [0, 1].
        u: in [0, 1).

    Examples:
        >>> systematic((1.0, 0.25, 0.75), 0.5)
        (0, 2)

    References:
        Madow, On the theory of systematic sampling II, Ann. Math. Statist. 20 (1949).
    """
    chosen, passed = [], 0.0
    for arm, propensity in enumerate(propensities):
        before, passed = passed, passed + propensity
        if floor(passed - u) > floor(before - u):
            chosen.append(arm)
    return tuple(chosen) or (pick(propensities, u),)  # where the sum rounds to less than 1
