"""Metrics beside the loss are measured query by query, and teach nobody."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from schemas import topics
from schemas.records import (
    Decision,
    Measurement,
    Measurements,
    Metric,
    MetricFeedback,
    ModelOutput,
    Observations,
    Outcome,
    Prediction,
    Status,
)
from streams.operators.contract import Record, StateKey
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.testing import Crash
from streams.topology import is_held_out
from tests.loops import CODEC, Loop, digits, version
from tests.property.test_replay_laws import replayed
from tests.traces import trace_of

if TYPE_CHECKING:
    from streams.operators.join.measured import MeasuredQueries

MODELS = {"good": lambda _: 7, "bad": lambda _: 3}
SOLD = Metric("sold", is_higher_better=True, most=100.0, unit="EUR", absent=0.0)
TOOK = Metric("took", "latency", most=1_000.0, unit="ms")
PAID = Metric("paid", "price", most=10.0, prices={"good": 2.5, "bad": 1.0})
ALL = (SOLD, TOOK, PAID)


def measuring(*faults: object, columns: bool = False, **changes: object) -> Loop:
    """Return a loop whose application has a metric of each kind."""
    told: dict[str, object] = {"policy": "single", "window_s": 20.0, "metrics": ALL}
    packed = Random(3) if columns else None
    return Loop(dict(MODELS), digits(**(told | changes)), faults, packed=packed, columns=columns)  # type: ignore[arg-type]


def tell(loop: Loop, query_id: str, value: float, metric: str = "sold", application: str = "") -> None:
    """Tell what a metric came to."""
    feedback = MetricFeedback(query_id, metric, value, loop.driver.now_us, application)
    loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(feedback), query_id.encode())


def measured(loop: Loop) -> list[Measurement]:
    """Return all measurements in the log."""
    found: list[Measurement] = []
    for record in loop.driver.read(topics.OBSERVATIONS):
        if not CODEC.decode(Observations, record.value).items:
            found += CODEC.decode(Measurements, record.value).items
    return found


def values(loop: Loop) -> list[tuple[str, str, float, float]]:
    """Return query, metric, value and loss of each."""
    return [(one.query_id, *value) for one in measured(loop) for value in one.values]


@pytest.mark.parametrize("columns", [False, True])
def test_latency_and_price_need_no_feedback_and_a_sale_comes_by_its_name(*, columns: bool) -> None:
    """Both ways of joining measure alike; what is better has less loss."""
    loop = measuring(columns=columns)
    loop.query("q1")
    loop.driver.run(1.0)
    took = (loop.answer("q1").answered_us - loop.answer("q1").sent_us) / 1_000
    tell(loop, "q1", 25.0)
    loop.driver.run(1.0)

    assert values(loop) == [
        ("q1", "took", took, took / 1_000),
        ("q1", "paid", 2.5, 0.25),
        ("q1", "sold", 25.0, 0.75),
    ]


@pytest.mark.parametrize("columns", [False, True])
def test_nobody_learns_from_a_metric_and_its_query_is_learnt_about_once(*, columns: bool) -> None:
    """Label and metric come in either order: the states are those of an application without metrics."""

    def taught(**changes: object) -> tuple[object, object]:
        loop = measuring(columns=columns, policy="exp3", **changes)
        for number in range(12):
            loop.query(f"q{number}")
            loop.driver.run(0.5)
            if changes.get("metrics") is None and number % 2:
                tell(loop, f"q{number}", 9.0)
            loop.feedback(f"q{number}", label=7)
            loop.driver.run(0.5)
            if changes.get("metrics") is None:
                tell(loop, f"q{number}", 9.0)
        loop.driver.run(40.0)
        assert not loop.driver.read(topics.dead_letters(topics.OBSERVATIONS))
        assert not loop.dead(topics.FEEDBACK)
        return loop.driver.store.states[StateKey(0, "digits")], [seen for _, seen in loop.observations()]

    assert taught() == taught(metrics=())


def test_what_was_not_told_until_the_window_ends_has_the_value_for_that() -> None:
    """Nothing was sold: silence counts. A metric without such a value tells nothing then."""
    loop = measuring(metrics=(SOLD, Metric("stars", most=5.0)))
    loop.query("q1")
    loop.query("q2")
    loop.driver.run(1.0)
    tell(loop, "q2", 50.0)
    loop.driver.run(40.0)

    assert values(loop) == [("q2", "sold", 50.0, 0.5), ("q1", "sold", 0.0, 1.0)]


def test_a_value_that_may_be_absent_says_when_it_may_be_compared() -> None:
    """When its window ends, told or not; what is measured may be compared at once."""
    loop = measuring(metrics=(SOLD, TOOK, Metric("stars", most=5.0)))
    loop.query("q1")
    loop.query("q2")
    loop.driver.run(1.0)
    tell(loop, "q1", 50.0)
    tell(loop, "q1", 5.0, "stars")
    loop.driver.run(40.0)

    final = {(one.query_id, one.values[0].metric): one.final_us for one in measured(loop)}
    ends = {name: loop.answer(name).answered_us + 20_000_000 for name in ("q1", "q2")}
    at_once = dict.fromkeys([("q1", "took"), ("q2", "took"), ("q1", "stars")], 0)
    assert final == {("q1", "sold"): ends["q1"], ("q2", "sold"): ends["q2"], **at_once}


def test_a_query_that_is_forgotten_is_withdrawn_where_silence_has_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its silence is never written. Without such a value nothing has to be."""
    monkeypatch.setattr("streams.operators.join.held.MOST_HELD", 2)
    for metrics, withdrawn in (((SOLD,), ["q1", "q2"]), ((Metric("stars", most=5.0),), [])):
        loop = measuring(metrics=metrics)
        for name in ("q1", "q2", "q3", "q4"):
            loop.query(name)
            loop.driver.run(1.0)
        loop.driver.run(40.0)
        assert [one.query_id for one in measured(loop) if not one.values] == withdrawn


