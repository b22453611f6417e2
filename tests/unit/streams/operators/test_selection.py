"""Selection and combiner: every query gets exactly one answer, in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas import topics
from schemas.records import Model, ModelQueries, Outcome, Query, Status
from schemas.sizes import MAX_BYTES
from streams.operators.contract import Record
from streams.testing import Crash, StoreDown
from tests.loops import CODEC, Loop, digits, model_predictions

GOOD = {"good": lambda _: 7, "bad": lambda _: 3}


def test_an_answer_is_given_as_soon_as_the_asked_model_has_answered() -> None:
    """A complete prediction carries the decision, the model's output and full confidence."""
    loop = Loop(dict(GOOD), digits(policy="single"))
    query_id = loop.query()
    loop.driver.run(0.01)
    prediction = loop.answer(query_id)

    assert (prediction.status, prediction.answer, prediction.confidence) == (Status.COMPLETE, 7, 1.0)
    assert prediction.decision is not None
    assert (prediction.decision.arms, prediction.decision.chosen) == (("good", "bad"), (0,))
    assert prediction.decision.propensities == (1.0, 0.0)


def test_a_silent_model_costs_the_answer_and_not_the_deadline() -> None:
    """At the deadline less the margin the default output is given, marked with the reason."""
    loop = Loop({"good": lambda _: None, "bad": lambda _: 3}, digits(policy="single", slo_ms=100))
    query_id = loop.query()
    sent_us = loop.driver.now_us
    loop.driver.run(1)
    prediction = loop.answer(query_id)

    assert (prediction.status, prediction.reason, prediction.answer) == (Status.DEFAULT, "deadline", -1)
    assert prediction.answered_us - sent_us == pytest.approx(95_000, abs=1_000)
    assert prediction.outputs[0].outcome is Outcome.MISSING


@pytest.mark.parametrize(
    ("margin_us", "slo_ms", "answered_us"),
    [(None, 20, 18_000), (None, 50, 45_000), (None, 1_000, 995_000), (2_000, 100, 98_000), (15_000, 20, 5_000)],
)
def test_a_short_objective_leaves_a_tenth_for_the_way_back(
    margin_us: int | None, slo_ms: float, answered_us: int
) -> None:
    """A long one 5 ms; unless it is said how much."""
    application = digits(models=("good",), policy="single", slo_ms=slo_ms)
    loop = Loop({"good": lambda _: None}, application, margin_us=margin_us)
    query_id, sent_us = loop.query(), loop.driver.now_us
    loop.driver.run(2)

    assert loop.answer(query_id).answered_us - sent_us == pytest.approx(answered_us, abs=1_000)


