"""`thompson`: each model as often as it is probably the best (probability matching)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from policies.arm_sets import OneArm
from policies.best_arm import best_of_betas
from policies.errors import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.contract import State
    from policies.lessons import Lesson

# One quadrature costs 140 us for two arms and 200 for five, one look-up 0.4 us; a state is at most a few hundred bytes.
_CACHED_STATES = 4096

_best = lru_cache(_CACHED_STATES)(best_of_betas)


@dataclass(frozen=True, slots=True)
class Thompson(OneArm):
    """Ask each arm with the probability that its success rate is the highest, given what was observed.

    Each arm's rate (1 - mean loss) has a Beta posterior that starts uniform. Thompson sampling draws one rate for each
    arm and asks the best. Here the probability of that is integrated instead, so one uniform draw suffices and the
    logged propensity is exact. A little uniform mixing (gamma) keeps every propensity above a floor. It suits models
    that do not drift. A batch of queries decided from one state still spreads, unlike under `ucb1`.

    The state is (alpha_1 .. alpha_K, beta_1 .. beta_K): 1 + summed rewards, 1 + summed losses.

    Args:
        gamma: Share of the queries drawn uniformly, in [0, 1].

    Examples:
        >>> from policies.lessons import Lesson
        >>> policy = Thompson(gamma=0.0)
        >>> state = policy.observe(policy.init(2), 2, Lesson((0,), (0.5, 0.5), (0.0, None)))
        >>> [round(p, 4) for p in policy.propensities(state, 2)]
        [0.6667, 0.3333]

    References:
        Thompson, Biometrika 25 (1933); Agrawal and Goyal, COLT 2012 (losses between 0 and 1).
    """

    name: ClassVar[str] = "thompson"
    weighs: ClassVar[bool] = True

    gamma: float = 0.01

    def __post_init__(self) -> None:
        """Check the parameter."""
        require(0.0 <= self.gamma <= 1.0, f"thompson: gamma is {self.gamma}; it must lie in [0, 1], 0.01 is usual")

    def init(self, arms: int) -> State:
        """Return uniform posteriors."""
        return (1.0,) * (2 * arms)

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return (1 - gamma) * P(arm is best) + gamma / K; worked out once a state."""
        greedy, uniform = 1.0 - self.gamma, self.gamma / arms
        return tuple([greedy * probability + uniform for probability in _best(state)])

    def floor(self, arms: int) -> float:
        """Return gamma / K."""
        return self.gamma / arms

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Add reward and loss of the chosen arm to its posterior."""
        values, losses = list(state), lesson.losses
        for arm in lesson.chosen:
            loss = losses[arm]
            if loss is not None:
                values[arm] += lesson.weight * (1.0 - loss)
                values[arms + arm] += lesson.weight * loss
        return tuple(values)

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Re-map by name; a new arm starts uniform plus one observation of the average posterior mean of those kept."""
        size = len(old_arms)
        known = dict(zip(old_arms, zip(state[:size], state[size:], strict=True), strict=True))
        rates = [known[arm][0] / sum(known[arm]) for arm in new_arms if arm in known]
        rate = sum(rates) / len(rates) if rates else 0.0
        fresh = (1.0 + rate, 2.0 - rate) if rates else (1.0, 1.0)
        pairs = [known.get(arm, fresh) for arm in new_arms]
        return (*(alpha for alpha, _ in pairs), *(beta for _, beta in pairs))

    def start(self, state: State, arms: int) -> State:
        """Return a context's first state: uniform plus at most one observation of each arm's mean over all contexts."""
        seen = [max(1.0, state[arm] + state[arms + arm] - 2.0) for arm in range(arms)]
        return tuple([1.0 + (value - 1.0) / seen[at % arms] for at, value in enumerate(state)])