def test_feedback_before_its_prediction_waits_for_it() -> None:
    """It is nobody's fault which topic is read first."""
    loop = measuring(metrics=(SOLD,))
    tell(loop, "q1", 10.0)
    loop.driver.run(1.0)
    loop.query("q1")
    loop.driver.run(1.0)

    assert values(loop) == [("q1", "sold", 10.0, 0.9)]


def test_each_wrong_feedback_has_its_cause() -> None:
    """A metric that there is not, one that is measured, another application's, nobody's query, and one that is over."""
    loop = measuring()
    loop.query("q1")
    loop.driver.run(1.0)
    tell(loop, "q1", 1.0, "returned")
    tell(loop, "q1", 1.0, "took")
    tell(loop, "q1", 1.0, application="other")
    tell(loop, "nobody", 1.0)
    loop.driver.run(30.0)
    tell(loop, "q1", 1.0)
    loop.driver.run(1.0)

    causes = [cause for cause, _ in loop.dead(topics.FEEDBACK)]
    assert causes == ["unknown_metric", "unknown_metric", "other_application", "unmatched", "late"]


def test_the_first_of_two_counts() -> None:
    """A second one is skipped, not a dead letter."""
    loop = measuring(metrics=(SOLD,))
    loop.query("q1")
    loop.driver.run(1.0)
    tell(loop, "q1", 10.0)
    tell(loop, "q1", 20.0)
    loop.driver.run(1.0)

    assert [value for _, _, value, _ in values(loop)] == [10.0]
    assert not loop.dead(topics.FEEDBACK)


def test_a_sale_is_matched_after_a_crash_of_the_joiner_though_its_label_was_joined_before() -> None:
    """The prediction is complete and not read again as a waiting one, and yet its metric is known."""
    loop = measuring(Crash(4_000_000, "joiner"), metrics=(SOLD,))
    loop.query("q1")
    loop.driver.run(1.0)
    loop.feedback("q1", label=7)
    loop.driver.run(6.0)
    tell(loop, "q1", 30.0)
    loop.driver.run(30.0)

    first = {(query_id, metric): value for query_id, metric, value, _ in reversed(values(loop))}
    assert first == {("q1", "sold"): 30.0}


