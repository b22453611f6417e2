"""The further laws of policies that go by the query's features, or by how long the arms take."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

import pytest

from policies import linear
from policies.contract import PLAIN, Contextual, Situation, has_shared_prior, is_contextual
from policies.draw import pick
from policies.lessons import Lesson
from policies.linear_policy import LinearPolicy
from policies.registry import POLICIES, create, parse, spec

if TYPE_CHECKING:
    from policies.contract import Policy, State

SITUATED = sorted(name for name in POLICIES if is_contextual(create(name)))
LINEAR = [name for name in SITUATED if isinstance(create(name), LinearPolicy)]
EXTREMES = (0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, 1e6, -1e300, 1.7976931348623157e308)


@pytest.fixture(params=SITUATED)
def policy(request: pytest.FixtureRequest) -> Contextual:
    """Each such policy with its default parameters."""
    made: Policy = create(request.param)
    assert is_contextual(made)
    return made


@pytest.fixture(params=(1, 2, 5))
def arms(request: pytest.FixtureRequest) -> int:
    """A number of arms."""
    return request.param


def some_situation(random: Random, arms: int) -> Situation:
    """Draw up to ten features, a time that is left (maybe none), and latencies that are known or not."""
    features = tuple([random.gauss(0.0, 1.0) for _ in range(random.randrange(11))])
    latencies = tuple([random.choice((0.0, random.expovariate(1e-5))) for _ in range(arms)])
    return Situation(features, random.uniform(-1e4, 2e5), random.choice((latencies, ())))


def decided(policy: Contextual, state: State, arms: int, situation: Situation, u: float) -> tuple[int, ...]:
    """Return the arms asked, as the selection role finds them."""
    shares = policy.propensities_in(state, arms)(situation)
    return tuple([a for a in range(arms) if shares[a]]) if policy.full_information else (pick(shares, u),)


def played(policy: Contextual, arms: int, steps: int, seed: int = 5) -> State:
    """Let the policy choose and learn; the first feature says whether even or odd arms err."""
    random, state = Random(seed), policy.init(arms)
    for _ in range(steps):
        situation = some_situation(random, arms)
        chosen = decided(policy, state, arms, situation, random.random())
        is_odd = bool(situation.features and situation.features[0] > 0)
        losses = [float(arm % 2 == is_odd) if arm in chosen else None for arm in range(arms)]
        shares = policy.propensities_in(state, arms)(situation)
        state = policy.observe(state, arms, Lesson(chosen, shares, losses, situation.features))
    return state


def test_propensities_are_exact_in_every_situation(policy: Contextual, arms: int) -> None:
    """They sum to 1 and keep the floor; or are 1 and 0 for those asked and not: somebody, if anybody has time."""
    random = Random(1)
    for state in (policy.init(arms), played(policy, arms, 100)):
        ask = policy.propensities_in(state, arms)
        for _ in range(50):
            situation = some_situation(random, arms)
            shares = ask(situation)
            assert len(shares) == arms
            assert min(shares) >= policy.floor(arms) - 1e-12
            if policy.full_information:
                assert set(shares) <= {0.0, 1.0}
                assert (1.0 in shares) == (situation.left_us >= min(situation.latencies_us, default=0.0))
            else:
                assert math.isclose(sum(shares), 1.0, abs_tol=1e-9)


def test_without_a_situation_the_state_alone_decides(policy: Contextual, arms: int) -> None:
    """A query that brings nothing is decided as by a policy that knows nothing of situations."""
    state = played(policy, arms, 100)
    assert policy.propensities_in(state, arms)(PLAIN) == policy.propensities(state, arms)


def test_decisions_are_pure(policy: Contextual, arms: int) -> None:
    """The same situation has the same propensities, whatever was asked in between."""
    random, state = Random(2), played(policy, arms, 60)
    ask, first, other = policy.propensities_in(state, arms), some_situation(random, arms), some_situation(random, arms)
    shares = ask(first)
    ask(other)
    assert ask(first) == shares == policy.propensities_in(state, arms)(first)


def test_two_folds_of_one_log_with_features_give_the_same_bits(policy: Contextual, arms: int) -> None:
    """A policy made anew from its text folds the same log to the same state."""
    again = parse(spec(policy))
    assert is_contextual(again)
    assert played(policy, arms, 200) == played(again, arms, 200)


def test_state_stays_finite_whatever_the_features(policy: Contextual) -> None:
    """Features at both ends of what a float can say leave a state that decides."""
    random, arms = Random(4), 3
    state = policy.init(arms)
    for _ in range(2_000):
        features = tuple([random.choice(EXTREMES) for _ in range(random.randrange(12))])
        losses = [random.choice((0.0, 1.0, None)) for _ in range(arms)]
        state = policy.observe(state, arms, Lesson((random.randrange(arms),), (0.5,) * arms, losses, features))
    assert all(map(math.isfinite, state))
    for value in EXTREMES:
        shares = policy.propensities_in(state, arms)(Situation((value,) * 9))
        assert min(shares) >= policy.floor(arms) - 1e-12
        assert all(map(math.isfinite, shares))


def test_an_arm_that_was_not_asked_stays_as_it_was(policy: Contextual) -> None:
    """Its weight beside the other arms that were not asked does not move."""
    state = played(policy, 3, 200)
    after = policy.observe(state, 3, Lesson((1,), (0.0, 1.0, 0.0), (None, 1.0, None), (0.5,)))
    size = len(state) // 3
    for arm in (0, 2):
        assert after[arm * size : (arm + 1) * size] == state[arm * size : (arm + 1) * size]


@pytest.mark.parametrize("name", LINEAR)
def test_a_context_starts_as_all_do_and_believes_it_little(name: str) -> None:
    """It expects of every arm what they expect, and one observation moves it more than it moves them."""
    policy = create(name, {"features": 1, "gamma": 0.0})
    assert is_contextual(policy)
    assert has_shared_prior(policy)
    common = played(policy, 2, 600)
    start = policy.start(common, 2)
    assert len(start) == len(common)
    assert linear.unpacked(start, 2, 1).weights == pytest.approx(linear.unpacked(common, 2, 1).weights, abs=1e-12)
    moved = [policy.observe(state, 2, Lesson((0,), (1.0, 0.0), (0.5, None), (1.0,))) for state in (start, common)]
    by = [
        abs(linear.unpacked(after, 2, 1).weights - linear.unpacked(before, 2, 1).weights).max()
        for after, before in zip(moved, (start, common), strict=True)
    ]
    assert by[0] > 10 * by[1]


@pytest.mark.parametrize("name", [name for name in SITUATED if create(name).full_information is False])
def test_features_tell_queries_apart(name: str) -> None:
    """Where the sign of a feature says which arm is right, each arm is asked for its own queries in time."""
    policy = create(name, {"features": 1})
    assert is_contextual(policy)
    ask = policy.propensities_in(played(policy, 2, 600), 2)
    assert ask(Situation((1.0,)))[1] < 0.1
    assert ask(Situation((-1.0,)))[0] < 0.1
