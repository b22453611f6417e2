"""The further laws of policies whose weights depend on what the arms answer."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.combine import combine
from policies.contract import AnswerAware, is_answer_aware
from policies.lessons import Lesson
from policies.registry import POLICIES, create, parse, spec
from schemas.records import Tensor

if TYPE_CHECKING:
    from policies.contract import Policy, State
    from schemas.records import Value

LABELS: tuple[int | str | None, ...] = (None, 0, 1, -(2**63), "", "7", "é", "\udc80", *range(7, 60))
ANSWERS: tuple[Value | None, ...] = (*LABELS, 0.5, float("inf"), True, Tensor.of(np.zeros(3)))


@pytest.fixture(params=sorted(name for name in POLICIES if is_answer_aware(create(name))))
def policy(request: pytest.FixtureRequest) -> AnswerAware:
    """Each such policy with its default parameters."""
    made: Policy = create(request.param)
    assert is_answer_aware(made)
    return made


@pytest.fixture(params=(1, 2, 5))
def arms(request: pytest.FixtureRequest) -> int:
    """A number of arms."""
    return request.param


def played(policy: AnswerAware, arms: int, steps: int, seed: int = 5) -> State:
    """Let the arms answer anything, at any loss."""
    random, state, everyone = Random(seed), policy.init(arms), tuple(range(arms))
    for _ in range(steps):
        losses = [random.choice((None, 0.0, 1.0, random.random())) for _ in everyone]
        answers = [random.choice(LABELS) for _ in everyone]
        state = policy.observe(state, arms, Lesson(everyone, (1.0,) * arms, losses, answers=answers))
    return state


def test_every_arm_is_asked(policy: AnswerAware) -> None:
    """Else the answers of those that were not asked would be missing from the weights."""
    assert policy.full_information


def test_ballots_are_positive_and_finite_whatever_is_answered(policy: AnswerAware, arms: int) -> None:
    """Of every arm that was asked, some or all: so they can always be combined."""
    random = Random(1)
    for state in (policy.init(arms), played(policy, arms, 1), played(policy, arms, 500)):
        vote_weights = policy.vote_weights(state, arms)
        for _ in range(100):
            answers = {arm: random.choice(ANSWERS) for arm in range(random.randrange(arms), arms)}
            votes = vote_weights(answers)
            assert votes.keys() == answers.keys()
            assert all(0.0 < vote < math.inf for vote in votes.values())
            given = {arm: answer for arm, answer in answers.items() if answer is not None}
            if given:
                assert 0.0 <= combine(votes, given)[1] <= 1.0


def test_weights_are_the_ballots_of_arms_whose_answers_are_not_known(policy: AnswerAware, arms: int) -> None:
    """What is shown of a policy, and what is voted with, is one thing."""
    state = played(policy, arms, 200)
    votes = policy.vote_weights(state, arms)(dict.fromkeys(range(arms)))
    total = sum(votes.values())
    assert policy.weights(state, arms) == pytest.approx([votes[arm] / total for arm in range(arms)])


def test_the_state_has_its_length_whatever_is_answered(policy: AnswerAware, arms: int) -> None:
    """Labels without end do not make it grow."""
    state, everyone = policy.init(arms), tuple(range(arms))
    for number in range(2_000):
        labels = [f"{number}-{arm}" for arm in everyone]
        state = policy.observe(state, arms, Lesson(everyone, (1.0,) * arms, (0.0,) * arms, answers=labels))
    assert len(state) == len(policy.init(arms))
    assert all(type(value) is float and math.isfinite(value) for value in state)


def test_two_folds_of_one_log_give_the_same_bits(policy: AnswerAware, arms: int) -> None:
    """A policy made anew from its text folds the same answers to the same state."""
    twin = parse(spec(policy))
    assert is_answer_aware(twin)
    assert played(policy, arms, 300) == played(twin, arms, 300)


def test_unknown_losses_change_nothing_whatever_was_answered(policy: AnswerAware, arms: int) -> None:
    """Nor does a label that is met with them take a place."""
    state, everyone = played(policy, arms, 20), tuple(range(arms))
    assert policy.observe(state, arms, Lesson(everyone, (1.0,) * arms, [None] * arms, answers=["new"] * arms)) == state


def test_ballots_follow_names_not_positions(policy: AnswerAware) -> None:
    """Reordered arms carry what is known of their answers along."""
    state = played(policy, 3, 400)
    turned = policy.extend(state, ["a", "b", "c"], ["c", "a", "b"])
    for label in LABELS:
        a, b, c = (policy.vote_weights(state, 3)(dict.fromkeys(range(3), label))[arm] for arm in range(3))
        assert policy.vote_weights(turned, 3)(dict.fromkeys(range(3), label)) == pytest.approx({0: c, 1: a, 2: b})


def test_an_answer_that_is_mostly_right_weighs_more_than_one_that_is_not(policy: AnswerAware) -> None:
    """Of one arm: that is what the answers are logged for."""
    state = policy.init(2)
    for number in range(200):
        label = number % 2
        state = policy.observe(state, 2, Lesson((0, 1), (1.0, 1.0), (float(label), 0.5), answers=(label, 2)))
    votes = policy.vote_weights(state, 2)
    assert votes({0: 0})[0] > 2 * votes({0: 1})[0]
