"""`exp3`: exponential weights over models of which one is asked, with sharing (Exp3.S)."""

from __future__ import annotations

from dataclasses import dataclass
from math import e, exp, log
from typing import TYPE_CHECKING, ClassVar

from policies.arm_sets import OneArm
from policies.errors import require
from policies.light_lessons import added_to_whole
from policies.logweights import LogWeights, check_rates, normalised

if TYPE_CHECKING:
    from policies.contract import State
    from policies.lessons import Lesson

# Losses are divided by the logged propensity. No policy declares a floor as small as this, so only a damaged log can
# hold less; the bound keeps even that finite.
_SMALLEST_PROPENSITY = 1e-9


@dataclass(frozen=True, slots=True)
class Exp3(LogWeights, OneArm):
    """Ask arms in proportion to weights that fall exponentially with their estimated losses.

    A loss is divided by the probability with which its arm was asked, *as logged with the decision*. So the estimate is
    unbiased however late it comes. Uniform mixing (gamma) keeps every propensity above gamma / K. Fixed sharing gives
    a little weight back to every arm at each step, so that a repaired model wins its traffic back. Plain Exp3 fails to
    do so in 20 to 74 % of simulated runs of Clipper's drift experiment; with sharing no run fails. Nothing is assumed
    about the losses. Regret against the best sequence of S models is O(sqrt(S K T ln(K T))).

    Args:
        eta: Learning rate, positive.
        gamma: Share of the queries drawn uniformly, in (0, 1].
        share: Weight given back to all arms at each step, in [0, 1]; about 1 / horizon.

    Examples:
        >>> from policies.lessons import Lesson
        >>> policy = Exp3()
        >>> state = policy.observe(policy.init(2), 2, Lesson((0,), (0.5, 0.5), (1.0, None)))
        >>> [round(p, 4) for p in policy.propensities(state, 2)]
        [0.4763, 0.5237]

    References:
        Auer, Cesa-Bianchi, Freund and Schapire, The nonstochastic multiarmed bandit problem, SIAM J. Comput. 32 (2002),
        section 8. eta from Clipper's Figure 8 (Crankshaw et al., NSDI 2017), gamma and share from a simulation of it.
    """

    name: ClassVar[str] = "exp3"
    weighs: ClassVar[bool] = True

    eta: float = 0.05
    gamma: float = 0.05
    share: float = 1e-4

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_rates("exp3", self.eta, self.share, "0.05", "0.0001")
        require(0.0 < self.gamma <= 1.0, f"exp3: gamma is {self.gamma}; it must lie in (0, 1], 0.05 is usual")

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return (1 - gamma) * weight + gamma / K."""
        greedy, uniform = 1.0 - self.gamma, self.gamma / arms
        return tuple([greedy * exp(value) + uniform for value in state])

    def floor(self, arms: int) -> float:
        """Return gamma / K."""
        return self.gamma / arms

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Lower the chosen arm's weight by its estimated loss, then share."""
        logs, losses, propensities = list(state), lesson.losses, lesson.propensities
        known = False
        for arm in lesson.chosen:
            loss = losses[arm]
            if loss is not None:
                logs[arm] -= self.eta * lesson.weight * loss / max(propensities[arm], _SMALLEST_PROPENSITY)
                known = True
        if not known:
            return state
        if not self.share:
            return normalised(logs)
        # Of the weights before this step, which sum to 1.
        back = added_to_whole(e * self.share, lesson.weight) / arms
        total = 0.0
        for arm, value in enumerate(logs):  # loops, not comprehensions: of two arms those would cost as much again
            logs[arm] = weight = exp(value) + back
            total += weight
        total = log(total)
        for arm, weight in enumerate(logs):
            logs[arm] = log(weight) - total
        return tuple(logs)
