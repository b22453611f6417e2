"""A replay finds what is not as it was, and says what it cannot check."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from schemas import topics
from schemas.records import Observation, Observations, Prediction
from streams.operators.late_outputs import is_late
from streams.testing import Crash, StoreDown
from tests.loops import CODEC, Loop, Slow, Sure, digits, version
from tests.property.test_replay_laws import replayed
from tests.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.operators.contract import Record
    from streams.replay.recording import MemoryTrace


def asked(**changes: object) -> Loop:
    """Ask twenty queries with feedback."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(window_s=20.0, **changes))
    for _ in range(20):
        query_id = loop.query()
        loop.driver.run(0.05)
        loop.feedback(query_id, label=7)
        loop.driver.run(0.2)
    return loop


def changed(trace: MemoryTrace, topic: str, number: int, change: Callable[[Record], Record]) -> MemoryTrace:
    """Return a trace with one record of a topic changed."""
    log = trace.logs[topic, 0]
    log[number] = change(log[number])
    return trace


def predicted(**fields: Any) -> Callable[[Record], Record]:
    """Return a change of a prediction's fields; those of its decision go by `decision`."""

    def change(record: Record) -> Record:
        prediction = CODEC.decode(Prediction, record.value)
        assert prediction.decision is not None
        decision = prediction.decision._replace(**fields.get("decision", {}))
        return record._replace(value=CODEC.encode(prediction._replace(**(fields | {"decision": decision}))))

    return change


def observed(**fields: Any) -> Callable[[Record], Record]:
    """Return a change of an observation's fields."""

    def change(record: Record) -> Record:
        (seen,) = CODEC.decode(Observations, record.value).items
        return record._replace(value=CODEC.encode(seen._replace(**fields)))

    return change


class Case(NamedTuple):
    """What is changed in a trace, and which kind of difference that is."""

    topic: str
    change: Callable[[Record], Record]
    kind: str


CASES = {
    "propensities": Case(topics.PREDICTIONS, predicted(decision={"propensities": (0.5, 0.5)}), topics.PREDICTIONS),
    "the version of the state": Case(topics.PREDICTIONS, predicted(decision={"state_version": 3}), topics.PREDICTIONS),
    "arms": Case(topics.PREDICTIONS, predicted(decision={"chosen": (0, 1)}), topics.PREDICTIONS),
    "answer": Case(topics.PREDICTIONS, predicted(answer=9), topics.PREDICTIONS),
    "confidence": Case(topics.PREDICTIONS, predicted(confidence=0.25), topics.PREDICTIONS),
    "deadline": Case(topics.PREDICTIONS, predicted(deadline_us=5), topics.PREDICTIONS),
    "losses": Case(topics.OBSERVATIONS, observed(losses=(0.5, 0.5)), topics.OBSERVATIONS),
    "loss": Case(topics.OBSERVATIONS, observed(loss=0.25), topics.OBSERVATIONS),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_as_it_was_is_told_by_id(name: str) -> None:
    """One changed field makes one difference of its kind, with both values."""
    case = CASES[name]
    report = replayed(changed(trace_of(asked().driver), case.topic, 12, case.change))

    assert report.different[case.kind] >= 1
    first = next(each for each in report.differences if each.kind == case.kind)
    assert first.id == "q13"
    assert first.recorded != first.replayed


@pytest.mark.parametrize("policy", ["exp3", "exp4", "thompson", "class_vote"])
@pytest.mark.parametrize("loss", ['{"cost":{"*":{"*":1,"3":40}},"unit":"EUR"}', '{"asymmetric":{"over":1,"under":4}}'])
def test_costs_and_weights_are_found_again(policy: str, loss: str) -> None:
    """States too, bit for bit; a worth or a weight that is another one is a difference."""
    changes = {"policy": policy, "loss": loss, "max_weight": 4.0, "window_s": 20.0}
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(**changes))
    for number in range(40):
        query_id = loop.query()
        loop.driver.run(0.05)
        loop.feedback(query_id, label=(7, 7, 3)[number % 3], weight=(None, 0.5, 3.0, 4.0)[number % 4])
        loop.driver.run(0.2)
    report = replayed(trace_of(loop.driver))
    report.compare_states(loop.driver.store.states, CODEC)
    assert (report.is_equal, bool(report.unchecked)) == (True, False)
    assert {seen.weight for _, seen in loop.observations()} == {0.125, 0.25, 0.75, 1.0}
    for fields in ({"worth": 7.0}, {"weight": 0.5}):
        other = changed(trace_of(loop.driver), topics.OBSERVATIONS, 12, observed(**fields))
        assert replayed(other).different[topics.OBSERVATIONS] >= 1


