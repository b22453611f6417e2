"""Answers are made again of the rows that workers wrote, and held against what models at hand answer now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas import topics
from schemas.records import ModelPredictions, Outcome, Prediction, Tensor
from streams.operators.contract import Predicted
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from tests.loops import CODEC, Loop, digits
from tests.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from schemas.records import Input
    from streams.replay.recording import MemoryTrace
    from streams.replay.report import ReplayReport

QUERIES = 30


def recorded(**changes: object) -> MemoryTrace:
    """Ask some queries of an ensemble of two."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy="exp4", **changes), has_workers=True)
    for _ in range(QUERIES):
        loop.query()
        loop.driver.run(0.2)
    return trace_of(loop.driver)


def replayed(trace: MemoryTrace, **answers: Callable[[int], NDArray[np.generic]]) -> ReplayReport:
    """Replay a trace; some models are at hand, and answer so many rows."""

    def running(name: str) -> Callable[[Sequence[Input]], Predicted]:
        return lambda rows: Predicted((Outcome.OK,) * len(rows), answers[name](len(rows)))

    models = {(name, "1"): running(name) for name in answers}
    return replay(trace, RecordedDeployment(SelectionSettings(1), JoinerSettings(1), running=models), CODEC)


def with_rows(trace: MemoryTrace, number: int, answer: int) -> MemoryTrace:
    """Return a trace in which a batch has another answer."""
    log = trace.logs[topics.MODEL_PREDICTIONS, 0]
    batch = CODEC.decode(ModelPredictions, log[number].value)
    changed = batch._replace(answers=Tensor.of(np.full(len(batch.query_ids), answer)))
    log[number] = log[number]._replace(value=CODEC.encode(changed))
    return trace


def test_answers_are_made_of_the_rows_that_workers_wrote() -> None:
    """Every prediction comes out again."""
    report = replayed(recorded())

    assert report.is_equal
    assert report.checked[topics.PREDICTIONS] == QUERIES
    assert not report.unchecked


def test_an_output_that_is_no_row_is_a_difference() -> None:
    """By the query's id, with both values."""
    report = replayed(with_rows(recorded(), 10, 9))

    assert report.different == {topics.PREDICTIONS: 1}
    assert report.differences[0].id == "q6"


def test_without_the_rows_that_calls_name_nothing_more_is_played() -> None:
    """Kafka keeps them for an hour; where they are gone, it is said, and no difference."""
    trace = recorded()
    del trace.logs[topics.MODEL_PREDICTIONS, 0]
    report = replayed(trace)

    assert report.is_equal
    assert report.unchecked["input_missing"] == 1
    assert report.unchecked["call_missing"] == QUERIES


def test_models_at_hand_answer_again() -> None:
    """Another answer is a difference; one model is at hand."""
    same = replayed(recorded(), good=lambda rows: np.full(rows, 7))
    other = replayed(recorded(), bad=lambda rows: np.full(rows, 4))

    assert same.is_equal
    assert same.checked["models"] == QUERIES
    assert other.different == {"models": QUERIES}


@pytest.mark.parametrize(("factor", "is_near"), [(1.0 + 1e-7, True), (1.001, False)])
def test_numbers_that_are_nearly_the_same_are_counted(factor: float, *, is_near: bool) -> None:
    """The report says by how much they differ."""
    report = replayed(numbers(recorded()), good=lambda rows: np.full(rows, 7.0 * factor))

    assert (report.different["models"] == 0) is is_near
    assert (report.inferred["near"] == QUERIES) is is_near
    assert (report.gap == pytest.approx(1e-7, rel=1e-3)) is is_near


def numbers(trace: MemoryTrace) -> MemoryTrace:
    """Return a trace in which the model `good` answered with a number."""
    log = trace.logs[topics.PREDICTIONS, 0]
    for place, record in enumerate(log):
        prediction = CODEC.decode(Prediction, record.value)
        outputs = tuple(one._replace(answer=7.0) if one.model == "good" else one for one in prediction.outputs)
        log[place] = record._replace(value=CODEC.encode(prediction._replace(outputs=outputs)))
    return trace


def test_times_of_outputs_are_held_against_their_rows() -> None:
    """An application with `timings` replays as it was; a time that no worker has written is found."""
    trace = recorded(timings=True)
    assert replayed(trace).is_equal

    log = trace.logs[topics.PREDICTIONS, 0]
    prediction = CODEC.decode(Prediction, log[12].value)
    assert all(output.predict_us for output in prediction.outputs)
    first, *others = prediction.outputs
    wrong = (first._replace(predict_us=first.predict_us + 1), *others)
    log[12] = log[12]._replace(value=CODEC.encode(prediction._replace(outputs=wrong)))
    assert replayed(trace).different == {topics.PREDICTIONS: 1}
