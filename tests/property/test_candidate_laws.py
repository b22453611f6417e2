"""Laws of candidates that are ids: true or named, whatever stores do, in whatever order features come, and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import Features, Outcome, Prediction, Source, Status, Tensor
from streams.operators.contract import StateKey
from streams.operators.join.kernel import JoinerSettings
from streams.operators.learn.fold import fold
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from tests.loops import CODEC, Loop, digits
from tests.property.test_feature_laws import ANSWERS, ON_FEATURES
from tests.property.test_loop_laws import FAULTS
from tests.traces import trace_of

if TYPE_CHECKING:
    from schemas.records import PolicyState
    from streams.testing import Fault

FILMS, QUERIES, WINDOW_US = 7, 30, 130_000_000
IN_REDIS, IN_TOPIC = Source("films", 2, "candidate", "redis"), Source("lately", 1, "candidate")
NAMES = [f"film-{number}" for number in range(FILMS)]


class Script(NamedTuple):
    """What happens in a run: what the store does in turn, which films are in the topic, how long is waited."""

    answers: list[int | str]
    written: list[bool]
    waits: tuple[float, float]
    per_context: bool


SCRIPTS = st.builds(
    Script,
    st.lists(ANSWERS, min_size=1, max_size=7),
    st.lists(st.booleans(), min_size=FILMS, max_size=FILMS),
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.3])),
    st.booleans(),
)


def stored(name: str) -> tuple[float, ...]:
    """Return what Redis has of a film."""
    number = float(name[-1])
    return number / FILMS, -number / FILMS


def lately(name: str) -> float:
    """Return what the topic has of a film."""
    return float(name[-1]) / 2.0


def ranking(waits: tuple[float, float], *, per_context: bool) -> dict[str, object]:
    """Return the fields of an application that ranks films."""
    return {
        "models": ("good",),
        "policy": "ridge",
        "parameters": {"features": 3.0, "low": 0.0, "high": 1.0, "gamma": 0.2},
        "sources": (IN_REDIS._replace(wait=waits[0]), IN_TOPIC._replace(wait=waits[1])),
        "window_s": 20.0,
        "per_context": per_context,
        "loss": "squared",
    }


def run(script: Script, faults: list[Fault]) -> Loop:
    """Ask for the best of some films, thirty times, and tell of most answers."""
    asked: list[str] = []

    def look_up(key: str) -> tuple[bytes | None, int] | None:
        asked.append(key)
        answer = script.answers[len(asked) % len(script.answers)]
        if answer == "silent":
            return None
        value = CODEC.encode(Features(stored(key)))
        return (None, 1_000) if answer == "nothing" else (value, int(answer))

    application = digits(**ranking(script.waits, per_context=script.per_context))
    loop = Loop({"good": lambda _: Outcome.FAILED}, application, faults, features=look_up)
    for name, is_written in zip(NAMES, script.written, strict=True):
        if is_written:
            loop.know("lately", name, lately(name))
    for number in range(QUERIES):
        ids = tuple(NAMES[(number + place) % FILMS] for place in range(1 + number % FILMS))
        name = loop.query(context=f"user-{number % 3}", candidates=ids, top=2)
        loop.driver.run(0.1)
        if number % 4:
            loop.feedback(name, float(number % 2))
    loop.driver.run(60)
    return loop


@settings(max_examples=20, deadline=None)
@given(SCRIPTS, st.lists(FAULTS | ON_FEATURES, max_size=4))
def test_every_ranking_comes_in_time_and_what_is_not_true_of_an_id_is_named(
    script: Script, faults: list[Fault]
) -> None:
    """Rows are what was stored, or their id is in `imputed`; nothing is left waiting."""
    loop = run(script, faults)
    predictions = loop.predictions()
    assert {prediction.query_id for prediction in predictions} == {f"q{number}" for number in range(1, QUERIES + 1)}
    for prediction in predictions:
        if prediction.reason == "expired":
            assert faults
            continue
        check_one(prediction)
    selection = loop.driver.operator("selection")
    assert selection.statistics().get("features_waiting", 0.0) == 0.0
    assert selection.statistics()["held{application=digits}"] == 0.0
    assert selection.needs().deadline_us is None


def check_one(prediction: Prediction) -> None:
    """Hold a ranking against what was stored."""
    ranked = prediction.ranked
    assert prediction.status is Status.COMPLETE
    assert prediction.answered_us <= prediction.deadline_us
    assert ranked is not None
    assert ranked.rows is not None
    assert len(ranked.ids) == len(prediction.first) == len(ranked.rows.numpy())
    assert abs(sum(prediction.first) - 1.0) < 1e-9
    assert prediction.best[0] == ranked.ids[ranked.place]
    assert len(prediction.best) == min(2, len(ranked.ids))
    assert bool(ranked.imputed) == bool(prediction.imputed)
    for name, row in zip(ranked.ids, ranked.rows.numpy().tolist(), strict=True):
        if name not in ranked.imputed:
            assert row == [*stored(name), lately(name)]
        assert 0.0 <= row[0] == -row[1] <= 1.0


@settings(max_examples=15, deadline=None)
@given(SCRIPTS, st.lists(FAULTS | ON_FEATURES, max_size=4))
def test_rankings_by_id_replay_bit_equal(script: Script, faults: list[Fault]) -> None:
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
    assert states(loop) == {StateKey(0, name): state for name, state in fold(loop.observations(), WINDOW_US).items()}


@settings(max_examples=25, deadline=None)
@given(st.permutations(NAMES), st.lists(st.integers(0, 5_000), min_size=FILMS, max_size=FILMS))
def test_the_order_in_which_features_come_changes_no_answer_and_no_state(order: list[str], pauses: list[int]) -> None:
    """As long as they come in time: what is ranked are the ids in the query's order."""
    one, other = arriving(NAMES, [1_000] * FILMS), arriving(order, pauses)
    assert [_told(prediction) for prediction in one.predictions()] == [_told(each) for each in other.predictions()]
    assert _lessons(one) == _lessons(other)


def arriving(order: list[str], pauses: list[int]) -> Loop:
    """Ask for the best film while the features of each are on their way, and tell of the answer."""
    application = digits(**(ranking((0.5, 0.5), per_context=False) | {"sources": (IN_TOPIC._replace(width=3),)}))
    loop = Loop({"good": lambda _: Outcome.FAILED}, application)
    for number in range(3):
        query_id = loop.query(candidates=tuple(f"{name}{number}" for name in NAMES), top=FILMS)
        for name, pause_us in zip(order, pauses, strict=True):
            loop.driver.run(pause_us / 1e6)
            loop.know("lately", f"{name}{number}", *stored(name), lately(name))
        loop.driver.run(0.2)
        loop.feedback(query_id, 0.75)
        loop.driver.run(0.5)
    return loop


def states(loop: Loop) -> dict[StateKey, PolicyState]:
    """Return what is stored."""
    return dict(loop.driver.store.states)


def _told(prediction: Prediction) -> tuple[object, ...]:
    """Return what an answer says, apart from its times."""
    assert prediction.ranked is not None
    assert prediction.imputed == ()
    rows = prediction.ranked.rows
    assert isinstance(rows, Tensor)
    assert np.isfinite(rows.numpy()).all()
    return prediction.answer, prediction.first, prediction.confidence, prediction.outputs, prediction.ranked


def _lessons(loop: Loop) -> list[tuple[tuple[float, ...], int]]:
    return [(state.values, state.version) for state in states(loop).values()]
