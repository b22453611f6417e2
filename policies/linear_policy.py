"""Shared by the linear policies: everything but the way from features to propensities."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from policies import linear
from policies.arm_sets import OneArm
from policies.contract import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.contract import Situation, State
    from policies.lessons import Lesson


@dataclass(frozen=True, slots=True)
class LinearPolicy(OneArm):
    """One arm is asked, by ridge regressions of the reward on the query's features; see `policies.linear`.

    Args:
        features: How many a query has: missing ones are 0, and with more it is answered by default. Keep them about 1.
        gamma: Share of the queries drawn uniformly, in [0, 1].
        ridge: How many observations the belief that an arm's weights are 0 is worth, for features of 1.
    """

    name: ClassVar[str]
    uses: ClassVar[Literal["features"]] = "features"
    weighs: ClassVar[bool] = True

    features: int = 8
    gamma: float = 0.01
    ridge: float = 1.0

    @abstractmethod
    def propensities_in(self, state: State, arms: int) -> Callable[[Situation], tuple[float, ...]]:
        """Return what gives each arm's propensity for a query's features, at least gamma / K."""

    def init(self, arms: int) -> State:
        """Return arms without observations."""
        return linear.empty(arms, self.features, self.ridge)

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return those of a query without features."""
        return self.propensities_in(state, arms)(PLAIN)

    def floor(self, arms: int) -> float:
        """Return gamma / K."""
        return self.gamma / arms

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Add the reward of the chosen arm at these features to its regression."""
        x = linear.vector(lesson.features, self.features)
        return linear.added(state, arms, lesson.chosen, lesson.losses, x, lesson.weight)

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Re-map by name; a new arm starts with the average weights of those kept."""
        return linear.extended(state, old_arms, new_arms, self.features, self.ridge)

    def start(self, state: State, arms: int) -> State:
        """Return the weights of all contexts, as an expectation that the context's own observations soon outweigh."""
        return linear.started(state, arms, self.features, self.ridge)
