"""A policy whose state answers, in the whole loop in virtual time: what is served, logged and learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.records import ModelOutput, Outcome, Status, Tensor
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from streams.testing import Crash
from tests.loops import CODEC, Loop, Row, digits, row

if TYPE_CHECKING:
    from schemas.records import Application, Value

WINDOW_US = 130_000_000


def computed(asked: Row) -> Value:
    """Compute two features of a row: its number, and a half."""
    assert isinstance(asked.input, Tensor)
    return Tensor.of(np.array([float(asked.input.numpy()[0]), 0.5], np.float32))


def rated(**changes: object) -> Application:
    """Make the application under test: ratings from 1 to 5, for each user."""
    fields: dict[str, object] = {
        "models": ("items",),
        "policy": "ridge",
        "parameters": {"features": 2.0, "low": 1.0, "high": 5.0},
        "per_context": True,
        "loss": "squared",
        "span": 4.0,
        "default_output": 3.0,
    }
    return digits(**(fields | changes))


def asked(loop: Loop, user: str, value: float, label: float | None = None) -> str:
    """Ask about an item, and rate it if a label is given."""
    query_id = loop.query(context=user, input=row(value))
    loop.driver.run(seconds=0.2)
    if label is not None:
        loop.feedback(query_id, label)
        loop.driver.run(seconds=0.3)
    return query_id


def test_a_user_is_answered_by_weights_that_ratings_have_taught() -> None:
    """The answer is a rating; its output has what the model computed, and what the state made of it."""
    loop = Loop({"items": computed}, rated())
    for value in (-1.0, 0.0, 1.0, 0.5, -0.5) * 8:
        asked(loop, "ann", value, 3.0 + value)
    found = loop.answer(asked(loop, "ann", 1.0))
    assert found.status is Status.COMPLETE
    assert found.answer == pytest.approx(4.0, abs=0.15)
    assert found.confidence > 0.7
    (output,) = found.outputs
    assert output.answer == found.answer
    assert output.scores == computed(Row("", row(1.0)))


def test_a_new_user_is_answered_as_the_average_user_with_less_confidence() -> None:
    """And who is alone with an opinion is soon answered by it."""
    loop = Loop({"items": computed}, rated())
    for number in range(40):
        asked(loop, f"user-{number % 4}", number % 3 - 1.0, 4.0)
    first = loop.answer(asked(loop, "new", 0.0))
    assert first.answer == pytest.approx(4.0, abs=0.2)
    assert first.confidence == pytest.approx(0.0, abs=1e-6)
    for number in range(20):
        asked(loop, "new", number % 3 - 1.0, 1.0)
    assert loop.answer(asked(loop, "new", 0.0)).answer == pytest.approx(1.0, abs=0.3)
    assert loop.answer(asked(loop, "user-1", 0.0)).answer == pytest.approx(4.0, abs=0.3)


def test_states_are_the_fold_of_the_log_although_roles_crash() -> None:
    """The log has the features, the label and the loss of what was answered: nothing else is needed to learn."""
    crashes = [Crash(at_us=3_000_000, role="learner"), Crash(at_us=6_000_000, role="selection")]
    loop = Loop({"items": computed}, rated(), crashes)
    for number in range(40):
        asked(loop, f"user-{number % 3}", number % 5 - 2.0, float(1 + number % 5))
    loop.driver.run(seconds=10)
    log = loop.observations()
    assert len({seen.query_id for _, seen in log}) == 40
    assert all(seen.scores is not None and seen.scores[0] is not None for _, seen in log)
    seen = log[-1][1]
    answer = loop.answer(seen.query_id).answer
    assert isinstance(answer, float)
    assert isinstance(seen.label, float)
    assert seen.losses == (pytest.approx(((answer - seen.label) / 4.0) ** 2),)
    for name, state in fold(log, WINDOW_US).items():
        assert loop.driver.store.states[StateKey(0, name)] == state


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(Tensor.of(np.zeros(3)), "model_failed"), (7, "model_failed"), (Outcome.FAILED, "model_failed")],
)
def test_a_model_that_computes_something_else_leads_to_the_default(answer: Value | Outcome, reason: str) -> None:
    """A label, or another number of features: the answer says why."""
    loop = Loop({"items": lambda _: answer}, rated())
    found = loop.answer(asked(loop, "ann", 1.0, 2.0))
    assert (found.status, found.reason, found.answer) == (Status.DEFAULT, reason, 3.0)
    if not isinstance(answer, Outcome):
        assert "does not compute the features" in found.message


def test_where_little_is_known_the_application_may_answer_by_default() -> None:
    """The confidence is that of the regression, so a floor works as for votes."""
    loop = Loop({"items": computed}, rated(confidence_floor=0.5))
    assert loop.answer(asked(loop, "ann", 1.0)).reason == "low_confidence"
    for _ in range(30):
        asked(loop, "ann", 1.0, 5.0)
    assert loop.answer(asked(loop, "ann", 1.0)).status is Status.COMPLETE


def test_features_trained_anew_learn_beside_the_old_ones_and_stay_alone_in_the_end() -> None:
    """Nobody waits: the application gets a second model, and later loses the first."""
    loop = Loop({"items": lambda _: Tensor.of(np.array([0.0, 0.5])), "anew": computed}, rated())
    ratings = [(value, 3.0 + value) for value in (-2.0, 2.0, -1.0, 1.0)] * 15
    for value, label in ratings:
        asked(loop, "ann", value, label)
    loop.configure(rated(models=("items", "anew")))
    for value, label in ratings:
        asked(loop, "ann", value, label)
    loop.configure(rated(models=("anew",)))
    found = loop.answer(asked(loop, "ann", 2.0))
    assert found.answer == pytest.approx(5.0, abs=0.3)
    assert {each.status for each in loop.predictions()} == {Status.COMPLETE}


ITEMS = Tensor.of(np.array([[-1.0, 0.5], [2.0, 0.5], [1.0, 0.5], [0.0, 0.5]], np.float32))


def test_the_best_candidates_are_answered_without_asking_a_model_and_feedback_is_about_the_first() -> None:
    """The answer has their places; what is learnt, and the probability that it stood first, are in the log."""
    loop = Loop({"items": lambda _: None}, rated())  # a model that never answers
    for _ in range(3):
        for label in (5.0, 1.0):
            query_id = loop.query(context="ann", candidates=ITEMS, top=2)
            loop.driver.run(seconds=0.2)
            loop.feedback(query_id, label)
            loop.driver.run(seconds=0.3)
    found = loop.answer(query_id)
    assert found.status is Status.COMPLETE
    assert isinstance(found.answer, Tensor)
    assert found.answer.shape == (2,)
    assert sum(found.first) == pytest.approx(1.0)
    log = loop.observations()
    seen = log[-1][1]
    assert seen.first == found.first
    assert seen.scores == (Tensor.of(ITEMS.numpy()[int(found.answer.numpy()[0])]),)
    expected = found.outputs[0].answer
    assert isinstance(expected, float)
    assert seen.loss == pytest.approx(((expected - 1.0) / 4.0) ** 2)
    assert seen.losses == (seen.loss,)
    for name, state in fold(log, WINDOW_US).items():
        assert loop.driver.store.states[StateKey(0, name)] == state


def test_rankings_follow_what_the_user_likes() -> None:
    """Ratings of single items teach the ranking, too: both read the same weights."""
    loop = Loop({"items": computed}, rated(parameters={"features": 2.0, "low": 1.0, "high": 5.0, "gamma": 0.0}))
    for value in (-1.0, 0.0, 1.0, 0.5, -0.5) * 8:
        asked(loop, "ann", value, 3.0 + value)
    query_id = loop.query(context="ann", candidates=ITEMS, top=3)
    loop.driver.run(seconds=0.2)
    answer = loop.answer(query_id).answer
    assert isinstance(answer, Tensor)
    assert answer.numpy().tolist() == [1, 2, 3]


def test_a_policy_without_weights_cannot_rank() -> None:
    """Nor can one for other features; the answer is the default."""
    for served, message in (
        (rated(policy="single", parameters={}), "single does not rank candidates: take `ridge` or `two_speed`"),
        (rated(parameters={"features": 3.0}), "ridge ranks candidates of 3 features, and these have 2"),
    ):
        loop = Loop({"items": computed}, served)
        query_id = loop.query(candidates=ITEMS)
        loop.driver.run(seconds=0.2)
        answer = loop.answer(query_id)
        assert (answer.status, answer.reason) == (Status.DEFAULT, "not_ranked")
        assert answer.message == f"the policy {message}"


@pytest.mark.parametrize("changes", [{"candidates": Tensor.of(np.zeros((4_097, 2)))}, {"candidates": ITEMS, "top": 0}])
def test_candidates_without_end_are_dead_letters(changes: dict[str, object]) -> None:
    """As any query that is not one."""
    loop = Loop({"items": computed}, rated())
    loop.query(**changes)
    loop.driver.run(seconds=0.2)
    assert [cause for cause, _ in loop.dead("queries")] == ["invalid"]


@pytest.mark.parametrize("outputs", [(), (ModelOutput("items", "1", Outcome.OK, "text", None),)])
def test_a_ranking_that_nobody_made_ends_nothing(outputs: tuple[ModelOutput, ...]) -> None:
    """Whoever may write to Kafka may write an answer without its parts: the feedback on it is a dead letter."""
    loop = Loop({"items": computed}, rated())
    honest = loop.answer(asked(loop, "ann", 1.0))
    forged = honest._replace(query_id="forged", answer=ITEMS, first=(1.0,), outputs=outputs)
    loop.driver.produce("predictions", 0, CODEC.encode(forged), b"ann")
    loop.driver.run(seconds=0.2)
    loop.feedback("forged", 3.0)
    loop.driver.run(seconds=0.5)
    assert [cause for cause, _ in loop.dead("feedback")] == ["invalid_feedback"]
    asked(loop, "ann", 1.0, 4.0)
    assert len(loop.observations()) == 1
