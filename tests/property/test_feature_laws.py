"""Laws of features that are looked up, whatever their stores do: answered in time, true or named, and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.records import Features, Source, Tensor
from streams.operators.contract import StateKey
from streams.operators.join.kernel import JoinerSettings
from streams.operators.learn.fold import fold
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.testing import Delay, Duplicate, Reorder
from tests.loops import CODEC, Loop, Row, digits, row
from tests.property.test_loop_laws import FAULTS
from tests.traces import trace_of

if TYPE_CHECKING:
    from streams.testing import Fault

USERS, QUERIES = 5, 50
WIDTHS = {"users": 2, "events": 1}
# What a store does with a key: it answers after so long, says that there is nothing, or is silent.
ANSWERS = st.one_of(st.integers(0, 150_000), st.just("nothing"), st.just("silent"))
ON_FEATURES = st.one_of(
    st.just(Duplicate(topics.FEATURES)),
    st.just(Reorder(topics.FEATURES)),
    st.builds(Delay, st.just(topics.FEATURES), st.integers(1_000, 300_000)),
)


class Script(NamedTuple):
    """What happens in a run: how the store treats each user in turn, which events come when, and how long is waited."""

    answers: list[int | str]
    events_us: list[int | None]
    waits: tuple[float, float]
    policy: str
    per_context: bool


SCRIPTS = st.builds(
    Script,
    st.lists(ANSWERS, min_size=1, max_size=7),
    st.lists(st.none() | st.integers(0, 60_000), min_size=1, max_size=7),
    st.tuples(st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0.0, 0.5])),
    st.sampled_from(["single", "linear_thompson", "two_speed"]),
    st.booleans(),
)


def stored(user: str) -> tuple[float, ...]:
    """Return what a user's features are."""
    number = float(user[-1])
    return number, -number


def scored(_: Row) -> Tensor:
    """Find two items alike."""
    return Tensor.of(row().numpy().repeat(2))


def run(script: Script, faults: list[Fault]) -> Loop:
    """Ask fifty queries about five users; an event may be written for each, before or after it is asked."""
    asked: list[str] = []

    def look_up(key: str) -> tuple[bytes | None, int] | None:
        asked.append(key)
        answer = script.answers[len(asked) % len(script.answers)]
        if answer == "silent":
            return None
        value = CODEC.encode(Features(stored(key)))
        return (None, 1_000) if answer == "nothing" else (value, int(answer))

    sources = (
        Source("users", 2, "context", "redis", script.waits[0]),
        Source("events", 1, "query_id", "topic", script.waits[1]),
    )
    parameters = {"two_speed": {"items": 2.0, "features": 4.0}, "linear_thompson": {"features": 4.0}}
    application = digits(
        models=("good",),
        policy=script.policy,
        parameters=parameters.get(script.policy, {}),
        sources=sources,
        window_s=20.0,
        per_context=script.per_context,
        loss="given",
    )
    loop = Loop({"good": scored}, application, faults, features=look_up)
    for number in range(QUERIES):
        event_us = script.events_us[number % len(script.events_us)]
        name = loop.query(context=f"user-{number % USERS}", features=(0.5,))
        if event_us is not None:
            loop.driver.run(event_us / 1e6)
            loop.know("events", name, float(number))
        loop.driver.run(0.1)
        if number % 3:
            loop.feedback(name, loss=float(number % 2))
    loop.driver.run(60)
    return loop


@settings(max_examples=25, deadline=None)
@given(SCRIPTS, st.lists(FAULTS | ON_FEATURES, max_size=4))
def test_every_query_is_answered_in_time_by_features_that_are_true_or_named(
    script: Script, faults: list[Fault]
) -> None:
    """What is not named in `imputed` is what was stored; what is named lies between what was seen; nothing is left."""
    loop = run(script, faults)
    predictions = loop.predictions()
    assert {prediction.query_id for prediction in predictions} == {f"q{number}" for number in range(1, QUERIES + 1)}
    for prediction in predictions:
        if prediction.reason == "expired":  # selection was away until its time was over
            assert faults
            continue
        assert prediction.answered_us <= prediction.deadline_us
        decision, context = prediction.decision, prediction.context
        assert decision is not None
        assert context is not None
        users, event, own = decision.features[:2], decision.features[2], decision.features[3:]
        assert own == (0.5,)
        if "users" not in prediction.imputed:
            assert users == stored(context)
        assert 0.0 <= users[0] == -users[1] <= USERS
        if "events" not in prediction.imputed:
            assert event == float(int(prediction.query_id[1:]) - 1)
        assert 0.0 <= event <= QUERIES
    selection = loop.driver.operator("selection")
    assert selection.statistics().get("features_waiting", 0.0) == 0.0
    assert selection.statistics()["held{application=digits}"] == 0.0
    assert selection.needs().deadline_us is None
    assert loop.driver.committed("selection", topics.QUERIES, 0) == QUERIES


@settings(max_examples=15, deadline=None)
@given(SCRIPTS, st.lists(FAULTS | ON_FEATURES, max_size=4))
def test_what_was_decided_by_looked_up_features_replays_bit_equal(script: Script, faults: list[Fault]) -> None:
    """And states are the fold of the log."""
    loop = run(script, faults)
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    report = replay(trace_of(loop.driver), RecordedDeployment(SelectionSettings(1), joiner), CODEC)
    report.compare_states(loop.driver.store.states, CODEC)
    assert report.differences == []
    assert (
        report.checked["predictions"]
        >= len({one.query_id for one in loop.predictions()}) - report.unchecked["call_missing"]
    )
    expected = fold(loop.observations(), 130_000_000)
    assert loop.driver.store.states == {StateKey(0, name): state for name, state in expected.items()}
