"""Features and latencies on their way: from the query to the decision, the log and the policy state."""

from __future__ import annotations

import pytest

from policies import registry
from policies.contract import has_shared_prior
from policies.errors import PolicyError
from schemas import topics
from schemas.inputs import MAX_FEATURES
from schemas.records import Decision, JoinStatus, Observation, PolicyState, Status
from streams.operators.cold_start import started
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from streams.operators.selection.latencies import PROBE_US, SAMPLES, Latencies
from streams.testing import Crash, Fault, StoreLoss
from streams.topology import state_partition
from tests.lessons import apply
from tests.loops import Loop, digits

SEVEN_OR_THREE = {"good": lambda _: 7, "bad": lambda _: 3}
LINEAR = {"policy": "linucb", "parameters": {"features": 1}}


@pytest.mark.parametrize("policy", ["single", "exp3", "exp4", "linear_thompson", "timely"])
def test_features_travel_with_the_decision_whatever_the_policy(policy: str) -> None:
    """What was known when it was decided stands in the log, also for policies that are tried on it later."""
    loop = Loop(dict(SEVEN_OR_THREE), digits(policy=policy))
    query_id = loop.query(features=(0.5, -1.0))
    loop.driver.run(0.1)
    loop.feedback(query_id, label=7)
    loop.driver.run(1)
    ((_, seen),) = loop.observations()

    assert seen.decision.features == (0.5, -1.0)
    assert seen.decision == loop.answer(query_id).decision


def test_a_query_without_features_shares_its_decision_with_others() -> None:
    """Nothing is made for it that is not made once a state."""
    loop = Loop(dict(SEVEN_OR_THREE), digits(policy="single"))
    first, second = loop.query(), loop.query()
    loop.driver.run(0.1)

    assert loop.answer(first).decision is loop.answer(second).decision


@pytest.mark.parametrize("policy", ["linucb", "linear_thompson"])
def test_a_linear_policy_learns_through_the_loop_which_queries_are_whose(policy: str) -> None:
    """A feature says which model is right; afterwards each is asked for its own, and the log alone gives the state."""
    loop = Loop(dict(SEVEN_OR_THREE), digits(policy=policy, parameters={"features": 1}))
    for turn in range(60):
        sign = 1.0 if turn % 2 else -1.0
        query_id = loop.query(features=(sign,))
        loop.driver.run(0.2)
        loop.feedback(query_id, label=7 if sign > 0 else 3)
        loop.driver.run(0.2)
    asked = {sign: [loop.query(features=(sign,)) for _ in range(20)] for sign in (1.0, -1.0)}
    loop.driver.run(1)

    right = [loop.answer(query_id).answer == (7 if sign > 0 else 3) for sign in asked for query_id in asked[sign]]
    assert sum(right) > 32
    states = {StateKey(0, name): state for name, state in fold(loop.observations(), 130_000_000).items()}
    assert loop.driver.store.states == states


def test_more_features_than_a_query_may_have_are_a_dead_letter() -> None:
    """They would travel with everything that follows."""
    loop = Loop(dict(SEVEN_OR_THREE), digits())
    loop.query(features=(0.0,) * (MAX_FEATURES + 1))
    fine = loop.query(features=(0.0,) * MAX_FEATURES)
    loop.driver.run(1)

    assert [cause for cause, _ in loop.dead(topics.QUERIES)] == ["invalid"]
    assert [prediction.query_id for prediction in loop.predictions()] == [fine]


def test_the_decision_is_logged_with_the_propensity_of_its_draw() -> None:
    """The state at observation time gives another one, which must not be used."""
    loop = Loop(dict(SEVEN_OR_THREE), digits(**LINEAR))
    queries = [loop.query(features=(1.0,)) for _ in range(30)]
    loop.driver.run(0.1)
    for query_id in queries:
        loop.feedback(query_id, label=3)
    loop.driver.run(5)

    logged = {seen.decision.propensities for _, seen in loop.observations()}
    assert logged == {(0.995, 0.005)}
    policy, state = registry.create("linucb", {"features": 1}), loop.driver.store.states[StateKey(0, "digits")]
    assert policy.propensities(state.values, 2) == pytest.approx((0.005, 0.995))


def test_more_features_than_the_policy_counts_are_refused_not_cut() -> None:
    """The answer is the default and says why; as many as it counts, or fewer, are decided by."""
    loop = Loop(dict(SEVEN_OR_THREE), digits(policy="linucb", parameters={"features": 2}))
    asked = [loop.query(features=tuple([0.5] * count)) for count in (1, 2, 3)]
    loop.driver.run(1)
    answers = [loop.answer(query_id) for query_id in asked]
    assert [answer.reason for answer in answers] == [None, None, "too_many_features"]
    assert (answers[2].status, answers[2].decision) == (Status.DEFAULT, None)