@pytest.mark.parametrize("per_context", [False, True])
def test_calibrated_confidences_are_found_again(per_context: bool) -> None:
    """Whatever has taught them by then: late feedback on the policy before, an apprentice, all contexts."""
    models = {"net": lambda _: Sure(7, 0.99), "tree": lambda _: Sure(7, 0.8)}
    plain = digits(policy="exp3", models=("net", "tree"), window_s=20.0, per_context=per_context)
    loop, waiting = Loop(models, plain), list[str]()
    for number in range(90):
        if number == 30:
            loop.configure(replace(plain, apprentice="thompson"))
        if number == 60:
            loop.configure(replace(plain, policy="thompson"))
        waiting.append(loop.query(context=f"user-{number % 3}" if per_context else None))
        loop.driver.run(0.2)
        if len(waiting) > 7:
            loop.feedback(waiting.pop(0), label=7 if number % 4 else 3)
            loop.driver.run(0.2)
    assert len({prediction.confidence for prediction in loop.predictions()}) > 40

    report = replayed(trace_of(loop.driver))
    report.compare_states(loop.driver.store.states, CODEC)
    assert report.is_equal
    assert not report.unchecked


def test_states_are_held_against_the_stores() -> None:
    """A stored state that is not the fold of the log is a difference."""
    loop = asked()
    report = replayed(trace_of(loop.driver))
    stored = {key: state._replace(version=state.version + 1) for key, state in loop.driver.store.states.items()}
    report.compare_states(stored, CODEC)

    assert report.different == {"states": 1}


@pytest.mark.parametrize(("clocks_us", "is_found"), [(90_000_000, False), (150_000_000, True)])
def test_a_lesson_may_be_dated_as_much_later_than_it_was_learnt_as_clocks_are_apart(
    clocks_us: int, is_found: bool
) -> None:
    """A joiner whose clock is two minutes ahead writes what a learner learns at once."""
    trace = trace_of(asked().driver)
    log = trace.logs[topics.OBSERVATIONS, 0]
    log[:] = [record._replace(timestamp_us=record.timestamp_us + 120_000_000) for record in log]
    assert ("states" in replayed(trace, clocks_us=clocks_us).different) is not is_found


def test_an_observation_less_makes_other_states() -> None:
    """What follows from a lost observation is found in the decisions after it."""
    trace = trace_of(asked().driver)
    del trace.logs[topics.OBSERVATIONS, 0][5]

    assert not replayed(trace).is_equal


def test_what_follows_from_what_the_trace_lacks_is_counted() -> None:
    """A trace that begins later says what it cannot check, and nothing is a difference."""
    trace = trace_of(asked().driver)
    trace.logs[topics.QUERIES, 0] = trace.logs[topics.QUERIES, 0][5:]
    trace.logs[topics.OBSERVATIONS, 0] = trace.logs[topics.OBSERVATIONS, 0][5:]
    report = replayed(trace)

    assert report.is_equal
    assert report.unchecked == {"input_missing": 2, "call_missing": 20}
    assert report.waiting == {"torn": 5}


def test_what_a_new_context_started_from_is_found_however_much_has_followed() -> None:
    """The votes of an ensemble say nothing of it in their propensities."""
    application = digits(policy="exp4", per_context=True, window_s=20.0)
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, application, [StoreDown(0, 3_000_000)])
    for number in range(640):
        query_id = loop.query(context=f"user-{min(number, 12)}")
        loop.driver.run(0.15 if number < 12 else 0.01)
        loop.feedback(query_id, label=7 if number % 3 else 3)
        loop.driver.run(0.02)
    report = replayed(trace_of(loop.driver))

    assert report.differences == []
    assert not report.unchecked


def test_a_context_that_began_without_any_state_is_found_after_many_versions() -> None:
    """Selection has started again while the store did not answer; an ensemble's propensities fit every state."""
    application = digits(policy="exp4", per_context=True, window_s=20.0)
    down = [StoreDown(3_900_000, 9_000_000), Crash(4_000_000, "selection")]
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, application, down)
    for number in range(120):
        query_id = loop.query(context=f"user-{number if number >= 90 else 0}")
        loop.driver.run(0.03)
        loop.feedback(query_id, label=7 if number % 3 else 3)
        loop.driver.run(0.02)
    loop.driver.run(10)

    report = replayed(trace_of(loop.driver))
    assert report.differences == []


def test_policies_that_go_by_latencies_are_checked() -> None:
    """Selection measures them anew, by the times that calls tell."""
    report = replayed(trace_of(asked(policy="timely").driver))

    assert report.is_equal
    assert report.checked[topics.PREDICTIONS] == 20


