"""The tree of contexts: it splits where that pays for certain, and says what it split on."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from policies.context_tree import ContextTree
from policies.contract import Situation
from policies.draw import pick
from policies.errors import PolicyError
from policies.feature_counts import ArmCounts, Cell, numbers
from policies.lessons import Lesson

if TYPE_CHECKING:
    from collections.abc import Callable

    from policies.contract import State

    Error = Callable[[int, tuple[float, ...]], float]

BOTH = [(False, False), (False, True), (True, False), (True, True)]


def on(*values: bool) -> tuple[float, ...]:
    """Return features that are above 0 or not."""
    return tuple([1.0 if value else -1.0 for value in values])


def explored(policy: ContextTree, error: Error, lessons: int, seed: int = 1, arms: int = 2) -> State:
    """Return the state after lessons about arms that were asked as often as each other."""
    random, state = Random(seed), policy.init(arms)
    for _ in range(lessons):
        features, arm = on(*[random.random() < 0.5 for _ in range(policy.features)]), random.randrange(arms)
        losses = [float(random.random() < error(arm, features)) if each == arm else None for each in range(arms)]
        state = policy.observe(state, arms, Lesson((arm,), (1.0 / arms,) * arms, losses, features))
    return state


def played(policy: ContextTree, error: Error, batches: int) -> tuple[State, float]:
    """Let the policy choose among two arms, 50 queries by one state; return it, and the last 500 losses' mean."""
    random, state, costs = Random(1), policy.init(2), []
    for _ in range(batches):
        ask = policy.propensities_in(state, 2)
        for _ in range(50):
            features = on(*[random.random() < 0.5 for _ in range(policy.features)])
            arm = pick(shares := ask(Situation(features)), random.random())
            costs.append(float(random.random() < error(arm, features)))
            losses = [costs[-1] if each == arm else None for each in range(2)]
            state = policy.observe(state, 2, Lesson((arm,), shares, losses, features))
    return state, sum(costs[-500:]) / 500


def test_cells_are_counted_by_hand() -> None:
    """Three features, five lessons: whatever two of them say is worked out from what was kept."""
    block = (0.0,) * numbers(3)
    told = [((0, 2), 1.0, 1.0), ((0,), 1.0, 0.0), ((2,), 0.5, 1.0), ((), 1.0, 0.5), ((1, 2), 1.0, 1.0)]
    for features, weight, reward in told:
        block = ArmCounts.added(block, features, 3, weight, reward)
    counts = ArmCounts(block, 3)
    assert counts.at(()) == Cell(4.5, 3.0)
    assert [counts.at(((2, is_on),)) for is_on in (True, False)] == [Cell(2.5, 2.5), Cell(2.0, 0.5)]
    for one, other in BOTH:
        its = [each for each in told if (0 in each[0], 2 in each[0]) == (one, other)]
        expected = Cell(sum(weight for _, weight, _ in its), sum(weight * reward for _, weight, reward in its))
        assert counts.at(((0, one), (2, other))) == counts.at(((2, other), (0, one))) == expected


def test_it_splits_where_each_side_has_its_own_best_and_asks_it_there() -> None:
    """By the feature that matters, of four; before there is evidence there is one leaf."""
    policy = ContextTree(features=4, gamma=0.02)
    assert [leaf.path for leaf in policy.leaves(policy.init(2), 2)] == [()]
    state, cost = played(policy, lambda arm, x: 0.1 if (x[2] > 0) == (arm == 1) else 0.6, 30)
    assert [leaf.path for leaf in policy.leaves(state, 2)] == [((2, False),), ((2, True),)]
    ask = policy.propensities_in(state, 2)
    assert ask(Situation(on(True, True, True, True)))[1] > 0.95
    assert ask(Situation(on(True, True, False, True)))[0] > 0.95
    assert cost < 0.16


def test_a_side_is_split_once_more_and_no_leaf_twice() -> None:
    """Three groups with a best model each: the second feature matters on one side alone."""

    def error(arm: int, x: tuple[float, ...]) -> float:
        best = 0 if x[0] <= 0 else 1 if x[1] <= 0 else 2
        return 0.1 if arm == best else 0.7

    policy = ContextTree(features=2, gamma=0.05)
    state = explored(policy, error, 2_000, arms=3)
    paths = [leaf.path for leaf in policy.leaves(state, 3)]
    assert len(paths) in (3, 4)
    for first, second in BOTH:
        ask = policy.propensities_in(state, 3)(Situation(on(first, second)))
        assert max(range(3), key=ask.__getitem__) == (0 if not first else 1 if not second else 2)


def test_what_does_not_pay_is_not_split() -> None:
    """One model is better for all, by more for some; of 20 runs with eight features none splits."""
    policy = ContextTree()
    for seed in range(20):
        state = explored(policy, lambda arm, x: (0.5, 0.3)[arm] + (0.2 if x[0] > 0 and arm == 0 else 0.0), 400, seed)
        assert [leaf.path for leaf in policy.leaves(state, 2)] == [()]


def test_the_order_of_lessons_does_not_matter() -> None:
    """The state is a sum, of lessons with exact numbers bit for bit."""
    policy, random = ContextTree(features=3), Random(4)
    lessons = [
        Lesson((arm := random.randrange(2),), (0.5, 0.5), [1.0 if arm == 0 else None, 0.0 if arm else None], on(*each))
        for each in BOTH * 20
    ]
    states = []
    for order in (lessons, lessons[::-1]):
        state = policy.init(2)
        for lesson in order:
            state = policy.observe(state, 2, lesson)
        states.append(state)
    assert states[0] == states[1]


def test_a_context_begins_with_what_all_know_and_one_leaf() -> None:
    """At most one lesson of each arm."""
    policy = ContextTree(features=1, gamma=0.0)
    state = explored(policy, lambda arm, x: 0.0 if (x[0] > 0) == (arm == 1) else 1.0, 400)
    assert len(policy.leaves(state, 2)) == 2
    start = policy.start(state, 2)
    (leaf,) = policy.leaves(start, 2)
    assert all(cell.lessons <= 1.0 for cell in leaf.counts)


@pytest.mark.parametrize("parameters", [{"features": 0}, {"features": 33}, {"gamma": 1.5}, {"alpha": 0.0}])
def test_impossible_parameters_are_refused(parameters: dict[str, float]) -> None:
    """With the value in the message."""
    with pytest.raises(PolicyError, match=str(next(iter(parameters.values())))):
        ContextTree(**parameters)  # type: ignore[arg-type]


def test_a_state_that_no_record_can_hold_is_refused() -> None:
    """Of 32 features 56 models have one that fits."""
    policy = ContextTree(features=32)
    assert len(policy.init(56)) < 60_000
    with pytest.raises(PolicyError, match="32 features and 57 arms keeps 60306 numbers, of 60000 that fit"):
        policy.init(57)
