"""Apprentices in the learner and in selection: several policies learn under one name, and none at another's expense."""

from __future__ import annotations

import pytest

from policies import registry
from policies.errors import PolicyError
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Decision, JoinStatus, Observation, PolicyState
from streams.operators.cold_start import states_of
from streams.operators.configuration import Configuration
from streams.operators.contract import Record, StateKey
from streams.operators.learn.fold import fold, taught
from streams.operators.learn.states import KnownStates
from streams.operators.policy_state import MOST_OTHERS, OTHER_NUMBERS, numbers, state_of
from tests.lessons import WINDOW_US, apply
from tests.loops import CODEC, Loop, digits

EXP3, THOMPSON, UCB1, SINGLE, WILD = (
    registry.spec(registry.parse(text)) for text in ("exp3", "thompson", "ucb1", "single", "exp3(eta=1e+308)")
)


def seen(policy: str = EXP3, apprentice: str = "", number: int = 0, context: str | None = None) -> Observation:
    """Make an observation: the first of two models was asked, and was wrong."""
    name = "app" if context is None else f"app/{context}"
    decision = Decision((0,), 0, name, policy, ("a", "b"), (0.5, 0.5), (), apprentice)
    return Observation(f"q{number}", "app", context, decision, (1.0, None), 1.0, None, JoinStatus.JOINED, 0, 0)


def after(*log: Observation) -> PolicyState:
    """Fold observations that are a second apart."""
    state = None
    for at, one in enumerate(log):
        state = apply(state, one, at * 1_000_000)
    assert state is not None
    return state


def version(state: PolicyState, policy: str) -> int:
    """Return how many lessons a policy has had; 0 if it is not known."""
    known = state_of(state, policy)
    return 0 if known is None else known.version


def test_both_learn_from_what_one_has_decided() -> None:
    """Each as if it were alone."""
    state = after(*[seen(EXP3, THOMPSON)] * 3)
    assert state_of(state, EXP3) == after(*[seen(EXP3)] * 3)
    assert state_of(state, THOMPSON) == after(*[seen(THOMPSON)] * 3)
    assert state.policy == EXP3


def test_late_observations_of_the_policy_before_leave_the_one_that_took_over() -> None:
    """Those that it learns from, too, and those from before it was an apprentice."""
    state = after(seen(EXP3, THOMPSON), seen(THOMPSON), seen(EXP3, THOMPSON), seen(EXP3), seen(THOMPSON))
    assert state_of(state, THOMPSON) == after(*[seen(THOMPSON)] * 4)
    assert version(state, EXP3) == 3


def test_a_policy_that_takes_over_without_having_learnt_along_starts_anew() -> None:
    """Late observations of the one before do not make it start again."""
    state = after(seen(EXP3), seen(EXP3), seen(UCB1), seen(EXP3), seen(UCB1))
    assert state_of(state, UCB1) == after(seen(UCB1), seen(UCB1))


def test_what_no_observation_can_teach_any_more_is_forgotten() -> None:
    """A window after the last; then the state takes what it took before."""
    state = apply(apply(None, seen(EXP3, THOMPSON), 0), seen(THOMPSON), 1)
    assert [other.policy for other in state.others] == [EXP3]
    assert apply(state, seen(THOMPSON), 1 + WINDOW_US).others == state.others
    assert apply(state, seen(THOMPSON), 2 + WINDOW_US) == PolicyState(*after(*[seen(THOMPSON)] * 3)[:4])


def test_a_rare_context_is_served_by_what_was_learnt_there_however_long_ago() -> None:
    """Nothing was observed between the apprentice's lesson and its first decision."""
    state = apply(apply(None, seen(EXP3, THOMPSON), 0), seen(THOMPSON), 1_000 * WINDOW_US)
    assert version(state, THOMPSON) == 2


def test_there_are_only_so_many() -> None:
    """Those that were taught longest ago go."""
    several = [f"exp3(eta={number / 10},gamma=0.05,share=0.0001)" for number in range(1, 9)]
    state = after(*[seen(EXP3, policy) for policy in several])
    assert [other.policy for other in state.others] == several[-MOST_OTHERS:]


