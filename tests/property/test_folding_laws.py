"""Laws of folding: by runs or one by one, each observation does to its states what its policy says, in order."""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from policies import registry
from policies.contract import has_shared_prior
from policies.errors import PolicyError
from policies.lessons import Lesson
from policies.losses import loss
from schemas.records import (
    Decision,
    Feedback,
    JoinStatus,
    ModelOutput,
    Observation,
    OtherState,
    Outcome,
    PolicyState,
    Prediction,
    Status,
)
from streams.operators.ids import SeenIds
from streams.operators.join.observation import observation
from streams.operators.learn.fold import Folding
from streams.operators.policy_state import MOST_OTHERS

ARMS = st.sampled_from([("a", "b"), ("b", "a"), ("a", "b", "c")])
POLICIES = (
    "exp3",
    "exp3(eta=1e+308)",
    "exp3(share=0.0)",
    "exp4",
    "thompson",
    "linucb(features=2)",
    "class_vote",
    "single",
    "none",
)
APPRENTICES = ("", "", "thompson", "exp3", "exp3(eta=1e+308)", "linucb(features=2)", "single", "none")
WINDOW_US = 10
LOSS = st.one_of(st.none(), st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0), st.just(1.5))


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Draw an observation; some are of no policy, or do not fit themselves."""
    arms = draw(ARMS)
    count = len(arms)
    features = draw(st.sampled_from([(), (0.5, -1.0)]))
    shares = tuple(draw(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=count, max_size=count)))
    chosen = (draw(st.integers(0, 2)),)
    context = draw(st.sampled_from([None, None, None, "user"]))
    state = "app" if context is None else f"app/{context}"
    losses = tuple(draw(st.lists(LOSS, min_size=count, max_size=count)))
    answers = draw(st.sampled_from([None, ("x", "y", "x")[:count]]))
    state = draw(st.sampled_from([state, "other"])) if context is None else state
    policy, apprentice = draw(st.sampled_from(POLICIES)), draw(st.sampled_from(APPRENTICES))
    decision = Decision(chosen, 0, state, policy, arms, shares, features, apprentice)
    return Observation("q", "app", context, decision, losses, None, None, JoinStatus.JOINED, 0, 0, answers)


class Known(NamedTuple):
    """What one policy has learnt under a name."""

    state: PolicyState
    taught_us: int


# By name: what each policy knows there, the one taught last coming last, and which of them decided last.
Names = dict[str, tuple[dict[str, Known], str]]


def stepped(state: PolicyState | None, seen: Observation, spec: str) -> PolicyState | None:
    """Do what a policy says to its state; None where it cannot be done."""
    decision, arms = seen.decision, len(seen.decision.arms)
    losses_fit = all(value is None or value <= 1.0 for value in seen.losses)
    if not losses_fit or max(decision.chosen) >= arms or spec == "none":
        return None
    policy = registry.parse(spec)
    if state is None:
        state = PolicyState(spec, decision.arms, 0, policy.init(arms))
    elif state.arms != decision.arms:
        state = state._replace(arms=decision.arms, values=policy.extend(state.values, state.arms, decision.arms))
    lesson = Lesson(decision.chosen, decision.propensities, seen.losses, decision.features, seen.answers)
    values = policy.observe(state.values, arms, lesson)
    return PolicyState(*state[:2], state.version + 1, values) if all(map(isfinite, values)) else None


def begun(common: Known | None, policy: str) -> PolicyState | None:
    """Return what a context starts from."""
    starting = registry.parse(policy)
    if common is None or not has_shared_prior(starting):
        return None
    state = common.state
    return state._replace(version=0, values=starting.start(state.values, len(state.arms)))


def taken(names: Names, seen: Observation, now_us: int) -> bool:
    """Do to all states what an observation teaches; tell whether it can be done."""
    decision = seen.decision
    if decision.policy == "none":
        return False
    is_alone = seen.context is None
    common = names.get("app", ({}, ""))[0]
    news: dict[tuple[str, str], PolicyState] = {}
    for spec in dict.fromkeys(filter(None, (decision.policy, decision.apprentice))):
        for name in (decision.state,) if is_alone else (decision.state, "app"):
            if spec == "none" or (name != decision.state and not has_shared_prior(registry.parse(spec))):
                continue
            known = names.get(name, ({}, ""))[0].get(spec)
            before = known.state if known else None if is_alone or name == "app" else begun(common.get(spec), spec)
            after = stepped(before, seen, spec)
            if after is not None:
                news[name, spec] = after
            elif spec == decision.policy:
                return False
    for name in dict.fromkeys(name for name, _ in news):
        set_down(names, name, {spec: state for (where, spec), state in news.items() if where == name}, decision, now_us)
    return True


def set_down(names: Names, name: str, news: dict[str, PolicyState], decision: Decision, now_us: int) -> None:
    """Keep what is new under a name, and what was there for a window; the one that decided before counts as taught."""
    known, decided = names.get(name, ({}, ""))
    deciding = decision.policy if decision.policy in news else decision.apprentice
    if decided not in ("", deciding):
        known[decided] = Known(known.pop(decided).state, now_us)
    for spec, state in news.items():
        known.pop(spec, None)
        known[spec] = Known(state, now_us)
    for spec in [spec for spec in known if spec != deciding and now_us - known[spec].taught_us > WINDOW_US]:
        del known[spec]
    for spec in [spec for spec in known if spec != deciding][:-MOST_OTHERS]:
        del known[spec]
    names[name] = known, deciding


def written(names: Names) -> dict[str, PolicyState]:
    """Return the states as they are stored."""
    found = {}
    for name, (known, deciding) in names.items():
        others = tuple(OtherState(*each.state[:4], each.taught_us) for spec, each in known.items() if spec != deciding)
        found[name] = known[deciding].state._replace(others=others)
    return found


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(observations(), st.integers(0, 6)), max_size=16),
    st.lists(st.integers(1, 4), min_size=16, max_size=16),
)
def test_a_run_of_observations_is_folded_as_one_by_one(log: list[tuple[Observation, int]], copies: list[int]) -> None:
    """Bit for bit, with the same ones refused; each policy learns what it would learn alone."""
    states: dict[str, PolicyState | None] = dict.fromkeys(["app", "other", "app/user"])
    names: Names = {}
    folding = Folding(states, WINDOW_US)
    now_us = 0
    for (seen, later_us), times in zip(log, copies, strict=False):
        now_us += later_us
        for _ in range(times):
            try:
                folding.take(seen, now_us)
                fits = True
            except PolicyError:
                fits = False
            assert fits == taken(names, seen, now_us)
    folding.settle()

    expected = written(names)
    assert repr(states) == repr({name: expected.get(name) for name in states})
    assert folding.changed == expected
    assert all(len(state.others) <= MOST_OTHERS for state in expected.values())


MOMENTS = st.integers(1_000_000_000, 1_060_000_000)


@given(st.lists(st.tuples(st.sampled_from("abc"), MOMENTS)), st.integers(0, 40_000_000))
def test_an_id_is_the_first_if_no_copy_of_it_lies_in_the_window(log: list[tuple[str, int]], window_us: int) -> None:
    """Times may go back; what counts is the newest so far. A window begins with a whole second."""
    seen, known, newest_us = SeenIds(window_us), dict[str, int](), 0
    for query_id, time_us in log:
        newest_us = max(newest_us, time_us)
        is_first = seen.add(query_id, time_us)
        latest_us = known.get(query_id, 0)
        assert not is_first or latest_us < newest_us - window_us
        assert is_first or latest_us > newest_us - window_us - 2_000_000
        known[query_id] = newest_us


LABELS = st.one_of(st.integers(0, 2), st.booleans(), st.sampled_from([0.0, 1.0, 0.5]))


@given(st.sampled_from(["zero_one", "absolute", "squared"]), LABELS, LABELS, LABELS, st.sampled_from("abz"))
def test_a_label_costs_what_it_costs_whatever_was_asked_before(
    kind: str, label: float, served: float, answer: float, model: str
) -> None:
    """Labels that are equal and of other types are not taken for each other where it would show."""
    decision = Decision((0,), 0, "app", "exp3", ("a", "b"), (0.5, 0.5))
    output = ModelOutput(model, "1", Outcome.OK, answer, None)
    asked = Prediction("q", "app", None, decision, Status.COMPLETE, None, served, 1.0, (output,), 0, 0, 0, 0)
    seen = observation(asked, Feedback("q", label), kind, {}, 0)

    assert seen is not None
    assert seen.loss == loss(kind, served, label)
    cost = loss(kind, answer, label)
    assert seen.losses == tuple(cost if arm == model else None for arm in ("a", "b"))