def test_a_stored_state_of_another_size_teaches_nothing() -> None:
    """It is an impossible observation, not a crash."""
    spec = registry.spec(registry.create("linucb"))
    decision = Decision((0,), 0, "app", spec, ("a",), (1.0,), (1.0,))
    seen = Observation("q", "app", None, decision, (1.0,), 1.0, None, JoinStatus.JOINED, 0, 0)
    with pytest.raises(PolicyError, match="do not fit"):
        apply(PolicyState(spec, ("a",), 1, (1.0,)), seen)


def teach(loop: Loop, contexts: list[str], **fields: object) -> None:
    """Ask once in each context, and say that the second model is right."""
    for context in contexts:
        query_id = loop.query(context=context, **fields)
        loop.driver.run(0.1)
        loop.feedback(query_id, label=3)
        loop.driver.run(0.1)
    loop.driver.run(3)


def personal(faults: tuple[Fault, ...] = ()) -> Loop:
    """Let two users teach that the second model is right: twenty queries each, with feedback."""
    application = digits(**LINEAR | {"per_context": True})
    loop = Loop(dict(SEVEN_OR_THREE), application, faults)
    teach(loop, ["user-0", "user-1"] * 20, features=(1.0,))
    return loop


def test_a_context_never_seen_starts_from_what_all_have_taught() -> None:
    """Its first query is decided by the average user's weights; its own state holds its own observations alone."""
    loop = personal()
    first = loop.query(context="new", features=(1.0,))
    loop.driver.run(0.1)
    loop.feedback(first, label=3)
    loop.driver.run(3)
    decision, states = loop.answer(first).decision, loop.driver.store.states

    assert decision is not None
    assert (decision.state, decision.state_version) == ("digits/new", 0)
    assert decision.propensities == pytest.approx((0.005, 0.995))
    assert (states[StateKey(0, "digits")].version, states[StateKey(0, "digits/new")].version) == (41, 1)


def test_what_all_contexts_have_taught_is_one_state_however_many_partitions_there_are() -> None:
    """Of twenty users each has taught it once; they lie in one partition with it, and there is no other."""
    loop = Loop(dict(SEVEN_OR_THREE), digits(per_context=True), partitions=4)
    teach(loop, [f"user-{number}" for number in range(20)])
    states, here = loop.driver.store.states, state_partition("digits", 4)

    assert states[StateKey(here, "digits")].version == 20
    assert {key.partition for key in states} == {here}
    assert len(states) == 21


@pytest.mark.parametrize("policy", ["exp3", "exp4", "ucb1", "thompson", "class_vote"])
def test_a_new_context_is_decided_by_what_others_have_taught_with_every_policy_that_learns(policy: str) -> None:
    """Its first decision's weights prefer the model that was right for them; the states are the fold of the log."""
    loop = Loop(dict(SEVEN_OR_THREE), digits(policy=policy, per_context=True))
    teach(loop, ["user-0", "user-1"] * 20)
    first = loop.query(context="new")
    loop.driver.run(3)
    decision = loop.answer(first).decision
    assert decision is not None
    common, anew = loop.driver.store.states[StateKey(0, "digits")], registry.parse(decision.policy)
    assert has_shared_prior(anew)
    wrong, right = anew.weights(anew.start(common.values, 2), 2)
    assert right > wrong
    assert decision.propensities == anew.propensities(anew.start(common.values, 2), 2)
    states = {StateKey(0, name): state for name, state in fold(loop.observations(), 130_000_000).items()}
    assert loop.driver.store.states == states


def test_a_policy_that_learns_nothing_keeps_no_common_state() -> None:
    """A context costs one state."""
    loop = Loop(dict(SEVEN_OR_THREE), digits(policy="single", per_context=True))
    query_id = loop.query(context="ann")
    loop.driver.run(0.1)
    loop.feedback(query_id, label=3)
    loop.driver.run(3)
    assert {key.name for key in loop.driver.store.states} == {"digits/ann"}


@pytest.mark.parametrize(
    "faults",
    [(), (Crash(3_000_000, "learner"), Crash(5_000_000, "selection")), (StoreLoss(4_000_000, 1_000_000),)],
    ids=["none", "crashes", "store-loss"],
)
def test_common_and_own_states_are_the_fold_of_the_log(faults: tuple[Fault, ...]) -> None:
    """Bit for bit, whatever happens on the way."""
    loop = personal(faults)
    states = {StateKey(0, name): state for name, state in fold(loop.observations(), 130_000_000).items()}
    assert loop.driver.store.states == states
    assert states[StateKey(0, "digits")].version == 40


def test_a_common_state_of_another_policy_tells_a_new_context_nothing() -> None:
    """Numbers of one policy mean nothing to another."""
    spec, other = (registry.spec(registry.create("linucb", {"features": count})) for count in (1, 2))
    common = PolicyState(spec, ("a",), 9, (0.5, 0.0, 1.0, 0.8, 0.0))
    assert started(common, other) is started(None, spec) is None
    assert started(common, spec) == PolicyState(spec, ("a",), 0, (1.0, 0.0, 1.0, 0.4, 0.0))