def test_an_ensemble_answers_at_the_deadline_with_what_has_arrived() -> None:
    """The missing member lowers the confidence and the status is partial."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: None}, digits(policy="exp4"))
    query_id = loop.query()
    loop.driver.run(1)
    prediction = loop.answer(query_id)

    assert (prediction.status, prediction.answer, prediction.reason) == (Status.PARTIAL, 7, "deadline")
    assert prediction.confidence == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.INVALID, "invalid_input"),
        (Outcome.FAILED, "model_failed"),
        (Outcome.EXPIRED, "expired_in_queue"),
        (Outcome.UNKNOWN_VERSION, "unknown_version"),
    ],
)
def test_a_default_says_why_no_output_could_be_used(outcome: Outcome, reason: str) -> None:
    """The worker's outcome becomes the prediction's reason, at once and not at the deadline."""
    loop = Loop({"good": lambda _: outcome, "bad": lambda _: 3}, digits(policy="single"))
    query_id = loop.query()
    loop.driver.run(0.01)

    assert (loop.answer(query_id).status, loop.answer(query_id).reason) == (Status.DEFAULT, reason)


def test_an_unknown_application_is_answered_at_once() -> None:
    """There is no default output to give, so the answer is empty and says why."""
    loop = Loop(dict(GOOD), digits())
    query_id = loop.query(application="nobody")
    loop.driver.run(0.01)

    assert (loop.answer(query_id).answer, loop.answer(query_id).reason) == (None, "unknown_application")


def test_a_model_that_was_never_deployed_is_answered_for_at_once() -> None:
    """No record is written to a topic that does not exist."""
    loop = Loop(dict(GOOD), digits(models=("ghost",), policy="single"))
    query_id = loop.query()
    loop.driver.run(0.01)

    assert loop.answer(query_id).reason == "unknown_model"


def test_a_query_that_comes_too_late_is_answered_with_the_default() -> None:
    """Queries read after an outage cost their models nothing."""
    loop = Loop(dict(GOOD), digits())
    query_id = loop.query(sent_us=loop.driver.now_us - 10_000_000)
    loop.driver.run(0.01)

    assert loop.answer(query_id).reason == "expired"
    assert not loop.driver.read(topics.model_queries("good"))


def test_a_clock_that_runs_ahead_buys_no_time() -> None:
    """A query from the future is treated as sent now."""
    loop = Loop({"good": lambda _: None}, digits(models=("good",), slo_ms=100))
    query_id = loop.query(sent_us=loop.driver.now_us + 3_600_000_000)
    loop.driver.run(1)

    assert loop.answer(query_id).answered_us - loop.answer(query_id).received_us < 100_000


def test_a_duplicate_query_id_is_skipped_and_counted() -> None:
    """One query id has one answer."""
    loop = Loop(dict(GOOD), digits())
    loop.query("twice")
    loop.query("twice")
    loop.driver.run(1)

    assert len(loop.predictions()) == 1
    assert loop.driver.skipped["duplicate_query"] == 1


def test_garbage_is_a_dead_letter_and_its_neighbours_are_answered() -> None:
    """The partition moves on past bytes that do not decode."""
    loop = Loop(dict(GOOD), digits())
    before = loop.query()
    loop.driver.produce(topics.QUERIES, 0, b"garbage", b"\xff\xfe")
    after = loop.query()
    loop.driver.run(1)

    assert [value for _, value in loop.dead(topics.QUERIES)] == [b"garbage"]
    assert {prediction.query_id for prediction in loop.predictions()} == {before, after}
    assert loop.driver.committed("selection", topics.QUERIES, 0) == 3


def test_a_query_read_again_after_a_crash_is_decided_alike() -> None:
    """The draw comes from the query id, so the same state gives the same arms."""
    loop = Loop({"good": lambda _: None, "bad": lambda _: None}, digits(), faults=[Crash(20_000, "selection")])
    query_id = loop.query()
    loop.driver.run(1)
    asked = [len(loop.driver.read(topics.model_queries(model))) for model in ("good", "bad")]

    assert sorted(asked) == [0, 2]
    assert loop.answer(query_id).reason == "deadline"


def test_a_query_is_answered_in_time_though_the_store_is_down() -> None:
    """It waits for half of its time; once the store has been silent for a second ten milliseconds must do."""
    loop = Loop(dict(GOOD), digits(slo_ms=100), faults=[StoreDown(0, 60_000_000)])
    first, sent_us = loop.query(), loop.driver.now_us
    loop.driver.run(2)
    later, later_us = loop.query(), loop.driver.now_us
    loop.driver.run(2)

    assert {loop.answer(query_id).status for query_id in (first, later)} == {Status.COMPLETE}
    assert loop.answer(first).answered_us - sent_us == pytest.approx(47_500, abs=1_000)
    assert loop.answer(later).answered_us - later_us == pytest.approx(10_000, abs=1_000)
    figures = loop.driver.operator("selection").statistics()
    assert figures["decided_without_state_total{application=digits}"] == 2
    assert figures["states_unread"] == 1


def test_each_context_has_its_own_state_where_the_application_says_so() -> None:
    """The decision names the state that made it."""
    loop = Loop(dict(GOOD), digits(per_context=True))
    query_id = loop.query(context="user-7")
    loop.driver.run(1)
    decision = loop.answer(query_id).decision

    assert decision is not None
    assert decision.state == "digits/user-7"


def test_texts_that_would_not_fit_into_the_answer_are_dead_letters() -> None:
    """An id, a name or a context travels with everything that follows."""
    loop = Loop(dict(GOOD), digits())
    loop.query("i" * 5_000)
    loop.query(application="a" * 5_000)
    loop.query(context="c" * 5_000)
    fine = loop.query()
    loop.driver.run(1)

    assert [cause for cause, _ in loop.dead(topics.QUERIES)] == ["invalid"] * 3
    assert [prediction.query_id for prediction in loop.predictions()] == [fine]


@pytest.mark.parametrize("policy", ["single", "exp4"])
def test_an_input_too_large_for_a_models_query_gets_the_default(policy: str) -> None:
    """Also where the query had to wait for its state, and where several models would have been asked."""
    loop = Loop(dict(GOOD), replace(digits(policy=policy), name="d"))
    room = MAX_BYTES - len(CODEC.encode(Query("q", "d", b"x" * 500_000))) + 500_000
    for query_id in ("p", "q"):
        loop.query(query_id, input=b"x" * room, sent_us=0)
    loop.driver.run(1)

    assert [loop.answer(query_id).reason for query_id in ("p", "q")] == ["invalid_input"] * 2
    assert loop.driver.committed("selection", topics.QUERIES, 0) == 2


@pytest.mark.parametrize(("slo_ms", "reason"), [(1e300, None), (-1e300, "expired"), (0.0, "expired")])
def test_an_impossible_objective_is_cut_to_a_possible_one(slo_ms: float, reason: str | None) -> None:
    """It has its answer and stops nobody."""
    loop = Loop(dict(GOOD), digits())
    query_id = loop.query(slo_ms=slo_ms)
    loop.driver.run(1)

    assert loop.answer(query_id).reason == reason


def test_outputs_too_large_for_one_answer_give_the_default() -> None:
    """Each model's part may fit into a record of its own, and all of them not into one."""
    loop = Loop({"good": lambda _: "x" * 300_000, "bad": lambda _: "y" * 300_000}, digits(policy="exp4"))
    query_id = loop.query()
    loop.driver.run(1)
    prediction = loop.answer(query_id)

    assert (prediction.status, prediction.reason, prediction.answer) == (Status.DEFAULT, "oversized_outputs", -1)


