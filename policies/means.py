"""Counts and sums of the losses seen on each arm: the state of the policies that compare averages."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from policies.arm_sets import OneArm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policies.contract import State
    from policies.lessons import Lesson


class Averages:
    """Counts and sums of every arm's losses, by name: the state, without a way to choose.

    The state is (n_1 .. n_K, s_1 .. s_K): observations and summed losses. The sums of zero-one losses are exact up to
    2^53 observations, so their order does not matter at all (but to a context, whose start depends on what came before
    it).
    """

    __slots__ = ()

    def init(self, arms: int) -> State:
        """Return counts and sums of zero."""
        return (0.0,) * (2 * arms)

    def observed(
        self, state: State, arms: int, losses: Sequence[float | None], of: Iterable[int], weight: float = 1.0
    ) -> State:
        """Count the known losses of some arms, as so much of an observation."""
        values = list(state)
        for arm in of:
            loss = losses[arm]
            if loss is not None:
                values[arm] += weight
                values[arms + arm] += weight * loss
        return tuple(values)

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Re-map by name; a new arm starts with one observation of the average loss of those kept.

        One, not the average count: a new arm among old ones with a million observations each would stay average for
        ever.
        """
        size = len(old_arms)
        known = dict(zip(old_arms, zip(state[:size], state[size:], strict=True), strict=True))
        means = [known[arm][1] / known[arm][0] for arm in new_arms if arm in known and known[arm][0]]
        fresh = (1.0, sum(means) / len(means)) if means else (0.0, 0.0)
        pairs = [known.get(arm, fresh) for arm in new_arms]
        return (*(count for count, _ in pairs), *(total for _, total in pairs))

    def start(self, state: State, arms: int) -> State:
        """Return a context's first state: of each arm at most one observation, of the mean loss of all contexts."""
        counts = [min(1.0, count) for count in state[:arms]]
        sums = [state[arms + arm] * (kept / state[arm]) if kept else 0.0 for arm, kept in enumerate(counts)]
        return (*counts, *sums)


class Averaging(Averages, OneArm):
    """Part of the policies that ask one arm and compare average losses: only asked arms count."""

    __slots__ = ()

    weighs: ClassVar[bool] = True

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Count the known losses of the chosen arms."""
        return self.observed(state, arms, lesson.losses, lesson.chosen, lesson.weight)
