"""Outputs are held against the rows that workers wrote, and against what models at hand answer now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas import topics
from schemas.records import ModelPredictions, Outcome, Prediction, Tensor
from streams.operators.contract import BEHIND, Predicted
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.replay import as_it_was
from streams.replay.as_it_was import CLOCKS_US, RecordedDeployment, replay
from tests.loops import CODEC, Loop, digits
from tests.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from schemas.records import Input
    from streams.replay.memory import MemoryTrace
    from streams.replay.report import ReplayReport

QUERIES = 30


def recorded(**changes: object) -> MemoryTrace:
    """Ask some queries of an ensemble of two."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy="exp4", **changes), has_workers=True)
    for _ in range(QUERIES):
        loop.query()
        loop.driver.run(0.2)
    return trace_of(loop.driver)


def replayed(trace: MemoryTrace, cache_bytes: int = 0, **answers: Callable[[int], NDArray[np.generic]]) -> ReplayReport:
    """Replay a trace; some models are at hand, and answer so many rows."""

    def running(name: str) -> Callable[[Sequence[Input]], Predicted]:
        return lambda rows: Predicted((Outcome.OK,) * len(rows), answers[name](len(rows)))

    models = {(name, "1"): running(name) for name in answers}
    selection = SelectionSettings(1, 1, cache_bytes=cache_bytes)
    return replay(trace, RecordedDeployment(selection, JoinerSettings(1), running=models), CODEC)


def with_rows(trace: MemoryTrace, number: int, answer: int | None) -> MemoryTrace:
    """Return a trace in which a batch has another answer, or was never written."""
    log = trace.logs[topics.MODEL_PREDICTIONS, 0]
    if answer is None:
        gone = log.pop(number)
        log[number:] = [record._replace(offset=record.offset - 1) for record in log[number:]]
        assert gone.offset == number
    else:
        batch = CODEC.decode(ModelPredictions, log[number].value)
        changed = batch._replace(answers=Tensor.of(np.full(len(batch.query_ids), answer)))
        log[number] = log[number]._replace(value=CODEC.encode(changed))
    return trace


def test_each_output_is_a_row_that_a_worker_wrote() -> None:
    """Both models' outputs of every query."""
    report = replayed(recorded())

    assert report.is_equal
    assert report.checked["outputs"] == 2 * QUERIES
    assert not report.unchecked


def test_an_output_that_is_no_row_is_a_difference() -> None:
    """By the query's id, with both values."""
    report = replayed(with_rows(recorded(), 10, 9))

    assert report.different == {"outputs": 1}
    assert report.differences[0].id == "q6"


def test_a_row_that_was_never_written_is_missed() -> None:
    """Unless the cache may have answered, or rows are not in the trace."""
    trace = with_rows(recorded(), 10, None)
    bare = recorded()
    del bare.logs[topics.MODEL_PREDICTIONS, 0]

    assert replayed(trace).missing == {"outputs": 1}
    assert replayed(trace, cache_bytes=1).is_equal
    assert replayed(bare).is_equal
    assert replayed(bare).unchecked["row_missing"] == 2 * QUERIES


def test_rows_of_a_model_that_ran_inside_selection_are_not_missed() -> None:
    """It writes none; when it has moved, others are on one side of them alone."""
    trace = recorded()
    log = trace.logs[topics.MODEL_PREDICTIONS, 0]
    del log[20:]

    report = replayed(trace)
    assert report.is_equal
    assert report.unchecked["row_missing"] == 2 * QUERIES - 20


def test_rows_of_a_worker_whose_clock_is_ahead_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often what was not found is looked for meanwhile."""
    trace = recorded()
    log = trace.logs[topics.MODEL_PREDICTIONS, 0]
    log[:] = [record._replace(timestamp_us=record.timestamp_us + CLOCKS_US - 1_000_000) for record in log]
    monkeypatch.setattr(as_it_was, "_AGAIN", 1)
    report = replayed(trace)

    assert report.is_equal
    assert report.checked["outputs"] == 2 * QUERIES


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


@pytest.mark.parametrize("is_behind", [True, False])
def test_rows_that_nobody_waits_for_may_be_missing(is_behind: bool) -> None:
    """A role that cannot write for a while drops what it writes behind its answers, and a worker does not."""
    trace = with_rows(recorded(), 30, None)
    if is_behind:
        log = trace.logs[topics.MODEL_PREDICTIONS, 0]
        log[:] = [record._replace(headers=(BEHIND,)) for record in log]
    report = replayed(trace)

    assert report.checked["outputs"] == 2 * QUERIES - 1
    assert (report.missing["outputs"], report.unchecked["row_missing"]) == ((0, 1) if is_behind else (1, 0))


def test_times_of_outputs_are_held_against_their_rows() -> None:
    """An application with `timings` replays as it was; a time that no worker has written is found."""
    trace = recorded(timings=True)
    report = replayed(trace, good=lambda rows: np.full(rows, 7), bad=lambda rows: np.full(rows, 3))
    assert report.is_equal
    assert report.checked["outputs"] == 2 * QUERIES

    log = trace.logs[topics.PREDICTIONS, 0]
    prediction = CODEC.decode(Prediction, log[12].value)
    assert all(output.predict_us for output in prediction.outputs)
    first, *others = prediction.outputs
    wrong = (first._replace(predict_us=first.predict_us + 1), *others)
    log[12] = log[12]._replace(value=CODEC.encode(prediction._replace(outputs=wrong)))
    assert replayed(trace).different == {"outputs": 1}
