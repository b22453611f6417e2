"""Outputs that come after an ensemble's answer: they are learnt from as if they had been in time."""

from __future__ import annotations

import numpy as np
import pytest

from schemas import topics
from schemas.records import Model, ModelOutput, ModelPredictions, Outcome, Prediction, Status, Tensor
from streams.operators.late_outputs import LateOutputs, SideOutput, completed
from tests.loops import CODEC, Loop, digits, model_predictions


def predicted(*outputs: ModelOutput) -> Prediction:
    """Make an answer out of these."""
    return Prediction("q", "digits", None, None, Status.PARTIAL, None, 7, 1.0, outputs, 0, 0, 0, 0)


def taken(late: LateOutputs, batch: ModelPredictions) -> list[ModelPredictions]:
    """Return what is handed on of a batch."""
    found = late.take(0, batch)
    if found is None:
        return []
    emit = found.emit(0, CODEC)
    assert (emit.topic, emit.partition, emit.headers) == (topics.SHADOWS, 0, (("late", b"1"),))
    return [CODEC.decode(ModelPredictions, emit.value)]


def test_what_a_query_was_answered_without_is_handed_on_once() -> None:
    """Of a batch those rows alone; not of a model that was not asked, nor what failed."""
    late = LateOutputs()
    late.expect(0, "a", ["slow", "slower"], None)
    late.expect(0, "b", ["slow"], None)
    batch = model_predictions("slow", {"x": 1, "a": 2, "b": 3})
    (found,) = taken(late, batch)
    assert (found.query_ids, isinstance(found.answers, Tensor)) == (("a", "b"), True)
    assert np.asarray(found.answers.numpy() if isinstance(found.answers, Tensor) else ()).tolist() == [2, 3]
    assert taken(late, batch) == []
    assert taken(late, model_predictions("slower", {"a": 1}, Outcome.FAILED)) == []
    assert len(taken(late, model_predictions("slower", {"a": 1}))) == 1


def test_the_rows_that_are_handed_on_keep_their_messages_and_steps() -> None:
    """Columns of one record are as long as each other."""
    late = LateOutputs()
    late.expect(0, "b", ["slow"], None)
    batch = model_predictions("slow", {"a": 2, "b": 3})._replace(messages=("bad", ""), steps=(0, 1))
    (found,) = taken(late, batch)
    assert (found.query_ids, found.messages, found.steps) == (("b",), ("",), (1,))


def test_what_is_expected_is_bounded_and_forgotten_with_its_partition() -> None:
    """A model that never answers costs no more than so much memory."""
    late = LateOutputs()
    for number in range(20_001):
        late.expect(0, f"q{number}", ["slow"], None)
    assert taken(late, model_predictions("slow", {"q0": 1})) == []
    assert len(taken(late, model_predictions("slow", {"q10001": 1}))) == 1
    late.drop([0])
    assert taken(late, model_predictions("slow", {"q20000": 1})) == []


@pytest.mark.parametrize("late", [True, False])
def test_the_place_of_a_missing_output_is_for_what_came_late(*, late: bool) -> None:
    """A shadow's stays a shadow's, whatever it is called."""
    fast, missing = ModelOutput("fast", "1", Outcome.OK, 7), ModelOutput("slow", "", Outcome.MISSING, None)
    come = ModelOutput("slow", "1", Outcome.OK, 3)
    prediction = completed(predicted(fast, missing), (SideOutput(come, late),))
    assert prediction.outputs == ((fast, come) if late else (fast, missing))


def test_a_model_that_was_asked_alone_has_lost_its_query() -> None:
    """Nothing was answered, whatever came afterwards."""
    prediction = predicted(ModelOutput("slow", "", Outcome.MISSING, None))
    come = ModelOutput("slow", "1", Outcome.OK, 7)
    assert completed(prediction, (SideOutput(come, is_late=True),)) == prediction


def test_an_ensemble_learns_how_good_its_late_model_is() -> None:
    """The answer was given without it; the observation has its loss, where otherwise it would have lost the query."""
    loop = Loop({"good": lambda _: 7, "slow": lambda _: None}, digits(models=("good", "slow"), policy="exp4"))
    asked = [loop.query() for _ in range(2)]
    loop.driver.run(1)
    assert loop.answer(asked[0]).status is Status.PARTIAL
    late = CODEC.encode(model_predictions("slow", {asked[0]: 3}))
    loop.driver.produce(topics.MODEL_PREDICTIONS, 0, late)
    loop.driver.run(1)
    for query_id in asked:
        loop.feedback(query_id, 3)
    loop.driver.run(1)
    assert {seen.query_id: seen.losses for _, seen in loop.observations()} == {
        asked[0]: (1.0, 0.0),
        asked[1]: (1.0, 1.0),
    }


def test_late_outputs_belong_to_the_means_of_the_applications_that_asked() -> None:
    """Row by row; of an application that leaves the missing out, to none."""
    late = LateOutputs()
    late.expect(0, "a", ["slow"], "digits")
    late.expect(0, "b", ["slow"], None)
    found = late.take(0, model_predictions("slow", {"b": 2, "x": 9, "a": 3}))
    assert found is not None
    assert (found.batch.query_ids, found.applications) == (("b", "a"), (None, "digits"))


@pytest.mark.parametrize(("missing", "stands_in"), [("running_mean", 3), ("leave_out", None)])
def test_a_model_that_is_always_late_has_a_mean_too(missing: str, stands_in: int | None) -> None:
    """What it said of the first query, when that had been answered, stands in for it at the second."""
    application = digits(models=("good", "slow"), policy="exp4", missing=missing)
    loop = Loop({"good": lambda _: 7, "slow": lambda _: None}, application)
    first = loop.query()
    loop.driver.run(1)
    loop.driver.produce(topics.MODEL_PREDICTIONS, 0, CODEC.encode(model_predictions("slow", {first: 3})))
    loop.driver.run(1)
    second = loop.query()
    loop.driver.run(1)
    assert [output.answer for output in loop.answer(first).outputs] == [7, None]
    assert [output.answer for output in loop.answer(second).outputs] == [7, stands_in]


@pytest.mark.parametrize("late", [True, False])
def test_what_is_deployed_at_the_feedback_does_not_say_which_outputs_were_late(*, late: bool) -> None:
    """A version that was late may be replaced by then, and a shadow serve: it was asked nothing all the same."""
    loop = Loop({"good": lambda _: 7, "slow": lambda _: None}, digits(models=("good", "slow"), policy="exp4"))
    asked = loop.query()
    loop.driver.run(1)
    batch = model_predictions("slow", {asked: 3})
    if late:
        loop.driver.produce(topics.MODEL_PREDICTIONS, 0, CODEC.encode(batch))
    else:
        loop.driver.produce(topics.SHADOWS, 0, CODEC.encode(batch._replace(version="2")))
    loop.driver.run(1)
    two = Model("slow", "2", "function", "", "", "label", "float32", (1,))
    loop.driver.produce(topics.MODELS, 0, CODEC.encode(two), b"slow")
    loop.driver.run(1)
    loop.feedback(asked, 3)
    loop.driver.run(1)
    assert [seen.losses for _, seen in loop.observations()] == [(1.0, 0.0 if late else 1.0)]
