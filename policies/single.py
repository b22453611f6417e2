"""`single`: always the same model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from policies.arm_sets import OneArm
from policies.errors import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.contract import State
    from policies.lessons import Lesson


@dataclass(frozen=True, slots=True)
class Single(OneArm):
    """Ask one arm and learn nothing: the baseline, and what an application with one model needs.

    Args:
        arm: Index of the model to ask.

    Examples:
        >>> Single(arm=1).select((), 3, u=0.9)
        (1,)
    """

    name: ClassVar[str] = "single"
    weighs: ClassVar[bool] = True

    arm: int = 0

    def __post_init__(self) -> None:
        """Check the parameter."""
        require(self.arm >= 0, f"single: arm is {self.arm}; it is the index of a model, 0 for the first")

    def init(self, arms: int) -> State:
        """Return the empty state."""
        require(self.arm < arms, f"single: arm {self.arm} of {arms}; name more models or a smaller index")
        return ()

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return 1.0 for the arm, 0.0 for the others."""
        return tuple([1.0 if index == self.arm else 0.0 for index in range(arms)])

    def floor(self, arms: int) -> float:
        """Return 0.0: the others are never asked."""
        return 0.0

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Return the state as it is."""
        return state

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Return the empty state; `arm` is an index into the new arms."""
        return self.init(len(new_arms))
