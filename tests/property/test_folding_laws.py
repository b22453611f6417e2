"""Laws of folding: by runs or one by one, each observation does to its states what its policy says, in order."""

from __future__ import annotations

from math import isfinite

from hypothesis import given, settings
from hypothesis import strategies as st

from policies import registry
from policies.contract import has_shared_prior, is_answer_aware, is_contextual
from policies.errors import PolicyError
from policies.losses import loss
from schemas.records import (
    Decision,
    Feedback,
    JoinStatus,
    ModelOutput,
    Observation,
    Outcome,
    PolicyState,
    Prediction,
    Status,
)
from streams.operators.ids import SeenIds
from streams.operators.join.observation import observation
from streams.operators.learn.fold import Folding

ARMS = st.sampled_from([("a", "b"), ("b", "a"), ("a", "b", "c")])
POLICIES = (
    "exp3",
    "exp3(eta=1e+308)",
    "exp3(share=0.0)",
    "exp4",
    "thompson",
    "linucb(features=2)",
    "class_vote",
    "none",
)
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
    decision = Decision(chosen, 0, state, draw(st.sampled_from(POLICIES)), arms, shares, features)
    return Observation("q", "app", context, decision, losses, None, None, JoinStatus.JOINED, 0, 0, answers)


def stepped(state: PolicyState | None, seen: Observation) -> PolicyState | None:
    """Do what a policy says to one state; None where it cannot be done."""
    decision, arms = seen.decision, len(seen.decision.arms)
    losses_fit = all(value is None or value <= 1.0 for value in seen.losses)
    if not losses_fit or max(decision.chosen) >= arms or decision.policy == "none":
        return None
    policy = registry.parse(decision.policy)
    if state is None or state.policy != decision.policy:
        state = PolicyState(decision.policy, decision.arms, 0, policy.init(arms))
    elif state.arms != decision.arms:
        state = state._replace(arms=decision.arms, values=policy.extend(state.values, state.arms, decision.arms))
    given_all = state.values, arms, decision.chosen, decision.propensities, seen.losses
    if is_contextual(policy):
        values = policy.observe(*given_all, decision.features)
    elif seen.answers is not None and is_answer_aware(policy):
        values = policy.observe(*given_all, seen.answers)
    else:
        values = policy.observe(*given_all)
    return PolicyState(*state[:2], state.version + 1, values) if all(map(isfinite, values)) else None


def begun(common: PolicyState | None, policy: str) -> PolicyState | None:
    """Return what a context starts from."""
    starting = registry.parse(policy)
    if common is None or common.policy != policy or not has_shared_prior(starting):
        return None
    return common._replace(version=0, values=starting.start(common.values, len(common.arms)))


def taken(states: dict[str, PolicyState | None], seen: Observation) -> bool:
    """Do to all states what an observation teaches; tell whether it can be done."""
    decision = seen.decision
    names = [decision.state]
    if seen.context is not None and decision.policy != "none" and has_shared_prior(registry.parse(decision.policy)):
        names.append("app")
    before = {name: states[name] for name in names}
    if len(names) > 1 and before[decision.state] is None:
        before[decision.state] = begun(states["app"], decision.policy)
    after = {name: stepped(state, seen) for name, state in before.items()}
    if None in after.values():
        return False
    states |= after
    return True


@settings(max_examples=100, deadline=None)
@given(st.lists(observations(), max_size=12), st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_a_run_of_observations_is_folded_as_one_by_one(log: list[Observation], copies: list[int]) -> None:
    """Bit for bit, with the same ones refused."""
    states: dict[str, PolicyState | None] = dict.fromkeys(["app", "other", "app/user"])
    expected = states.copy()
    folding = Folding(states)
    for seen, times in zip(log, copies, strict=False):
        for _ in range(times):
            try:
                folding.take(seen)
                fits = True
            except PolicyError:
                fits = False
            assert fits == taken(expected, seen)
    folding.settle()

    assert repr([*states.items()]) == repr([*expected.items()])
    assert folding.changed == {name: state for name, state in states.items() if state is not None}


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
