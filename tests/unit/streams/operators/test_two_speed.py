"""Two-speed models in the whole loop in virtual time: cold log-odds from a package, warm ones from feedback."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.draw import pick, uniform
from schemas.records import Features, Source, Status, Tensor
from streams.operators.contract import StateKey
from streams.operators.join.kernel import JoinerSettings
from streams.operators.learn.fold import fold
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.testing import Crash
from tests.loops import CODEC, Loop, Row, digits, row, version
from tests.traces import trace_of

if TYPE_CHECKING:
    from schemas.records import Application, Prediction

EMPTY = Tensor.of(np.array([], np.float64))
SOURCE = Source("users", 1, store="redis")
WINDOW_US = 130_000_000


def cold(asked: Row) -> Tensor:
    """Find the first of three items the best, the more so the larger the user's feature."""
    assert isinstance(asked.input, Tensor)
    return Tensor.of(np.array([1.0 + float(asked.input.numpy()[0]), 0.0, 0.0]))


def served(**changes: object) -> Application:
    """Make the application under test."""
    parameters = {"features": 1.0, "items": 3.0, "ridge": 0.5}
    fields: dict[str, object] = {"models": ("cold",), "policy": "two_speed", "parameters": parameters}
    return digits(**(fields | {"loss": "given", "window_s": 20.0} | changes))


def clicked(faults: tuple[Crash, ...] = (), rounds: int = 60, *, late: bool = False) -> Loop:
    """Ask about two users, of whom each clicks on one item alone; the features of one may never come."""

    def look_up(key: str) -> tuple[bytes | None, int] | None:
        if late and key == "users/bob":
            return None
        return CODEC.encode(Features((1.0 if key == "users/ann" else -1.0,))), 2_000

    loop = Loop({"cold": cold}, served(sources=(SOURCE,)), faults, features=look_up)
    for number in range(rounds):
        user, liked = (("ann", 2), ("bob", 1))[number % 2]
        asked = loop.query(context=user, input=EMPTY)
        loop.driver.run(0.2)
        loop.feedback(asked, loss=float(loop.answer(asked).answer != liked))
        loop.driver.run(0.2)
    return loop


def test_feedback_on_an_item_outweighs_the_package_for_those_who_like_it() -> None:
    """By their features: what is served in the end is what each clicks on."""
    loop = clicked(rounds=200)
    served = [prediction.answer for prediction in loop.predictions()[-20:]]
    assert served.count(2) >= 8
    assert served.count(1) >= 8


def test_the_item_is_drawn_by_the_querys_id_with_the_logged_probabilities() -> None:
    """So whoever evaluates another choice knows how likely this one was."""
    for prediction in clicked(rounds=20).predictions():
        assert prediction.status is Status.COMPLETE
        assert sum(prediction.first) == pytest.approx(1.0)
        assert prediction.answer == pick(prediction.first, uniform(prediction.query_id, "item"))
        (output,) = prediction.outputs
        assert output.answer == prediction.answer
        assert output.scores is not None
        assert output.scores.shape == (3,)


def test_the_log_has_all_that_is_learnt_from() -> None:
    """States are its fold although roles crash: features, item, log-odds and loss."""
    loop = clicked((Crash(3_000_000, "learner"), Crash(5_010_000, "selection")), late=True)
    loop.driver.run(60)
    expected = fold(loop.observations(), WINDOW_US)
    assert loop.driver.store.states == {StateKey(0, name): state for name, state in expected.items()}
    assert expected["digits"].version == 60
    for _, seen in loop.observations():
        assert seen.answers is not None
        assert seen.answers[0] in (0, 1, 2)
        assert len(seen.decision.features) == 1


def test_late_features_cost_no_answer() -> None:
    """The mean stands in, its source is named, and every query is answered by its deadline."""
    loop = clicked(rounds=20, late=True)
    for prediction in loop.predictions():
        assert prediction.answered_us <= prediction.deadline_us
        assert prediction.imputed == (("users",) if prediction.context == "bob" else ())


def test_what_was_answered_replays_bit_equal() -> None:
    """Features are those that were logged: a replay looks nothing up."""
    loop = clicked((Crash(3_010_000, "selection"),), late=True)
    loop.driver.run(60)
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    report = replay(trace_of(loop.driver), RecordedDeployment(SelectionSettings(1), joiner), CODEC)
    report.compare_states(loop.driver.store.states, CODEC)
    assert report.differences == []
    checked = report.checked["predictions"] + report.checked["observations"] + report.unchecked["call_missing"]
    assert checked >= len(loop.predictions()) + len(loop.observations())


