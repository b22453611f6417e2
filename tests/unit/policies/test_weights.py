"""Lessons of less weight: as many light copies as a heavy one weighs teach the same, and the best arm is found."""

from __future__ import annotations

import numpy as np
import pytest

from policies import registry
from policies.contract import is_weighing
from policies.lessons import Lesson
from policies.outside import outside
from schemas.records import Step, Tensor

# Whose state is a sum over its lessons. Others forget or mix at each lesson, which copies do in turns with it.
COPIES = [
    "epsilon_greedy",
    "ucb1",
    "thompson",
    "exp3(share=0)",
    "exp4(share=0)",
    "class_vote(discount=1)",
    "linucb(features=2)",
    "linear_thompson(features=2)",
    "context_tree(features=2)",
    "ridge(features=2,share=0)",
]
COMPUTED = Tensor.of(np.array([0.5, -1.0]))


def lesson(weight: float, losses: tuple[float | None, ...] = (0.5, 1.0, 0.25)) -> Lesson:
    """Return a lesson that every kind of policy learns from."""
    shares, answers = (0.5, 0.25, 0.25), ("a", "b", "a")
    return Lesson((0, 1, 2), shares, losses, (0.3, -0.7), answers, (), (COMPUTED,) * 3, 2.0, weight)


@pytest.mark.parametrize("spec", COPIES)
@pytest.mark.parametrize("copies", [2, 5])
def test_a_lesson_of_weight_w_teaches_what_w_copies_do(spec: str, copies: int) -> None:
    """Of weight 1 / W each, beside one of w / W: up to rounding."""
    policy, most = registry.parse(spec), 8
    one = policy.observe(policy.init(3), 3, lesson(copies / most))
    several = policy.init(3)
    for _ in range(copies):
        several = policy.observe(several, 3, lesson(1 / most))
    assert several == pytest.approx(one, rel=1e-9)
    assert one != policy.init(3)


FORGETTING = [
    "discounted_ucb(discount=0.9)",
    "class_vote(discount=0.5)",
    "cascade(discount=0.9)",
    "exp3(share=0.01)",
    "exp4(share=0.01)",
    "timely(share=0.01)",
    "ridge(features=2,share=0.01)",
]


@pytest.mark.parametrize("spec", FORGETTING)
@pytest.mark.parametrize("parts", [2, 1_000])
def test_parts_of_a_lesson_forget_what_the_whole_one_does(spec: str, parts: int) -> None:
    """No more of what was known, nor of each other; counts of queries (of a cascade) are no part of it."""
    policy = registry.parse(spec)
    before, after = [(Step("escalate", (1,), 0, 1.0, "asked", sure),) for sure in (0.3, 0.9)]
    known = policy.init(3)
    for _ in range(200):
        known = policy.observe(known, 3, lesson(1.0, (0.0, 0.25, 1.0))._replace(steps=before))
    whole, light = policy.observe(known, 3, lesson(1.0)._replace(steps=after)), known
    for _ in range(parts):
        light = policy.observe(light, 3, lesson(1 / parts)._replace(steps=after))
    end = -3 if spec.startswith("cascade") else None
    assert light[:end] == pytest.approx(whole[:end], rel=0.01)
    assert whole[:end] != pytest.approx(known[:end], rel=0.01)


def test_evidence_of_light_lessons_is_learnt_from() -> None:
    """Five hundred whole lessons' worth, a thousandth each, finds the best model as the whole ones do."""
    policy = registry.parse("exp4(eta=0.1,share=0.001)")
    found = []
    for parts in (1, 1_000):
        state = policy.init(2)
        for number in range(500 * parts):
            losses = (float(number % 10 == 0), float(number % 10 < 4))
            state = policy.observe(state, 2, Lesson((0, 1), (1.0, 1.0), losses, weight=1 / parts))
        found.append(policy.weights(state, 2)[0])
    assert found[1] == pytest.approx(found[0], abs=0.01)
    assert found[0] > 0.9


@pytest.mark.parametrize("spec", ["exp3(eta=1e9,share=1e-12)", "exp4(eta=1e9,share=1e-12)", "exp4(share=1)"])
@pytest.mark.parametrize("weight", [5e-324, 1e-300, 1e-9, 0.5])
def test_light_lessons_leave_finite_numbers(spec: str, weight: float) -> None:
    """However little is mixed in, after whole ones that left an arm next to nothing."""
    policy = registry.parse(spec)
    state = policy.init(3)
    for part in (1.0, weight) * 100:
        state = policy.observe(state, 3, lesson(part, (1.0, 0.0, 1.0)))
    assert np.isfinite(state).all()


@pytest.mark.parametrize("spec", [*registry.POLICIES])
def test_every_policy_that_ships_weighs(spec: str) -> None:
    """None of them needs smaller losses in the place of weights."""
    assert is_weighing(registry.create(spec))


class Plain:
    """A policy of somebody's own that knows nothing of weights: its state is the last loss of arm 0."""

    def init(self, arms: int) -> tuple[float, ...]:
        """Begin with nothing."""
        return (0.0,)

    def propensities(self, state: tuple[float, ...], arms: int) -> tuple[float, ...]:
        """Ask the first."""
        return (1.0,) + (0.0,) * (arms - 1)

    def select(self, state: tuple[float, ...], arms: int, u: float) -> tuple[int, ...]:
        """Ask the first."""
        return (0,)

    def observe(self, state: tuple[float, ...], arms: int, lesson: Lesson) -> tuple[float, ...]:
        """Keep its loss."""
        loss = lesson.losses[0]
        return state if loss is None else (loss,)


class Knowing(Plain):
    """One that weighs: it keeps the weight, too."""

    weighs = True

    def observe(self, state: tuple[float, ...], arms: int, lesson: Lesson) -> tuple[float, ...]:
        """Keep the weight."""
        return (lesson.weight,)


def test_a_policy_of_ones_own_says_whether_it_weighs() -> None:
    """By an attribute of its class."""
    assert not is_weighing(outside("tests.unit.policies.test_weights:Plain", {}))
    assert is_weighing(outside("tests.unit.policies.test_weights:Knowing", {}))


@pytest.mark.parametrize("spec", ["epsilon_greedy", "ucb1", "thompson", "exp3(eta=0.2)", "discounted_ucb"])
def test_the_arm_of_the_least_weighted_loss_is_found(spec: str) -> None:
    """Arm 0 errs in 1 of 10 queries, which weigh 8; arm 1 in 4 of 10, which weigh 1. By number arm 0 is the best."""
    policy, random = registry.parse(spec), np.random.default_rng(3)
    state = policy.init(2)
    for _ in range(6_000):
        is_heavy = random.random() < 0.2
        losses = (float(is_heavy and random.random() < 0.5), float(not is_heavy and random.random() < 0.5))
        chosen, shares = policy.select(state, 2, random.random()), policy.propensities(state, 2)
        seen = tuple([losses[arm] if arm in chosen else None for arm in range(2)])
        state = policy.observe(state, 2, Lesson(chosen, shares, seen, weight=1.0 if is_heavy else 0.125))
    weights = policy.weights(state, 2)
    assert weights[1] > 0.8, weights