def test_a_lone_record_of_several_observations_is_read() -> None:
    """Observations that were written together are checked one by one."""
    trace = trace_of(asked().driver)
    log = trace.logs[topics.OBSERVATIONS, 0]
    items: list[Observation] = [seen for record in log for seen in CODEC.decode(Observations, record.value).items]
    log[-2:] = [log[-2]._replace(value=CODEC.encode(Observations(tuple(items[-2:]))))]
    report = replayed(trace)

    assert report.is_equal
    assert report.checked["observations"] == 20


def shadowed(policy: str = "exp3", **changes: Any) -> Loop:
    """Ask while a shadow runs, then one with a canary and a slow model, then none; some feedback comes at once."""
    models = {"good": lambda _: 7, "bad": lambda _: Slow(3, 150_000)}
    loop = Loop(models, digits(policy=policy, window_s=20.0, **{"slo_ms": 100.0} | changes), has_workers=True)
    for name in ("2", "3"):
        loop.driver.produce(topics.MODELS, 0, CODEC.encode(version("good", name)), f"good@{name}".encode())
    shares: dict[int, dict[str, float]] = {10: {"2": 0.0}, 40: {"2": 0.3, "3": 0.0}, 70: {}}
    for number in range(80):
        if (beside := shares.get(number)) is not None:
            loop.driver.produce(topics.MODELS, 0, CODEC.encode(version("good", "1", beside)), b"good")
        query_id = loop.query()
        loop.driver.run(0.002 if number % 4 == 0 else 0.3)
        loop.feedback(query_id, label=7)
        loop.driver.run(0.2)
    return loop


@pytest.mark.parametrize("policy", ["exp3", "exp4"])
def test_observations_with_what_shadows_and_late_models_answered_are_made_again(policy: str) -> None:
    """Whichever of these outputs had come when the feedback did, also once no shadow runs any more."""
    loop = shadowed(policy)
    seen = [observation for _, observation in loop.observations()]
    assert {len(one.versions) for one in seen} >= {0, 2}
    assert any(is_late(record) for record in loop.driver.read(topics.SHADOWS)) is (policy == "exp4")

    report = replayed(trace_of(loop.driver))
    assert report.differences == []
    assert not report.unchecked
    assert report.checked["observations"] == len(seen)


def test_a_version_that_would_have_cost_otherwise_is_a_difference() -> None:
    """The trace has what the shadow answered, so its loss can be told again."""
    loop = shadowed()
    trace = trace_of(loop.driver)
    number, (_, seen) = next((n, one) for n, one in enumerate(loop.observations()) if len(one[1].versions) == 2)
    other = (seen.versions[0], seen.versions[1]._replace(loss=1.0))
    report = replayed(changed(trace, topics.OBSERVATIONS, number, observed(versions=other)))

    (difference,) = report.differences
    assert (difference.recorded, difference.replayed) == ("versions[1].loss=1.0", "versions[1].loss=0.0")


def test_what_shadows_answered_before_the_trace_begins_cannot_be_checked() -> None:
    """Their topic is kept for an hour, observations for a year: what is gone is no difference, and all else is one."""
    loop = shadowed()
    trace = trace_of(loop.driver)
    trace.logs[topics.SHADOWS, 0].clear()
    report = replayed(trace)
    assert report.is_equal
    assert report.unchecked["input_missing"] == 1

    number = next(n for n, one in enumerate(loop.observations()) if len(one[1].versions) == 2)
    assert not replayed(changed(trace, topics.OBSERVATIONS, number, observed(losses=(0.5, 0.5)))).is_equal


def test_an_id_that_two_applications_were_asked_with_leaves_nothing_missing() -> None:
    """Neither has an observation, and the feedback is a dead letter; no window of theirs teaches at its end."""
    loop = asked(default_loss=1.0)
    loop.configure(replace(digits(window_s=20.0, default_loss=1.0), name="fraud"))
    loop.driver.run(0.1)
    for query_id in ("told", "silent"):
        for application in ("digits", "fraud"):
            loop.query(query_id, application=application)
            loop.driver.run(0.1)
    loop.feedback("told", label=7)
    for _ in range(6):
        loop.driver.run(60)
        last = loop.query()
        loop.driver.run(0.1)
        loop.feedback(last, label=7)
    loop.driver.run(60)

    report = replayed(trace_of(loop.driver))
    assert report.differences == []
    assert not {"told", "silent"} & {seen.query_id for _, seen in loop.observations()}
