"""`linear_thompson`: each model as often as it is probably the best for the query's features."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies import linear
from policies.best_arm import best_of_normals
from policies.errors import require
from policies.linear_policy import LinearPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from policies.contract import Situation, State

_LEAST = 1e-9  # of a standard deviation: what is certain still has one


@dataclass(frozen=True, slots=True)
class LinearThompson(LinearPolicy):
    """Ask each arm with the probability that its reward is the highest for this query's features.

    Each arm has its own ridge regression of the reward (1 - loss) on x = (1, features). Its weights have a normal
    posterior: mean inverse(A) b, covariance spread^2 * inverse(A). Thompson sampling draws the weights of every arm
    and asks the best. Only the rewards at x count, and those are independent normal variables. So the probability that
    each is the highest is a one-dimensional integral, computed by quadrature. The arm is drawn with exactly these
    probabilities: one uniform draw suffices, and the logged propensity is exact, not an estimate. A little uniform
    mixing (gamma) keeps every propensity above a floor.

    The state is one of `policies.linear`: per arm, the upper triangle of inverse(A), then b.

    Args:
        features: How many of a query's count: further ones are left out, missing ones are 0. Keep them about 1.
        gamma: Share of the queries drawn uniformly, in [0, 1].
        ridge: How many observations the belief that an arm's weights are 0 is worth, for features of 1.
        spread: Standard deviation of a single reward; that of losses of 0 or 1 is at most 0.5. More explores longer.

    Examples:
        >>> from policies.contract import Situation
        >>> from policies.lessons import Lesson
        >>> policy = LinearThompson(features=1, gamma=0.0)
        >>> state = policy.observe(policy.init(2), 2, Lesson((0,), (0.5, 0.5), (0.0, None), (1.0,)))
        >>> [round(share, 2) for share in policy.propensities_in(state, 2)(Situation((1.0,)))]
        [0.79, 0.21]

    References:
        Agrawal and Goyal, Thompson sampling for contextual bandits with linear payoffs, ICML 2013; with a regression
        for each arm, as Riquelme, Tucker and Snoek, Deep Bayesian bandits showdown, ICLR 2018.
    """

    name: ClassVar[str] = "linear_thompson"

    spread: float = 0.5

    def __post_init__(self) -> None:
        """Check the parameters."""
        require(0.0 < self.spread < inf, f"linear_thompson: spread is {self.spread}; it must be positive, 0.5 is usual")
        linear.check(self.name, self.features, self.ridge, self.gamma)

    def propensities_in(self, state: State, arms: int) -> Callable[[Situation], tuple[float, ...]]:
        """Return (1 - gamma) * P(arm is best at x) + gamma / K."""
        regressions = linear.unpacked(state, arms, self.features)

        def propensities(situation: Situation) -> tuple[float, ...]:
            rewards, spread = regressions.at(linear.vector(situation.features, self.features))
            best = best_of_normals(rewards, np.maximum(self.spread * np.sqrt(spread), _LEAST))
            return tuple(((1.0 - self.gamma) * best + self.gamma / arms).tolist())

        return propensities