def test_memory_counts_all_of_them() -> None:
    """Otherwise bounds in bytes would not hold."""
    state = after(seen(EXP3, THOMPSON))
    own = after(seen(EXP3))
    more = OTHER_NUMBERS + len(after(seen(THOMPSON)).values)
    assert numbers(state) == numbers(own) + more
    states = KnownStates(10)
    states.put(0, {"app": own})
    before = states.size
    states.put(0, {"app": state})
    assert states.size - before == 32 * more
    states.put(0, {"app": own})
    assert states.size == before


@pytest.mark.parametrize("apprentice", ["none", WILD])
@pytest.mark.parametrize("policy", [EXP3, SINGLE])
@pytest.mark.parametrize("context", [None, "ann"])
def test_an_apprentice_that_cannot_learn_harms_nobody(apprentice: str, policy: str, context: str | None) -> None:
    """The policy that decides learns all the same, for a context and for all."""
    log = [(0, seen(policy, apprentice, number, context)) for number in range(3)]
    plain = [(0, seen(policy, "", number, context)) for number in range(3)]
    found = {name: state_of(state, policy) for name, state in fold(log, WINDOW_US).items()}
    assert {name: state for name, state in found.items() if state} == fold(plain, WINDOW_US)


def test_all_contexts_teach_an_apprentice_even_if_the_policy_that_decides_has_no_use_for_it() -> None:
    """`single` keeps no common state; a new context of its apprentice starts from one."""
    ann, bob = seen(SINGLE, THOMPSON, 0, "ann"), seen(SINGLE, THOMPSON, 1, "bob")
    assert states_of(ann) == ("app/ann", "app")
    states = fold([(0, ann), (0, bob)], WINDOW_US)
    assert (states["app"].policy, states["app"].version) == (THOMPSON, 2)
    begun, anew = (state_of(state, THOMPSON) for state in (states["app/bob"], states["app/ann"]))
    assert begun is not None
    assert anew is not None
    assert begun.values != anew.values
    assert taught(states, seen(THOMPSON, "", 2, "carl"), 0, WINDOW_US)["app/carl"].version == 1


def test_a_context_that_comes_after_the_takeover_starts_from_what_all_taught_the_apprentice() -> None:
    """Also if it was there before, and nobody had told anything about it."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy="ucb1", per_context=True))
    loop.query(context="known")
    loop.configure(digits(policy="ucb1", apprentice="thompson", per_context=True))
    for number in range(40):
        query_id = loop.query(context=f"user-{number % 2}")
        loop.driver.run(0.1)
        loop.feedback(query_id, label=3)
        loop.driver.run(0.1)
    loop.configure(digits(policy="thompson", per_context=True))
    first = [loop.query(context=context) for context in ("new", "known")]
    loop.driver.run(1)
    common = state_of(loop.driver.store.states[StateKey(0, "digits")], THOMPSON)
    assert common is not None
    policy = registry.parse(THOMPSON)
    expected = policy.propensities(policy.start(common.values, 2), 2)  # type: ignore[attr-defined]
    for query_id in first:
        decision = loop.answer(query_id).decision
        assert decision is not None
        assert (decision.policy, decision.state_version, decision.propensities) == (THOMPSON, 0, expected)


@pytest.mark.parametrize("apprentice", ["exp4()", "class_vote", "timely", "no_such", "exp3(eta=-1)"])
def test_what_cannot_learn_along_is_refused_with_its_application(apprentice: str) -> None:
    """The log does not say what a vote would have cost."""
    value = CODEC.encode(Application("app", ("a", "b"), apprentice=apprentice))
    with pytest.raises(DecodeError, match="application app"):
        Configuration(CODEC).on_record(Record(topics.APPLICATIONS, 0, 0, 0, b"app", value))


def test_a_policy_is_not_its_own_apprentice() -> None:
    """It would learn everything twice."""
    found = Configuration(CODEC)
    for apprentice in ("exp3", "thompson"):
        value = CODEC.encode(Application("app", ("a", "b"), apprentice=apprentice))
        found.on_record(Record(topics.APPLICATIONS, 0, 0, 0, b"app", value))
        assert found.applications["app"].apprentice == ("" if apprentice == "exp3" else THOMPSON)
    assert version(after(seen(EXP3, EXP3)), EXP3) == 1
    with pytest.raises(PolicyError):
        after(seen("none", EXP3))
