"""The laws that every registered policy obeys; a policy is done when this list passes."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from policies.contract import Policy, has_shared_prior
from policies.errors import PolicyError
from policies.laws import LAWS, Law
from policies.lessons import Lesson
from policies.registry import POLICIES, create

if TYPE_CHECKING:
    from policies.contract import State

ARMS = (1, 2, 3, 5, 10)
POSITIONAL = {
    "single": "it is configured with a position and learns nothing about names",
    "cascade": "its arms stand in the order in which they are asked",
}
EXEMPT = {("Other models: what is known of a model follows its name.", name) for name in POSITIONAL}
STEPS = 100_000

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
        state = policy.observe(state, arms, Lesson(chosen, propensities, losses))
    return state


def states(policy: Policy, arms: int) -> list[State]:
    """States of different ages."""
    return [policy.init(arms), *(played(policy, arms, steps) for steps in (1, 17, 300))]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_that_ships_has_all_of_the_contract(name: str) -> None:
    """What may be left out of a policy of one's own is added to it from outside; to one that ships nothing is."""
    wanted = {one for one in vars(Policy) if not one.startswith("_")} | {*Policy.__annotations__}
    assert wanted >= {"name", "full_information", "weights", "floor"}
    assert sorted(one for one in wanted if not hasattr(create(name), one)) == []


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.says)
def test_a_policy_obeys_the_laws_that_are_checked_of_anybodys(policy: Policy, law: Law) -> None:
    """They are those that `skysail policy check` runs."""
    if (not law.needs or hasattr(policy, law.needs)) and (law.says, policy.name) not in EXEMPT:
        law.check(policy)


def is_distribution(values: tuple[float, ...]) -> bool:
    """Tell whether these are probabilities that sum to 1."""
    return all(0.0 <= value <= 1.0 + 1e-12 for value in values) and math.isclose(sum(values), 1.0, abs_tol=1e-9)


def test_state_stays_finite_whatever_is_observed(policy: Policy) -> None:
    """Late, doubled and reordered observations with extreme losses and propensities leave a usable state."""
    random, arms = Random(3), 5
    state = policy.init(arms)
    for step in range(STEPS):
        chosen = tuple(range(arms)) if policy.full_information else (random.randrange(arms) if step % 3 else 0,)
        propensities = tuple([random.choice(PROPENSITIES) for _ in range(arms)])
        state = policy.observe(state, arms, Lesson(chosen, propensities, [random.choice(LOSSES) for _ in range(arms)]))
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
        state = policy.observe(state, arms, Lesson(chosen, propensities, losses))
    assert all(map(math.isfinite, state))
    assert is_distribution(policy.weights(state, arms))
    assert min(policy.propensities(state, arms)) >= policy.floor(arms) - 1e-12


def test_exp3_is_finite_after_a_million_updates_without_sharing() -> None:
    """Without any share the weights leave the range of floats; their logarithms do not."""
    policy = create("exp3", {"share": 0.0})
    state, propensities = policy.init(2), (0.025, 0.975)
    for _ in range(1_000_000):
        state = policy.observe(state, 2, Lesson((0,), propensities, (1.0, None)))
    assert all(map(math.isfinite, state))
    assert policy.propensities(state, 2) == pytest.approx((0.025, 0.975))


def test_extending_to_the_same_arms_changes_nothing_that_matters(policy: Policy, arms: int) -> None:
    """Re-mapping onto the same names keeps the propensities."""
    names = [f"m{arm}" for arm in range(arms)]
    state = played(policy, arms, 100)
    same = policy.extend(state, names, names)
    assert policy.propensities(same, arms) == pytest.approx(policy.propensities(state, arms), abs=1e-12)


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
        state = policy.observe(state, 3, Lesson(chosen, propensities, losses))
    assert policy.weights(state, 3)[2] == max(policy.weights(state, 3))


def test_unknown_parameters_are_refused(policy: Policy) -> None:
    """A misspelt parameter is an error, not a default."""
    with pytest.raises(PolicyError, match="no parameter 'gama'"):
        create(policy.name, {"gama": 0.1})