def among(loop: Loop, *ids: str, top: int = 1) -> Prediction:
    """Ask for the best of some items."""
    asked = loop.query(input=row(), candidates=ids, top=top)
    loop.driver.run(0.2)
    return loop.answer(asked)


def test_the_best_of_some_items_are_named_and_feedback_teaches_the_first() -> None:
    """Candidates are items by their ids; one that no model knows is never answered."""
    loop = Loop({"cold": cold}, served())
    for _ in range(60):
        found = among(loop, "2", "unknown", "1", top=2)
        loop.feedback(found.query_id, loss=float(found.best[0] != "1"))
        loop.driver.run(0.2)
    assert found.status is Status.COMPLETE
    assert found.ranked is not None
    assert (found.ranked.ids, found.ranked.items) == (("2", "unknown", "1"), (2, -1, 1))
    assert {*found.best} == {"1", "2"}
    assert found.first[1] == 0.0
    assert found.first[2] > 0.8
    assert sum(found.first) == pytest.approx(1.0)
    seen = loop.observations()[-1][1]
    assert seen.ranked == found.ranked
    assert seen.answers == (found.ranked.items[found.ranked.place],)
    everything = loop.query(input=row())
    loop.driver.run(0.2)
    assert loop.answer(everything).ranked is None
    loop.driver.run(60)
    expected = fold(loop.observations(), WINDOW_US)
    assert loop.driver.store.states == {StateKey(0, name): state for name, state in expected.items()}
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    report = replay(trace_of(loop.driver), RecordedDeployment(SelectionSettings(1), joiner), CODEC)
    assert report.differences == []
    assert report.checked["predictions"] == len(loop.predictions())


def test_items_are_called_as_the_classes_of_their_model() -> None:
    """As a package names them."""
    loop = Loop({"cold": cold}, served())
    named = replace(version("cold"), classes=("shoes", "hats", "gloves"))
    loop.driver.produce("models", 0, CODEC.encode(named), b"cold")
    found = among(loop, "gloves", "shoes", top=5)
    assert found.ranked is not None
    assert (found.ranked.items, {*found.best}) == ((2, 0), {"gloves", "shoes"})
    assert among(loop, "0").reason == "not_ranked"


def test_candidates_that_cannot_be_chosen_among_are_answered_by_default() -> None:
    """Rows of features, ids that no model knows, and ids where the model computes something else."""
    loop = Loop({"cold": cold}, served())
    asked = loop.query(input=row(), candidates=Tensor.of(np.zeros((2, 1))))
    loop.driver.run(0.2)
    rows, strange = loop.answer(asked), among(loop, "x", "3", "-1", "01")
    assert [(each.status, each.reason) for each in (rows, strange)] == [(Status.DEFAULT, "not_ranked")] * 2
    assert "candidates are their ids" in rows.message
    assert "no model knows any of the candidates" in strange.message
    for computed in (np.zeros(4), np.full(3, np.nan)):
        other = Loop({"cold": lambda _, computed=computed: Tensor.of(computed)}, served())
        found = among(other, "1", "2")
        assert (found.status, found.reason) == (Status.DEFAULT, "model_failed")
        assert found.ranked is None


@pytest.mark.parametrize("place", [-1, 7])
def test_a_ranking_that_nobody_made_ends_nothing(place: int) -> None:
    """Whoever may write to Kafka may write one whose first has no place: nothing is learnt from it."""
    loop = Loop({"cold": cold}, served())
    honest = among(loop, "1", "2")
    assert honest.ranked is not None
    forged = honest._replace(query_id="forged", ranked=honest.ranked._replace(place=place))
    loop.driver.produce("predictions", 0, CODEC.encode(forged), b"forged")
    loop.driver.run(0.2)
    loop.feedback("forged", loss=1.0)
    loop.feedback(honest.query_id, loss=0.0)
    loop.driver.run(0.5)
    assert {seen.query_id: seen.answers for _, seen in loop.observations()}["forged"] == (None,)
    assert loop.observations()[-1][1].answers == (honest.ranked.items[honest.ranked.place],)
