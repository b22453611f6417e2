"""Shared parts of the policies: of those that ask one arm about each query, and of those that ask all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from policies.draw import pick

if TYPE_CHECKING:
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
