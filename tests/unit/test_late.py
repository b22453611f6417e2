"""Outputs that come after an ensemble's answer: they are learnt from as if they had been in time."""

from __future__ import annotations

import numpy as np
import pytest

from schemas import topics
from schemas.records import Model, ModelOutput, ModelPredictions, Outcome, Prediction, Status, Tensor
from streams.operators.late import LateOutputs, completed
from tests.loops import CODEC, Loop, digits, model_predictions

SLOW = Model("slow", "1", "function", "", "", "label", "float32", (1,), shares={"2": 0.0, "3": 0.2})


def predicted(*outputs: ModelOutput) -> Prediction:
    """Make an answer out of these."""
    return Prediction("q", "digits", None, None, Status.PARTIAL, None, 7, 1.0, outputs, 0, 0, 0, 0)


def taken(late: LateOutputs, batch: ModelPredictions) -> list[ModelPredictions]:
    """Return what is handed on of a batch."""
    found = late.take(0, batch, CODEC)
    assert {(emit.topic, emit.partition) for emit in found} <= {(topics.SHADOWS, 0)}
    return [CODEC.decode(ModelPredictions, emit.value) for emit in found]


def test_what_a_query_was_answered_without_is_handed_on_once() -> None:
    """Of a batch those rows alone; not of a model that was not asked, nor what failed."""
    late = LateOutputs()
    late.expect(0, "a", ["slow", "slower"])
    late.expect(0, "b", ["slow"])
    batch = model_predictions("slow", {"x": 1, "a": 2, "b": 3})
    (found,) = taken(late, batch)
    assert (found.query_ids, isinstance(found.answers, Tensor)) == (("a", "b"), True)
    assert np.asarray(found.answers.numpy() if isinstance(found.answers, Tensor) else ()).tolist() == [2, 3]
    assert taken(late, batch) == []
    assert taken(late, model_predictions("slower", {"a": 1}, Outcome.FAILED)) == []
    assert len(taken(late, model_predictions("slower", {"a": 1}))) == 1


def test_what_is_expected_is_bounded_and_forgotten_with_its_partition() -> None:
    """A model that never answers costs no more than so much memory."""
    late = LateOutputs()
    for number in range(20_001):
        late.expect(0, f"q{number}", ["slow"])
    assert taken(late, model_predictions("slow", {"q0": 1})) == []
    assert len(taken(late, model_predictions("slow", {"q10001": 1}))) == 1
    late.drop([0])
    assert taken(late, model_predictions("slow", {"q20000": 1})) == []


@pytest.mark.parametrize(("version", "counts"), [("1", True), ("3", True), ("2", False), ("9", False)])
def test_the_place_of_a_missing_output_is_for_versions_that_answer(version: str, *, counts: bool) -> None:
    """The one that serves or a canary; a shadow's stays a shadow's."""
    fast, missing = ModelOutput("fast", "1", Outcome.OK, 7), ModelOutput("slow", "", Outcome.MISSING, None)
    come = ModelOutput("slow", version, Outcome.OK, 3)
    prediction, shadows = completed(predicted(fast, missing), (come,), {"slow": SLOW})
    assert prediction.outputs == ((fast, come) if counts else (fast, missing))
    assert shadows == (() if counts else (come,))


def test_a_model_that_was_asked_alone_has_lost_its_query() -> None:
    """Nothing was answered, whatever came afterwards."""
    prediction = predicted(ModelOutput("slow", "", Outcome.MISSING, None))
    come = ModelOutput("slow", "1", Outcome.OK, 7)
    assert completed(prediction, (come,), {"slow": SLOW}) == (prediction, (come,))


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
