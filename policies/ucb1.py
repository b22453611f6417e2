"""`ucb1`: the model whose loss could still be the smallest."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import TYPE_CHECKING, ClassVar

from policies.errors import require
from policies.means import Averaging

if TYPE_CHECKING:
    from policies.contract import State


class LowestBound(Averaging):
    """Part of the policies that ask the arm of the smallest bound: between two updates all queries go to it."""

    __slots__ = ()

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return 1.0 for the arm of the smallest bound, 0.0 for the others."""
        (best,) = self.select(state, arms, 0.0)
        return tuple([1.0 if index == best else 0.0 for index in range(arms)])

    def floor(self, arms: int) -> float:
        """Return 0.0: between two updates only one arm is asked."""
        return 0.0

    @abstractmethod
    def select(self, state: State, arms: int, u: float) -> tuple[int, ...]:
        """Return the arm of the smallest bound."""


@dataclass(frozen=True, slots=True)
class Ucb1(LowestBound):
    """Ask the arm with the smallest lower confidence bound: mean loss - sqrt(exploration * ln t / n).

    t counts all observations, n those of the arm. Every arm is asked once first; ties go to the lowest index. Regret is
    O(log t) if losses are independent and do not drift.

    The choice is a function of the state alone. So between two updates of the state *all* queries go to one arm. With
    late feedback an arm is then asked many times instead of once; that costs queries, not correctness. The log has
    propensities of 0 and 1 only, which off-policy estimates cannot use. Prefer `thompson` there.

    Args:
        exploration: Factor under the root, not negative.

    Examples:
        >>> policy = Ucb1()
        >>> policy.select((1.0, 0.0, 1.0, 0.0), 2, u=0.5)
        (1,)

    References:
        Auer, Cesa-Bianchi and Fischer, Finite-time analysis of the multiarmed bandit problem, Machine Learning 47
        (2002).
    """

    name: ClassVar[str] = "ucb1"

    exploration: float = 2.0  # the paper's constant, for losses in [0, 1]

    def __post_init__(self) -> None:
        """Check the parameter."""
        require(0.0 <= self.exploration < inf, f"ucb1: exploration is {self.exploration}; it must not be negative")

    def select(self, state: State, arms: int, u: float) -> tuple[int, ...]:
        """Return the first arm never observed, else the one of the smallest bound."""
        counts = state[:arms]
        if 0.0 in counts:
            return (counts.index(0.0),)
        spread = self.exploration * log(max(1.0, sum(counts)))  # less than 1 of weights below 1
        bounds = [state[arms + arm] / count - sqrt(spread / count) for arm, count in enumerate(counts)]
        return (bounds.index(min(bounds)),)
