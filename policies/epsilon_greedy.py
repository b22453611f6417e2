"""`epsilon_greedy`: the model with the smallest mean loss, and now and then any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from policies.errors import require
from policies.means import Averaging

if TYPE_CHECKING:
    from policies.contract import State


@dataclass(frozen=True, slots=True)
class EpsilonGreedy(Averaging):
    """Ask the arm with the smallest mean loss; with probability epsilon ask one drawn uniformly (maybe the same).

    Simple and robust where models do not change; its regret grows linearly, and it forgets nothing, so it follows a
    model that breaks only as fast as the mean moves. Ties go to the lowest index; an arm never observed counts as
    lossless, so it is tried. Until its first feedback has been learnt, every greedy query goes to it.

    Args:
        epsilon: Share of the queries drawn uniformly, in [0, 1].

    Examples:
        >>> from policies.lessons import Lesson
        >>> policy = EpsilonGreedy(epsilon=0.1)
        >>> state = policy.observe(policy.init(2), 2, Lesson((0,), (0.95, 0.05), (1.0, None)))
        >>> [round(p, 4) for p in policy.propensities(state, 2)]
        [0.05, 0.95]

    References:
        Sutton and Barto, Reinforcement Learning, 2nd ed. (2018), section 2.2.
    """

    name: ClassVar[str] = "epsilon_greedy"

    epsilon: float = 0.1  # Clipper's constant

    def __post_init__(self) -> None:
        """Check the parameter."""
        require(0.0 <= self.epsilon <= 1.0, f"epsilon_greedy: epsilon is {self.epsilon}; it must lie in [0, 1]")

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return epsilon / K for every arm and the rest for the best."""
        losses = [total / count if count else 0.0 for count, total in zip(state[:arms], state[arms:], strict=True)]
        best = losses.index(min(losses))
        share = self.epsilon / arms
        return tuple([share + (1.0 - self.epsilon) if index == best else share for index in range(arms)])

    def floor(self, arms: int) -> float:
        """Return epsilon / K."""
        return self.epsilon / arms
