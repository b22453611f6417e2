"""`context_tree`: who asks is split into a few groups where that pays, and each group finds its own best model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from policies.arm_sets import OneArm
from policies.best_arm import best_of_betas
from policies.contract import PLAIN
from policies.errors import require, require_storable
from policies.feature_counts import ArmCounts, Cell, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.contract import Situation, State
    from policies.lessons import Lesson

_best = lru_cache(4096)(best_of_betas)
_MOST_FEATURES = 32


class Leaf(NamedTuple):
    """One group: the features that tell it, whether each is above 0 there, and its arms' rewards and lessons."""

    path: tuple[tuple[int, bool], ...]
    counts: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class ContextTree(OneArm):
    """Split by features that are above 0 or not, where one side has another best arm; Thompson sampling in each leaf.

    A feature is a yes or a no: it is above 0, or not. What is not such a one is made so by who sends it: 1 for "from a
    phone", x - 50 for "older than 50". The root is split by the feature that gains most for certain, and each side once
    more: four leaves at most. A side gains where some arm is better there than the best one of the whole. For certain
    means by the difference less its bound (a normal one, divided over all features, sides and arms). So with little
    evidence there is one leaf, and all is `thompson`; a split that does not pay is seldom made, and goes by itself.

    The tree is no state of its own. The state has, for each arm, how many lessons and how much reward there were, with
    each feature, and with each two of them. The tree follows from that, so the order of lessons does not matter.

    Args:
        features: How many of a query's count, 1 to 32: further ones are left out, missing ones are no.
        gamma: Share of the queries drawn uniformly, in [0, 1]. It finds what is good for a few alone.
        alpha: Probability of splitting where that gains nothing, in (0, 1).

    Examples:
        >>> from policies.lessons import Lesson
        >>> policy, state = ContextTree(features=2, gamma=0.0), ContextTree(features=2).init(2)
        >>> for is_phone, arm in [(1.0, 0), (1.0, 1), (-1.0, 0), (-1.0, 1)] * 60:
        ...     losses = [float((is_phone > 0) == (arm == 0))] * 2
        ...     state = policy.observe(state, 2, Lesson((arm,), (0.5, 0.5), losses, (is_phone, 1.0)))
        >>> [leaf.path for leaf in policy.leaves(state, 2)]
        [((0, False),), ((0, True),)]

    References:
        Elmachtoub, McNellis, Oh and Petrik, A practical method for solving contextual bandit problems using decision
        trees, UAI 2017, for trees with Thompson sampling; Agresti and Caffo, The American Statistician 54 (2000), for
        the variance of a difference of two shares.
    """

    name: ClassVar[str] = "context_tree"
    uses: ClassVar[Literal["features"]] = "features"
    weighs: ClassVar[bool] = True

    features: int = 8
    gamma: float = 0.1
    alpha: float = 0.05

    def __post_init__(self) -> None:
        """Check the parameters."""
        require(
            0 < self.features <= _MOST_FEATURES and self.features == int(self.features),
            f"context_tree: features is {self.features}; it must be a whole number, 1 to {_MOST_FEATURES}",
        )
        require(0.0 <= self.gamma <= 1.0, f"context_tree: gamma is {self.gamma}; it must lie in [0, 1], 0.1 is usual")
        require(0.0 < self.alpha < 1.0, f"context_tree: alpha is {self.alpha}; it must lie in (0, 1), 0.05 is usual")

    def init(self, arms: int) -> State:
        """Return arms without lessons.

        Raises:
            PolicyError: It would be too large to be stored.
        """
        values = arms * numbers(self.features)
        require_storable(
            values, f"context_tree of {self.features} features and {arms} arms", "give it fewer features, or models"
        )
        return (0.0,) * values

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return those of a query without features: it is on the side of no everywhere."""
        return self.propensities_in(state, arms)(PLAIN)

    def floor(self, arms: int) -> float:
        """Return gamma / K."""
        return self.gamma / arms

    def leaves(self, state: State, arms: int) -> tuple[Leaf, ...]:
        """Return the groups, in the order of their paths: one, if no split pays."""
        known = tuple([ArmCounts(block, self.features) for block in self._blocks(state, arms)])
        return tuple(self._grown(known, ()))

    def propensities_in(self, state: State, arms: int) -> Callable[[Situation], tuple[float, ...]]:
        """Return (1 - gamma) * P(arm is best in the query's leaf) + gamma / K."""
        leaves = self.leaves(state, arms)

        def propensities(situation: Situation) -> tuple[float, ...]:
            its = next(each for each in leaves if all(_is_on(situation.features, at) is on for at, on in each.path))
            posteriors = (*[1.0 + cell.reward for cell in its.counts], *[1.0 + cell.loss for cell in its.counts])
            return tuple([(1.0 - self.gamma) * best + self.gamma / arms for best in _best(posteriors)])

        return propensities

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Count the lesson for the chosen arm, with its features and each two of them."""
        on = tuple([at for at in range(self.features) if _is_on(lesson.features, at)])
        blocks = self._blocks(state, arms)
        for arm in lesson.chosen:
            loss = lesson.losses[arm]
            if loss is not None:
                blocks[arm] = ArmCounts.added(blocks[arm], on, self.features, lesson.weight, 1.0 - loss)
        return tuple([value for block in blocks for value in block])

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Re-map by name; a new arm starts as one lesson of the average of those kept."""
        known = dict(zip(old_arms, self._blocks(state, len(old_arms)), strict=True))
        kept = [_as_one(known[arm]) for arm in new_arms if arm in known]
        fresh = tuple([sum(column) / len(kept) for column in zip(*kept, strict=True)]) if kept else self.init(1)
        return tuple([value for arm in new_arms for value in known.get(arm, fresh)])

    def start(self, state: State, arms: int) -> State:
        """Return a context's first state: at most one lesson of each arm, as all contexts have taught it."""
        return tuple([value for block in self._blocks(state, arms) for value in _as_one(block)])

    def _blocks(self, state: State, arms: int) -> list[tuple[float, ...]]:
        size = numbers(self.features)
        return [state[arm * size : (arm + 1) * size] for arm in range(arms)]

    def _grown(self, known: tuple[ArmCounts, ...], path: tuple[tuple[int, bool], ...]) -> list[Leaf]:
        """Return the leaves below a node."""
        cells = tuple([each.at(path) for each in known])
        taken = {at for at, _ in path}
        gains = {at: self._gain(known, path, at, cells) for at in range(self.features) if at not in taken}
        best = max(gains, key=gains.__getitem__, default=None) if len(path) < 2 else None
        if best is None or gains[best] <= 0.0:
            return [Leaf(path, cells)]
        return [leaf for on in (False, True) for leaf in self._grown(known, (*path, (best, on)))]

    def _gain(
        self, known: tuple[ArmCounts, ...], path: tuple[tuple[int, bool], ...], at: int, whole: tuple[Cell, ...]
    ) -> float:
        """Return by how much a split lessens the mean loss, at least."""
        leader = max(range(len(whole)), key=lambda arm: whole[arm].mean)
        gain, lessons = 0.0, sum(cell.lessons for cell in whole)
        for on in (False, True):
            side = [each.at((*path, (at, on))) for each in known]
            its = side[leader]
            better = max(cell.mean - its.mean - self._width(cell, its, len(side)) for cell in side)
            gain += max(0.0, better) * sum(cell.lessons for cell in side) / max(1.0, lessons)
        return gain

    def _width(self, one: Cell, other: Cell, arms: int) -> float:
        """Return how far the difference of two means may be from the truth, with all others."""
        tests = 2.0 * arms * self.features * (1.0 + log(1.0 + one.lessons + other.lessons))
        return sqrt(2.0 * log(tests / self.alpha) * (one.variance + other.variance))


def _is_on(features: Sequence[float], at: int) -> bool:
    return at < len(features) and features[at] > 0.0


def _as_one(block: tuple[float, ...]) -> tuple[float, ...]:
    """Return an arm's numbers as those of at most one lesson."""
    lessons = max(1.0, block[0])
    return tuple([value / lessons for value in block])
