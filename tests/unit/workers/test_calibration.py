"""What a deployment has logged tells its legs and service times."""

import numpy as np
import pytest

from schemas.records import ModelOutput, ModelPredictions, Outcome, Prediction, Status, Tensor
from workers.simulation.calibration import Answer, Calibration, Stamped, calibrate, whole
from workers.simulation.errors import PlanError

ASK_US, DISPATCH_US, REPLY_US, ANSWER_US, TURNAROUND_US = 1_000, 700, 1_300, 900, 400
PREDICT_US = 10_000


def log_of(count: int, *, read: bool = True) -> tuple[list[Answer], list[Stamped]]:
    """Log queries, one every 10.4 ms, each in a batch of its own that begins when the one before it is over."""
    answers, batches = [], []
    period_us = PREDICT_US + TURNAROUND_US
    for number in range(count):
        sent_us = 1_000_000_000 + number * period_us + 137 * number % 997
        received_us = sent_us + ASK_US
        started_us = 1_000_005_000 + number * period_us + 77
        waited_us = started_us - received_us - DISPATCH_US
        done_us = started_us + PREDICT_US
        answered_us = done_us + REPLY_US
        output = ModelOutput("m", "1", Outcome.OK, 0)
        ends = answered_us, answered_us + ANSWER_US
        query_id = str(number)
        answers.append(
            Answer(
                Prediction(
                    query_id,
                    "a",
                    None,
                    None,
                    Status.COMPLETE,
                    None,
                    0,
                    1.0,
                    (output,),
                    sent_us,
                    received_us,
                    sent_us + 100_000,
                    ends[0],
                ),
                ends[1] if read else None,
            )
        )
        batches.append(Stamped(batch_of(query_id, waited_us), done_us // 1_000 * 1_000))
    return answers, batches


def batch_of(query_id: str, waited_us: int, *, rows: int = 1, predict_us: int = PREDICT_US) -> ModelPredictions:
    """Return the record of a batch with this query in it."""
    answers = Tensor.of(np.zeros(1, np.int64))
    return ModelPredictions(
        "m", "1", "worker", (query_id,), (Outcome.OK,), answers, None, (waited_us,), predict_us, rows, 8, 0, "eager"
    )


def test_each_leg_comes_out_as_it_was() -> None:
    """The four legs, the time between batches and the service times of a log that was made of them."""
    found = calibrate(*log_of(400), "a test")
    legs = found.legs
    assert legs.ask.mean_us == ASK_US
    assert legs.dispatch.mean_us == pytest.approx(DISPATCH_US, abs=60)
    assert legs.reply.mean_us == pytest.approx(REPLY_US, abs=60)
    assert legs.answer.mean_us == ANSWER_US
    assert legs.turnaround_us == pytest.approx(TURNAROUND_US, abs=60)
    assert found.samples == {"m": {1: [float(PREDICT_US)] * 400}}


def test_where_nobody_has_read_answers_the_way_from_the_worker_stands_in() -> None:
    """A recorded trace does not say when a client had its answer."""
    legs = calibrate(*log_of(400, read=False), "a trace").legs
    assert legs.answer == legs.reply


def test_a_calibration_is_read_back_as_it_was_written() -> None:
    """To microseconds."""
    found = calibrate(*log_of(100), "a test")
    again = Calibration.of(found.as_dict())
    assert again == found
    assert again.service("m").sampler(np.random.default_rng(1))(1) == PREDICT_US


def test_too_few_answers_are_refused() -> None:
    """The message says how many are needed."""
    with pytest.raises(PlanError, match="needs 50"):
        calibrate(*log_of(9), "a test")


def test_something_else_is_no_calibration() -> None:
    """The message names the command that writes one."""
    with pytest.raises(PlanError, match="--calibrate"):
        Calibration.of({"legs": {}})


def test_a_model_that_was_not_seen_has_no_service_times() -> None:
    """Those that were seen are named."""
    with pytest.raises(PlanError, match="there are: m"):
        calibrate(*log_of(100), "a test").service("other")


def test_records_of_one_batch_count_once() -> None:
    """A batch is written in a record for each partition of its queries; the row that waited longest counts."""
    records = [batch_of("a", 5, rows=3, predict_us=777), batch_of("b", 900, rows=3, predict_us=777)]
    other = batch_of("c", 1, rows=3, predict_us=778)
    found = whole([Stamped(records[0], 1_000), Stamped(records[1], 2_000), Stamped(other, 9_000)])
    assert [(batch.rows, batch.took_us, batch.waited_us) for batch in found] == [(3, 777, 900), (3, 778, 1)]
