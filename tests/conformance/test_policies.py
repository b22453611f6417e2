"""The laws that every registered policy obeys; a policy is done when this list passes."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from policies.contract import has_shared_prior
from policies.errors import PolicyError
from policies.registry import POLICIES, create, parse, spec

if TYPE_CHECKING:
    from policies.contract import Policy, State

ARMS = (1, 2, 3, 5, 10)
POSITIONAL = {
    "single": "it is configured with a position and learns nothing about names",
    "cascade": "its arms stand in the order in which they are asked",
}
STEPS = 100_000
GRID = 2_000

# The extremes of what an observation may hold: losses at both ends, propensities down to what a float can say.
LOSSES = (0.0, 1.0, 0.5, 1e-300, 1.0 - 2**-53, None)
PROPENSITIES = (1.0, 0.5, 0.01, 1e-9, 1e-300, 5e-324, 0.0)


@pytest.fixture(params=sorted(POLICIES))
def policy(request: pytest.FixtureRequest) -> Policy:
    """Each registered policy with its default parameters."""
    return create(request.param)


@pytest.fixture(params=ARMS)
def arms(request: pytest.FixtureRequest) -> int:
    """A number of arms."""
    return request.param


def played(policy: Policy, arms: int, steps: int, seed: int = 7) -> State:
    """Let the policy choose and learn for some steps; arm i errs with probability (i + 1) / (arms + 1)."""
    random = Random(seed)
    state = policy.init(arms)
    for _ in range(steps):
        chosen = policy.select(state, arms, random.random())
        propensities = policy.propensities(state, arms)
        losses = [float(random.random() < (arm + 1) / (arms + 1)) if arm in chosen else None for arm in range(arms)]
        state = policy.observe(state, arms, chosen, propensities, losses)
    return state


def states(policy: Policy, arms: int) -> list[State]:
    """States of different ages."""
    return [policy.init(arms), *(played(policy, arms, steps) for steps in (1, 17, 300))]


def is_distribution(values: tuple[float, ...]) -> bool:
    """Tell whether these are probabilities that sum to 1."""
    return all(0.0 <= value <= 1.0 + 1e-12 for value in values) and math.isclose(sum(values), 1.0, abs_tol=1e-9)


def test_state_is_a_flat_tuple_of_floats_whose_length_depends_on_the_arms_alone(policy: Policy, arms: int) -> None:
    """A stored state has one schema for all policies."""
    reached = states(policy, arms)
    assert {len(state) for state in reached} == {len(reached[0])}
    assert all(type(state) is tuple and all(type(value) is float for value in state) for state in reached)


def test_propensities_are_exact_probabilities_above_the_floor(policy: Policy, arms: int) -> None:
    """They sum to 1, or are all 1 where every arm is asked, and never fall below what is declared."""
    for state in states(policy, arms):
        propensities = policy.propensities(state, arms)
        assert len(propensities) == arms
        assert min(propensities) >= policy.floor(arms) - 1e-12
        if policy.full_information:
            assert propensities == (1.0,) * arms
        else:
            assert is_distribution(propensities)


def test_selection_frequency_is_the_propensity(policy: Policy, arms: int) -> None:
    """Over a fine grid of draws each arm is asked as often as its propensity says."""
    for state in states(policy, arms):
        asked = [0] * arms
        for step in range(GRID):
            for arm in policy.select(state, arms, (step + 0.5) / GRID):
                asked[arm] += 1
        for count, propensity in zip(asked, policy.propensities(state, arms), strict=True):
            assert abs(count / GRID - propensity) <= 1.0 / GRID + 1e-9


def test_selection_stands_the_ends_of_the_draw(policy: Policy, arms: int) -> None:
    """The smallest and the largest draw ask arms that exist and have some propensity."""
    for state in states(policy, arms):
        for u in (0.0, 1.0 - 2**-53):
            chosen = policy.select(state, arms, u)
            assert chosen
            assert all(policy.propensities(state, arms)[arm] > 0.0 for arm in chosen)


def test_weights_sum_to_one(policy: Policy, arms: int) -> None:
    """The weights of a vote are a distribution in every state."""
    for state in states(policy, arms):
        assert len(policy.weights(state, arms)) == arms
        assert is_distribution(policy.weights(state, arms))


def test_every_method_is_pure(policy: Policy, arms: int) -> None:
    """Asking twice gives the same, and no argument is changed."""
    state = played(policy, arms, 50)
    kept, losses = tuple(state), [0.25] * arms
    chosen = policy.select(state, arms, 0.4)
    propensities = policy.propensities(state, arms)
    first = policy.observe(state, arms, chosen, propensities, losses)
    assert policy.observe(state, arms, chosen, propensities, losses) == first
    assert policy.select(state, arms, 0.4) == chosen
    assert policy.propensities(state, arms) == propensities
    assert policy.weights(state, arms) == policy.weights(state, arms)
    assert state == kept
    assert losses == [0.25] * arms


def test_two_folds_of_one_log_give_the_same_bits(policy: Policy, arms: int) -> None:
    """A policy made anew from its text folds the same log to the same state."""
    assert played(policy, arms, 500) == played(parse(spec(policy)), arms, 500)


def test_unknown_losses_change_nothing(policy: Policy, arms: int) -> None:
    """An observation without any known loss leaves the state as it is."""
    state = played(policy, arms, 20)
    chosen = policy.select(state, arms, 0.5)
    assert policy.observe(state, arms, chosen, policy.propensities(state, arms), [None] * arms) == state


def test_state_stays_finite_whatever_is_observed(policy: Policy) -> None:
    """Late, doubled and reordered observations with extreme losses and propensities leave a usable state."""
    random, arms = Random(3), 5
    state = policy.init(arms)
    for step in range(STEPS):
        chosen = tuple(range(arms)) if policy.full_information else (random.randrange(arms) if step % 3 else 0,)
        propensities = tuple([random.choice(PROPENSITIES) for _ in range(arms)])
        state = policy.observe(state, arms, chosen, propensities, [random.choice(LOSSES) for _ in range(arms)])
    assert all(map(math.isfinite, state))
    assert is_distribution(policy.weights(state, arms))
    assert min(policy.propensities(state, arms)) >= policy.floor(arms) - 1e-12


@pytest.mark.parametrize("loss", [0.0, 1.0])
def test_state_stays_finite_under_one_loss_for_ever(policy: Policy, loss: float) -> None:
    """The same loss of the same arm a hundred thousand times leaves probabilities."""
    arms = 3
    state = policy.init(arms)
    losses = [loss, 1.0 - loss, loss] if policy.full_information else [loss] * arms
    chosen, propensities = tuple(range(arms)) if policy.full_information else (0,), policy.propensities(state, arms)
    for _ in range(STEPS):
        state = policy.observe(state, arms, chosen, propensities, losses)
    assert all(map(math.isfinite, state))
    assert is_distribution(policy.weights(state, arms))
    assert min(policy.propensities(state, arms)) >= policy.floor(arms) - 1e-12


def test_exp3_is_finite_after_a_million_updates_without_sharing() -> None:
    """Without any share the weights leave the range of floats; their logarithms do not."""
    policy = create("exp3", {"share": 0.0})
    state, propensities = policy.init(2), (0.025, 0.975)
    for _ in range(1_000_000):
        state = policy.observe(state, 2, (0,), propensities, (1.0, None))
    assert all(map(math.isfinite, state))
    assert policy.propensities(state, 2) == pytest.approx((0.025, 0.975))


def test_spec_reads_back(policy: Policy) -> None:
    """The text of a policy makes an equal policy with the same text."""
    assert parse(spec(policy)) == policy
    assert spec(parse(spec(policy))) == spec(policy)


def test_extending_to_the_same_arms_changes_nothing_that_matters(policy: Policy, arms: int) -> None:
    """Re-mapping onto the same names keeps the propensities."""
    names = [f"m{arm}" for arm in range(arms)]
    state = played(policy, arms, 100)
    same = policy.extend(state, names, names)
    assert policy.propensities(same, arms) == pytest.approx(policy.propensities(state, arms), abs=1e-12)


@pytest.mark.parametrize("name", sorted(set(POLICIES) - set(POSITIONAL)))
def test_extending_follows_names_not_positions(name: str) -> None:
    """Reordered arms carry their weight along."""
    policy = create(name)
    state = played(policy, 3, 400)
    turned = policy.extend(state, ["a", "b", "c"], ["c", "a", "b"])
    a, b, c = policy.weights(state, 3)
    assert policy.weights(turned, 3) == pytest.approx((c, a, b), abs=1e-9)


@pytest.mark.parametrize("new", [["a"], ["b", "new"], ["a", "b", "c", "x", "y"], ["x", "y"]])
def test_extended_state_is_usable(policy: Policy, new: list[str]) -> None:
    """Fewer, more and wholly different arms all give a state that decides and learns."""
    arms = len(new)
    state = policy.extend(played(policy, 3, 400), ["a", "b", "c"], new)
    assert len(state) == len(policy.init(arms))
    assert is_distribution(policy.weights(state, arms))
    chosen = policy.select(state, arms, 0.99)
    policy.observe(state, arms, chosen, policy.propensities(state, arms), [1.0] * arms)


def test_wholly_new_arms_start_anew(policy: Policy) -> None:
    """Where no arm is kept, nothing is known."""
    assert policy.extend(played(policy, 3, 50), ["a", "b", "c"], ["x", "y"]) == policy.init(2)


def test_a_better_arm_is_preferred_in_time(policy: Policy) -> None:
    """After enough observations the best arm has the most weight."""
    weights = policy.weights(played(policy, 3, 3_000), 3)
    assert weights[0] == max(weights)
    assert all(later <= earlier + 0.1 for earlier, later in pairwise(weights))


STARTING = sorted(set(POLICIES) - {"single", "cascade"})


def test_contexts_start_from_the_common_state_with_every_policy_that_learns() -> None:
    """`single` has nothing to start from; what `cascade` promises a context must be shown for that context."""
    assert [name for name in sorted(POLICIES) if has_shared_prior(create(name))] == STARTING


@pytest.mark.parametrize("name", STARTING)
def test_a_context_starts_with_what_all_have_taught(name: str, arms: int) -> None:
    """The arm that is best for all is best for it, and where nothing was taught nothing is believed."""
    policy = create(name)
    assert has_shared_prior(policy)
    for state in states(policy, arms):
        start = policy.start(state, arms)
        assert len(start) == len(state)
        assert all(type(value) is float and math.isfinite(value) for value in start)
    learnt = played(policy, 3, 1_000)
    weights, first = policy.weights(learnt, 3), policy.weights(policy.start(learnt, 3), 3)
    assert first[weights.index(max(weights))] == max(first)
    anew = policy.init(arms)
    assert policy.weights(policy.start(anew, arms), arms) == pytest.approx(policy.weights(anew, arms))


@pytest.mark.parametrize("name", STARTING)
def test_a_context_unlike_the_others_is_soon_served_by_its_own(name: str) -> None:
    """However much all contexts have taught, a few hundred observations of one outweigh it."""
    policy = create(name)
    assert has_shared_prior(policy)
    state, random = policy.start(played(policy, 3, 1_500), 3), Random(5)
    for _ in range(400):
        propensities = policy.propensities(state, 3)
        chosen = policy.select(state, 3, random.random())
        losses = [float(random.random() < (3 - arm) / 4) if arm in chosen else None for arm in range(3)]
        state = policy.observe(state, 3, chosen, propensities, losses)
    assert policy.weights(state, 3)[2] == max(policy.weights(state, 3))


def test_unknown_parameters_are_refused(policy: Policy) -> None:
    """A misspelt parameter is an error, not a default."""
    with pytest.raises(PolicyError, match="no parameter 'gama'"):
        create(policy.name, {"gama": 0.1})