def test_a_measurement_names_the_versions_that_were_drawn() -> None:
    """By that a canary is compared with the version that serves; a model with one version has none."""
    loop = Loop(dict(MODELS), digits(policy="single", metrics=ALL), has_workers=True)
    loop.driver.run(1.0)
    for model, key in ((version("good", "2"), b"good@2"), (version("good", shares={"2": 0.5}), b"good")):
        loop.driver.produce(topics.MODELS, 0, CODEC.encode(model), key)
    loop.driver.run(1.0)
    asked = [loop.query() for _ in range(20)]
    loop.driver.run(1.0)

    drawn = {one.query_id: one.versions for one in measured(loop)}
    assert {*drawn} == {*asked}
    assert {*drawn.values()} == {("good@1",), ("good@2",)}
    for query_id, versions in drawn.items():
        assert versions == tuple(f"good@{output.version}" for output in loop.answer(query_id).outputs)


def test_who_is_held_out_judges_no_version() -> None:
    """The first model's stable version answers them, whatever would have been drawn."""
    loop = Loop(dict(MODELS), digits(policy="single", holdout=0.3, metrics=(TOOK,)), has_workers=True)
    loop.driver.run(1.0)
    for model, key in ((version("good", "2"), b"good@2"), (version("good", shares={"2": 0.5}), b"good")):
        loop.driver.produce(topics.MODELS, 0, CODEC.encode(model), key)
    loop.driver.run(1.0)
    for number in range(12):
        loop.query(context=f"u{number}")
    loop.driver.run(1.0)

    found = {is_held_out(one.decision.state): set[tuple[str, ...]]() for one in measured(loop)}
    for one in measured(loop):
        found[is_held_out(one.decision.state)].add(one.versions)
    assert found == {True: {()}, False: {("good@1",), ("good@2",)}}


def predicted(number: int, features: int = 0) -> Record:
    """Return one answer."""
    decision = Decision((0,), 0, "digits", "single(arm=0)", ("good", "bad"), (1.0, 0.0), (0.5,) * features)
    outputs = (ModelOutput("good", "1", Outcome.OK, 7),)
    times = number, number, number + 100, number
    made = Prediction(f"q{number}", "digits", None, decision, Status.COMPLETE, None, 7, 1.0, outputs, *times)
    return Record(topics.PREDICTIONS, 0, number, timestamp_us=number, key=None, value=CODEC.encode(made))


def holding(count: int, features: int = 0) -> MeasuredQueries:
    """Return what measures an application with a metric that is told, after so many answers in one window."""
    joiner = Joiner(CODEC, JoinerSettings(1))
    wanted = CODEC.encode(digits(policy="single", window_s=604_800.0, metrics=(SOLD,)))
    joiner.on_records([Record(topics.APPLICATIONS, 0, 0, timestamp_us=0, key=b"digits", value=wanted)], 0)
    for number in range(count):
        joiner.measured.note(joiner.partition(0), [predicted(number, features)], number, [])
    return joiner.measured


def test_what_is_held_is_bounded_with_all_that_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends of windows of forgotten queries go, too: a long window would fill the memory with them."""
    monkeypatch.setattr("streams.operators.join.held.MOST_HELD", 100)
    found = holding(2_000)
    assert found.statistics()["metrics_waiting"] == 100
    assert found.statistics()["metrics_forgotten_total"] == 1_900
    assert found._held.ends < 400


def test_large_predictions_are_held_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand features are 8 kB, of which a usual prediction has one."""
    monkeypatch.setattr("streams.operators.join.held.MOST_LARGE_BYTES", 100_000)
    assert 10 < holding(100, 1_000).statistics()["metrics_waiting"] < 15
    assert holding(100).statistics()["metrics_waiting"] == 100


@pytest.mark.parametrize("columns", [False, True])
def test_a_replay_makes_the_same_measurements(*, columns: bool) -> None:
    """Bit by bit, from the calls of the tape."""
    loop = measuring(columns=columns)
    for number in range(5):
        loop.query(f"q{number}")
        loop.driver.run(0.5)
        tell(loop, f"q{number}", 7.0 * number)
    loop.driver.run(40.0)
    report = replayed(trace_of(loop.driver))

    assert report.checked["predictions"] == 5
    assert not report.differences
    assert len(values(loop)) == 15


def test_without_metrics_a_prediction_is_not_even_read() -> None:
    """Who has none pays nothing: neither memory nor statistics."""
    joiner = Joiner(CODEC, JoinerSettings(1))
    assert not joiner.measured.is_used
    assert not joiner.measured.statistics()
