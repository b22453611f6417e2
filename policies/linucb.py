"""`linucb`: the model with the highest upper confidence bound of a linear reward in the query's features."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies import linear
from policies.errors import require
from policies.linear_policy import LinearPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from policies.contract import Situation, State


@dataclass(frozen=True, slots=True)
class LinUcb(LinearPolicy):
    """Ask the arm of the highest bound for this query's features: expected reward + alpha * its standard deviation.

    Each arm has its own ridge regression of the reward (1 - loss) on (1, features): an arm is known for queries like
    those it was asked. For one state and one query the choice is certain, but a share gamma of the queries is drawn
    uniformly instead. So the logged propensities are exact and have a floor, and a batch of alike queries between two
    updates does not go to one arm alone. Without features it compares mean rewards.

    The state is one of `policies.linear`: per arm, the upper triangle of inverse(A), then b.

    Args:
        alpha: Standard deviations of optimism, not negative.
        features: How many of a query's count: further ones are left out, missing ones are 0. Keep them about 1.
        gamma: Share of the queries drawn uniformly, in [0, 1].
        ridge: How many observations the belief that an arm's weights are 0 is worth, for features of 1.

    Examples:
        >>> from policies.contract import Situation
        >>> from policies.lessons import Lesson
        >>> policy = LinUcb(features=1, gamma=0.0)
        >>> state = policy.observe(policy.init(2), 2, Lesson((0,), (1.0, 0.0), (0.0, None), (1.0,)))
        >>> state = policy.observe(state, 2, Lesson((0,), (1.0, 0.0), (1.0, None), (-1.0,)))
        >>> ask = policy.propensities_in(state, 2)
        >>> ask(Situation((1.0,))), ask(Situation((-1.0,)))
        ((1.0, 0.0), (0.0, 1.0))

    References:
        Li, Chu, Langford and Schapire, A contextual-bandit approach to personalized news article recommendation, WWW
        2010 (algorithm 1, disjoint arms); Chu, Li, Reyzin and Schapire, AISTATS 2011.
    """

    name: ClassVar[str] = "linucb"

    alpha: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        require(0.0 <= self.alpha < inf, f"linucb: alpha is {self.alpha}; it must not be negative, 1 is usual")
        linear.check(self.name, self.features, self.ridge, self.gamma)

    def propensities_in(self, state: State, arms: int) -> Callable[[Situation], tuple[float, ...]]:
        """Return 1 - gamma for the arm of the highest bound (the first of equals), and gamma / K for each."""
        regressions = linear.unpacked(state, arms, self.features)

        def propensities(situation: Situation) -> tuple[float, ...]:
            rewards, spread = regressions.at(linear.vector(situation.features, self.features))
            best = int((rewards + self.alpha * np.sqrt(spread)).argmax())
            uniform = self.gamma / arms
            return tuple([uniform + (1.0 - self.gamma if arm == best else 0.0) for arm in range(arms)])

        return propensities
