"""Shared by the policies that ask all arms about each query."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from policies.contract import State


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
