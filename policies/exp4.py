"""`exp4`: exponential weights over models that are all asked; their answers are combined."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, ClassVar

from policies.arm_sets import EveryArm
from policies.light_lessons import mixed_in
from policies.logweights import LogWeights, check_rates, log_sum, normalised

if TYPE_CHECKING:
    from policies.contract import State
    from policies.lessons import Lesson


@dataclass(frozen=True, slots=True)
class Exp4(EveryArm, LogWeights):
    """Ask every arm and vote with weights that fall exponentially with each arm's loss.

    Every arm's loss is seen, so nothing is estimated and no propensity divides (Clipper's code divided, wrongly). The
    vote can beat the best model, at the price of running them all. Fixed sharing lets a repaired model come back: a
    broken one keeps share / K of the weight. An arm whose loss is not known (it missed the deadline) sleeps: its weight
    stays exactly as it was, and those that answered keep their sum between them.

    Args:
        eta: Learning rate, positive.
        share: Part of the weight spread evenly over the arms that answered, at each step, in [0, 1].

    Examples:
        >>> from policies.lessons import Lesson
        >>> policy = Exp4(eta=1.0, share=0.0)
        >>> state = policy.observe(policy.init(2), 2, Lesson((0, 1), (1.0, 1.0), (1.0, 0.0)))
        >>> [round(w, 4) for w in policy.weights(state, 2)]
        [0.2689, 0.7311]

    References:
        Freund and Schapire, J. Comput. Syst. Sci. 55 (1997) (Hedge); Herbster and Warmuth, Machine Learning 32 (1998)
        (fixed share); Freund et al., STOC 1997 (sleeping experts).
    """

    name: ClassVar[str] = "exp4"
    weighs: ClassVar[bool] = True

    eta: float = 0.1
    share: float = 1e-3

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_rates("exp4", self.eta, self.share, "0.1", "0.001")

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Lower each weight by its arm's loss and share, among the arms whose loss is known."""
        losses, eta = lesson.losses, self.eta * lesson.weight
        awake = [arm for arm, loss in enumerate(losses) if loss is not None]
        if not awake:
            return state
        lowered = [state[arm] - eta * loss for arm, loss in enumerate(losses) if loss is not None]
        moved = self._shared(normalised(lowered), lesson.weight)
        if len(awake) == len(state):
            return moved
        mass = log_sum([state[arm] for arm in awake])
        logs = list(state)
        for arm, value in zip(awake, moved, strict=True):
            logs[arm] = value + mass
        return tuple(logs)

    def _shared(self, logs: State, weight: float) -> State:
        """Mix normalised weights with equal ones, by a light lesson less than by a whole one."""
        if not self.share:
            return logs
        share = mixed_in(self.share, weight)
        kept, back = 1.0 - share, share / len(logs)
        return tuple([log(kept * exp(value) + back) for value in logs])
