"""What a policy from outside the package learns from and may do: one lesson, its own answers, other parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policies.contract import State
    from schemas.records import ModelOutput, Value


class Lesson(NamedTuple):
    """What one decision has cost, as it was logged: all that a policy learns from.

    An arm that was asked may have an unknown loss: its label cannot be judged, or the query never reached it.
    """

    chosen: tuple[int, ...]  # the arms that were asked
    propensities: tuple[float, ...]  # one for each arm, as logged with the decision, never recomputed
    losses: Sequence[float | None]  # one for each arm, in [0, 1]; None where it is not known
    features: tuple[float, ...] = ()  # the query's
    answers: Sequence[Value | None] | None = None  # labels by arm, None for all else; None = they are not logged


class Taught(Protocol):
    """A policy of somebody's own: the methods that it must have. Those of `OPTIONAL` it may have.

    Every method is pure: its result depends on its arguments alone, and changes none of them.
    """

    def init(self, arms: int) -> State:
        """Return the state before any observation: a tuple of floats, whose length depends on the arms alone."""
        ...

    def propensities(self, state: State, arms: int) -> Sequence[float]:
        """Return the exact probability that each arm is among those asked."""
        ...

    def select(self, state: State, arms: int, u: float) -> Sequence[int]:
        """Return the arms to ask, at least one; `u` in [0, 1) is the only randomness."""
        ...

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Return the state after one observation."""
        ...


class Combining(Protocol):
    """A policy that makes the answer of a query itself, instead of a vote by its weights."""

    def combine(self, state: State, arms: int, outputs: Mapping[int, ModelOutput]) -> tuple[Value | None, float]:
        """Return the answer and its confidence in [0, 1]; None = the application's default output.

        Args:
            state: that decided.
            arms: how many arms there are.
            outputs: of the arms that were asked. At least one has the outcome OK, and may have scores. The answer of
                another one is None, or its substitute (`missing: running_mean`).
        """
        ...


class OwnAnswer(NamedTuple):
    """What a policy makes the answer of a query with, instead of weights: answer and confidence."""

    combine: Callable[[Mapping[int, ModelOutput]], tuple[Value | None, float]]


NEEDED = ("init", "propensities", "select", "observe")
# With these a policy can do more. Without them: the weights are the propensities, no arm has a floor, other models or
# parameters start anew, each context starts anew, and the application combines the answers.
OPTIONAL = ("weights", "floor", "extend", "adopt", "start", "combine", "propensities_in")