@pytest.mark.parametrize(
    "changes",
    [{"models": ()}, {"slo_ms": 0.0}, {"window_s": 1e300}, {"default_loss": 7.0}, {"policy": "no-such-policy"}],
)
def test_an_application_that_cannot_be_leaves_what_was(changes: dict[str, object]) -> None:
    """Whoever publishes nonsense does not take the application down."""
    loop = Loop(dict(GOOD), digits())
    loop.configure(digits(**changes))
    loop.driver.run(0.1)
    query_id = loop.query()
    loop.driver.run(1)

    assert loop.answer(query_id).status is Status.COMPLETE


def test_a_reply_of_a_model_that_was_not_asked_answers_nothing() -> None:
    """Read again after a restart, a query may ask another model; the first one's reply still comes."""
    loop = Loop({"good": lambda _: None, "bad": lambda _: None}, digits(policy="single"))
    query_id = loop.query()
    loop.driver.run(0.01)
    stale = CODEC.encode(model_predictions("bad", {query_id: 3}))
    loop.driver.produce(topics.MODEL_PREDICTIONS, 0, stale)
    loop.driver.run(0.01)
    assert loop.predictions() == []
    loop.driver.run(1)

    assert loop.answer(query_id).reason == "deadline"


def test_workers_are_told_until_when_an_output_is_sure_to_be_in_time_and_until_when_it_may_be() -> None:
    """Sure is what the slowest twentieth of the ways back leaves; half of them take no longer than the usual one."""
    loop = Loop(dict(GOOD), digits(policy="single", slo_ms=100))
    selection, now_us = loop.driver.operator("selection"), loop.driver.now_us
    value = CODEC.encode(model_predictions("good", {"nobody": 7}))
    for number in range(1_000):
        left_us = now_us - (20_000 if number % 10 == 0 else 4_000)
        selection.on_records([Record(topics.MODEL_PREDICTIONS, 0, number, left_us, None, value)], now_us)
    loop.query()
    loop.driver.run(0.01)
    asked = CODEC.decode(ModelQueries, loop.driver.read(topics.model_queries("good"))[-1].value)

    assert now_us + 95_000 - asked.due_us[0] == pytest.approx(20_000, rel=0.2)
    assert asked.spare_us == pytest.approx(16_000, rel=0.2)


def test_names_of_strangers_are_not_labels() -> None:
    """Whoever invents application names must not fill the reports with them."""
    loop = Loop(dict(GOOD), digits())
    for number in range(50):
        loop.query(application=f"nobody-{number}")
    loop.driver.run(0.01)
    names = loop.driver.operator("selection").statistics()

    assert not [name for name in names if "nobody" in name]