def test_timely_stops_asking_a_model_that_does_not_answer_in_time() -> None:
    """The first query waits for it in vain; the next are complete without it, until it is tried again, ever later."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: None}, digits(policy="timely"))
    first = loop.query()
    loop.driver.run(0.2)
    second = loop.query()
    loop.driver.run(PROBE_US / 1e6)
    third, fourth = loop.query(), loop.query()
    loop.driver.run(1.5 * PROBE_US / 1e6)
    fifth = loop.query()
    loop.driver.run(PROBE_US / 1e6)
    sixth = loop.query()
    loop.driver.run(0.2)

    assert [loop.answer(name).status for name in (first, third, sixth)] == [Status.PARTIAL] * 3
    for name in (second, fourth, fifth):
        answer = loop.answer(name)
        assert (answer.status, answer.answer, len(answer.outputs)) == (Status.COMPLETE, 7, 1)
        assert answer.decision is not None
        assert answer.decision.propensities == (1.0, 0.0)
        assert answer.answered_us - answer.received_us < 10_000


def test_timely_asks_a_slow_model_where_there_is_time_for_it() -> None:
    """A miss at 100 ms says nothing about a query that has a second."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: None}, digits(policy="timely"))
    loop.query()
    loop.driver.run(0.2)
    patient = loop.query(slo_ms=1_000.0)
    loop.driver.run(2)

    assert {output.model for output in loop.answer(patient).outputs} == {"good", "bad"}


def test_timely_asks_nobody_where_nobody_would_be_in_time() -> None:
    """The default at once, saying why, and nothing is learnt from it; `least` has the quickest asked all the same."""
    for least, reason, asked in ((0, "no_model_in_time", 0), (1, "deadline", 1)):
        loop = Loop({"bad": lambda _: None}, digits(models=("bad",), policy="timely", parameters={"least": least}))
        loop.query()
        loop.driver.run(0.2)
        hurried = loop.query()
        loop.driver.run(0.2)
        loop.feedback(hurried, label=7)
        loop.driver.run(1)
        answer = loop.answer(hurried)

        assert (answer.status, answer.reason, len(answer.outputs)) == (Status.DEFAULT, reason, asked)
        assert (answer.answered_us - answer.received_us < 10_000) == (not asked)
        assert len(loop.observations()) == asked


def test_what_was_known_of_a_model_that_was_left_out_is_forgotten_when_it_answers() -> None:
    """One good answer after a second's silence, and it is asked again; one bad one, and it is left out again."""
    latencies = Latencies()
    for _ in range(SAMPLES):
        latencies.miss("m", 95_000, 0)
    assert latencies.expected_us(("m",), PROBE_US) == (0.0,)
    latencies.add("m", 5_000.0, PROBE_US + 5_000)
    assert latencies.expected_us(("m",), PROBE_US + 5_001) == (5_000.0,)
    latencies.miss("m", 95_000, PROBE_US + 100_000)
    assert latencies.expected_us(("m",), PROBE_US + 100_001) == (190_000.0,)


def test_one_slow_answer_after_a_silence_shuts_no_good_model_out() -> None:
    """What was known of it counts on: it was not left out, nobody had asked it."""
    latencies = Latencies()
    for _ in range(SAMPLES):
        latencies.add("m", 5_000.0, 0)
    latencies.miss("m", 95_000, 9 * PROBE_US)
    assert latencies.expected_us(("m",), 9 * PROBE_US + 1) == (5_000.0,)


def test_a_miss_is_never_taken_for_a_recovery() -> None:
    """A query that had little time says nothing good about a model that takes long."""
    latencies = Latencies()
    for _ in range(SAMPLES):
        latencies.add("m", 150_000.0, 0)
    latencies.miss("m", 30_000, PROBE_US)
    assert latencies.expected_us(("m",), PROBE_US + 1) == (150_000.0,)


def test_a_model_is_as_slow_as_its_slowest_twentieth() -> None:
    """Four slow answers of the last 64 tell, three do not; older ones are forgotten."""
    latencies = Latencies()
    for count, expected in ((3, 10.0), (4, 9_000.0)):
        for sample in range(SAMPLES):
            latencies.add("m", 9_000.0 if sample < count else 10.0, 0)
        assert latencies.expected_us(("m", "unknown"), 1) == (expected, 0.0)


def test_a_silent_model_is_tried_again_by_one_query_and_ever_later() -> None:
    """It finds out whether it has recovered; those beside it go by what is known."""
    latencies = Latencies()
    latencies.miss("m", 95_000, 0)
    tried = []
    for second in range(200):
        now_us = second * PROBE_US
        if latencies.expected_us(("m",), now_us) == (0.0,):
            tried.append(second)
        assert latencies.expected_us(("m",), now_us + 1) == (190_000.0,)
    assert tried == [1, 3, 7, 15, 31, 63, 127, 191]
    latencies.add("m", 10_000, 192 * PROBE_US)
    assert latencies.expected_us(("m",), 193 * PROBE_US - 1) == (10_000,)
    assert latencies.expected_us(("m",), 193 * PROBE_US) == (0.0,)