def test_the_report_says_who_was_asked_how_long_it_took_and_what_the_policy_weighs() -> None:
    """By application and model; the weights are those of the application's own state and sum to one."""
    loop = Loop(dict(GOOD), digits(policy="single"))
    for _ in range(4):
        loop.query()
        loop.driver.run(0.01)
    figures = loop.driver.operator("selection").statistics()

    assert figures["asked_total{application=digits,model=good}"] == 4
    assert "asked_total{application=digits,model=bad}" not in figures
    assert figures["policy_weight{application=digits,model=good}"] == 1.0
    assert figures["policy_weight{application=digits,model=bad}"] == 0.0
    assert figures["deployed{application=digits,policy=single}"] == 1.0
    assert figures["candidate{application=digits,model=bad}"] == 1.0
    assert 0 <= figures["answer_p50_us{application=digits}"] <= figures["answer_p99_us{application=digits}"]
    assert not [name for name in figures if name.startswith("late_answers")]


@pytest.mark.parametrize("outcome", [Outcome.INVALID, Outcome.FAILED])
def test_an_input_that_a_model_fails_on_is_counted_for_the_application_that_sent_it(outcome: Outcome) -> None:
    """Whoever else asks the same model is not to be blamed; nor is anybody for what was merely late."""
    loop = Loop({"good": lambda _: outcome, "bad": lambda _: Outcome.EXPIRED}, digits(policy="exp4"))
    loop.query()
    loop.driver.run(1)
    figures = loop.driver.operator("selection").statistics()

    failed = {name: count for name, count in figures.items() if name.startswith("failed_outputs_total")}
    assert failed == {f"failed_outputs_total{{application=digits,model=good,outcome={outcome.value}}}": 1}


def test_an_answer_after_its_deadline_is_counted_as_late() -> None:
    """With its status: this query came too late for any model."""
    loop = Loop(dict(GOOD), digits(policy="single", slo_ms=100))
    query_id = loop.query(sent_us=loop.driver.now_us - 200_000)
    loop.driver.run(0.01)

    assert loop.answer(query_id).reason == "expired"
    figures = loop.driver.operator("selection").statistics()
    assert figures["late_answers_total{application=digits,status=default}"] == 1


def test_a_version_that_a_query_names_travels_to_its_models() -> None:
    """Queries of one poll that name different ones, or none, are asked in records of their own."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy="exp4"))
    loop.query("a")
    loop.query("b", version="canary")
    loop.query("c", version="good@2")
    loop.query("d")
    loop.driver.run(0.01)
    records = [CODEC.decode(ModelQueries, record.value) for record in loop.driver.read(topics.model_queries("good"))]

    named = {query_id: record.version for record in records for query_id in record.query_ids}
    assert named == {"a": "", "b": "canary", "c": "good@2", "d": ""}


@pytest.mark.parametrize(
    ("version", "policy", "asked", "reason"),
    [
        ("canary", "single", ["b"], None),
        ("2", "single", ["b"], None),
        ("1", "single", ["a"], None),
        ("stable", "single", ["a"], None),
        ("b@1", "single", ["b"], None),
        ("b@9", "single", ["b"], None),
        ("b@2", "exp4", ["a", "b"], None),
        ("canary", "exp4", ["a", "b"], None),
        ("9", "single", ["a"], None),
        ("c@1", "single", [], "unknown_version"),
        ("c@1", "exp4", [], "unknown_version"),
    ],
)
def test_a_query_that_names_a_version_asks_whoever_runs_it(
    version: str, policy: str, asked: list[str], reason: str | None
) -> None:
    """Of two models `b` alone has a canary, version 2; who runs no such version says so itself."""
    loop = Loop({"a": lambda _: 1, "b": lambda _: 2}, digits(models=("a", "b"), policy=policy))
    model = Model("b", "1", "function", "", "", "label", "float32", (1,), shares={"2": 0.1}, partitions=1)
    loop.driver.produce(topics.MODELS, 0, CODEC.encode(model), b"b")
    loop.driver.run(0)
    query_id = loop.query(version=version)
    loop.driver.run(1)
    prediction = loop.answer(query_id)

    assert [name for name in ("a", "b") if loop.driver.read(topics.model_queries(name))] == asked
    assert (prediction.reason, [output.model for output in prediction.outputs]) == (reason, asked)
    assert prediction.status is (Status.DEFAULT if reason else Status.COMPLETE)


def test_what_a_query_has_chosen_itself_teaches_nothing() -> None:
    """The policy would have asked the other model: that one has not been tried on its like."""
    loop = Loop({"a": lambda _: 1, "b": lambda _: 2}, digits(models=("a", "b"), policy="single"))
    query_id = loop.query(version="b@1")
    loop.driver.run(1)
    loop.feedback(query_id, label=2)
    loop.driver.run(1)

    assert (loop.answer(query_id).answer, loop.answer(query_id).decision) == (2, None)
    assert not loop.observations()
