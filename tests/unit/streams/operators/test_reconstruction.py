"""Coded inference in selection: groups, sums, and answers decoded for what is missing."""

from __future__ import annotations

import numpy as np
import pytest

from policies.calibration import KNOTS
from policies.confidence import own_confidence
from schemas.records import Feedback, JoinStatus, ModelOutput, Outcome, Prediction, Status, Tensor
from streams.operators.join.observation import default_observation, observation
from streams.operators.late_outputs import SideOutput, completed
from tests.coded import INTERCEPT, Coded, models, scores


def pair(coded: Coded) -> str:
    """Ask two queries and return the id of their sum."""
    coded.ask("q0", 1, 2)
    coded.ask("q1", 3, -1)
    return coded.sums[-1].query_id


def parity(*rows: tuple[float, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return what the exact parity model answers to the sum of rows."""
    return scores(np.sum(rows, axis=0)) + (len(rows) - 1) * INTERCEPT


@pytest.mark.parametrize("k", [2, 3, 4])
def test_k_rows_are_a_group_whose_sum_is_asked(k: int) -> None:
    """They lie in different partitions of the model's topic; the sum's answer returns to the first row's partition."""
    coded = Coded(k)
    for number in range(2 * k):
        coded.ask(f"q{number}", number, 1, partition=number % 4)
    assert len({one.partition for one in coded.of("net")[:k]}) == k
    first, second = coded.sums
    assert isinstance(first.batch.inputs, Tensor)
    assert first.batch.inputs.numpy().tolist() == [[sum(range(k)), k]]
    assert (first.batch.reply_partition, second.batch.reply_partition) == (0, k % 4)


def test_a_late_output_is_decoded_when_it_is_later_than_its_model_is() -> None:
    """Not before: the model's own answer is the better one. The answer says that it is another's."""
    coded = Coded()
    sum_id = pair(coded)
    coded.wait(10)
    coded.answer("net", "q0", scores((1, 2)))
    coded.answer("net-parity", sum_id, parity((1, 2), (3, -1)))
    coded.wait(9)
    assert [one.query_id for one in coded.predictions] == ["q0"]
    coded.wait(1)
    own, found = coded.predictions
    (output,) = found.outputs
    assert (own.status, own.outputs[0].reconstructed) == (Status.COMPLETE, False)
    assert (found.status, found.reason, output.outcome) == (Status.PARTIAL, "reconstructed", Outcome.MISSING)
    assert (output.reconstructed, output.version, output.scores is not None) == (True, "1", True)
    assert output.scores is not None
    assert np.abs(output.scores.numpy() - scores((3, -1))).max() < 1e-5
    assert found.answer == "abc"[int(scores((3, -1)).argmax())]
    assert found.confidence == own_confidence(output)
    assert coded.counted("reconstructed_total{application=digits,model=net}") == 1


@pytest.mark.parametrize("right", [0.0, 0.4, 1.0])
def test_a_decoded_answer_is_as_sure_as_its_parity_model_was_right(right: float) -> None:
    """Its scores are approximate: what they say counts by how often that was so. The model's own ones are as ever."""
    coded = Coded(changes={"right": (0.0, *[right] * (len(KNOTS) - 1))})
    sum_id = pair(coded)
    coded.wait(10)
    coded.answer("net", "q0", scores((1, 2)))
    coded.answer("net-parity", sum_id, parity((1, 2), (3, -1)))
    coded.wait(10)
    own, found = coded.predictions
    assert own.confidence == own_confidence(own.outputs[0])
    assert found.reason == "reconstructed"
    assert found.confidence == right


def test_a_decoded_answer_to_what_was_asked_twice_is_no_surer_for_that() -> None:
    """Neither question was answered in time."""
    coded = Coded(hedge=1.0)
    for number in range(2):
        coded.ask(f"first{number}", 1, number)
        coded.wait(10)
        coded.answer("net", f"first{number}", scores((1, number)))
    sum_id = pair(coded)
    coded.wait(30)
    assert [one.query_id for one in coded.of("net") if one.batch.step] == ["q0", "q1"]
    coded.answer("net", "q0", scores((1, 2)))
    coded.wait(600)
    coded.answer("net-parity", sum_id, parity((1, 2), (3, -1)))
    coded.wait(400)
    found = coded.predictions[-1]
    assert (found.query_id, found.reason) == ("q1", "reconstructed")
    assert found.confidence == own_confidence(found.outputs[0]) < 1.0


def test_a_curve_of_another_length_is_none() -> None:
    """It says nothing of the knots that are: the decoded scores count as they are."""
    coded = Coded(changes={"right": (0.5, 0.5)})
    coded.answer("net-parity", pair(coded), parity((1, 2), (3, -1)))
    coded.answer("net", "q0", scores((1, 2)))
    coded.wait(1_000)
    found = coded.predictions[-1]
    assert found.confidence == own_confidence(found.outputs[0])


def test_of_a_slow_model_an_output_is_waited_for_until_the_deadline() -> None:
    """There it is decoded, and the answer is in time."""
    coded = Coded()
    sum_id = pair(coded)
    coded.wait(600)
    coded.answer("net", "q0", scores((1, 2)))
    coded.answer("net-parity", sum_id, parity((1, 2), (3, -1)))
    coded.wait(399)
    assert len(coded.predictions) == 1
    coded.wait(1)
    found = coded.predictions[-1]
    assert (found.query_id, found.reason) == ("q1", "reconstructed")
    assert found.answered_us <= found.deadline_us


def test_what_is_late_already_is_decoded_with_the_last_other_output() -> None:
    """Of four rows the sum and three are needed, in any order."""
    coded = Coded(4)
    rows = [(float(number), 1.0) for number in range(4)]
    for number, row in enumerate(rows):
        coded.ask(f"q{number}", *row)
    coded.answer("net-parity", coded.sums[0].query_id, parity(*rows))
    coded.wait(5)
    coded.answer("net", "q0", scores(rows[0]))
    coded.answer("net", "q3", scores(rows[3]))
    coded.wait(100)
    coded.answer("net", "q1", scores(rows[1]))
    assert {one.query_id: one.reason for one in coded.predictions}["q2"] == "reconstructed"


def test_an_output_that_comes_in_time_is_the_answer() -> None:
    """And its group is over: nothing of it is kept."""
    coded = Coded()
    sum_id = pair(coded)
    for query_id, row in ("q0", (1, 2)), ("q1", (3, -1)):
        coded.answer("net", query_id, scores(row))
    assert [one.status for one in coded.predictions] == [Status.COMPLETE] * 2
    assert (coded.counted("coding_groups"), coded.counted("coding_bytes")) == (0, 0)
    coded.answer("net-parity", sum_id, parity((1, 2), (3, -1)))
    assert len(coded.predictions) == 2


def test_two_missing_outputs_of_a_group_are_not_decoded() -> None:
    """One sum tells one of them: both queries have the default output at their deadline."""
    coded = Coded()
    coded.answer("net-parity", pair(coded), parity((1, 2), (3, -1)))
    coded.wait(1_000)
    assert [(one.status, one.reason) for one in coded.predictions] == [(Status.DEFAULT, "deadline")] * 2


def test_what_fails_is_not_decoded_and_what_a_worker_gives_up_is() -> None:
    """A failure would be another's guess; a row that expired had no chance."""
    for outcome, reason in (Outcome.FAILED, "model_failed"), (Outcome.EXPIRED, "reconstructed"):
        coded = Coded()
        sum_id = pair(coded)
        coded.wait(100)
        coded.answer("net", "q0", scores((1, 2)))
        coded.now_us -= 90_000  # the sum's answer is read early: the row is not late yet
        coded.answer("net-parity", sum_id, parity((1, 2), (3, -1)))
        coded.answer("net", "q1", (0, 0, 0), outcome=outcome)
        assert coded.predictions[-1].reason == reason


def test_a_group_that_does_not_fill_is_skipped() -> None:
    """Its rows are asked as ever; the next one begins another group."""
    coded = Coded()
    coded.ask("q0", 1, 2)
    coded.wait(250)
    coded.ask("q1", 3, -1)
    assert (coded.sums, coded.counted("coding_unfilled_total")) == ([], 1)
    coded.ask("q2", 0, 1)
    assert [one.query_id for one in coded.sums] == ['parity[[0,"q1"],[0,"q2"]]']


def test_rows_that_are_read_again_ask_the_same_sum() -> None:
    """After a restart the same queries meet; an answer to the sum from before counts, as it is the same."""
    coded = Coded()
    sum_id = pair(coded)
    coded.kernel.on_partitions({0: None})
    assert coded.counted("coding_groups") == 0
    coded.kernel.on_partitions({0: 0})
    assert pair(coded) == sum_id


@pytest.mark.parametrize(
    "coded",
    [
        Coded(parity=""),
        Coded(parity="net"),
        Coded(parity="nobody"),
        Coded(changes={"partitions": 1}),
        Coded(changes={"shape": (3,)}),
        Coded(changes={"shares": {"2": 0.999999}}),
    ],
    ids=["none is named", "no parity model", "unknown", "one partition", "other rows", "a canary answers"],
)
def test_rows_that_cannot_be_coded_are_asked_as_ever(coded: Coded) -> None:
    """So is what a parity model of another version is named for."""
    for number in range(4):
        coded.ask(f"q{number}", number, 1)
    assert (len(coded.of("net")), coded.sums) == (4, [])


def test_another_version_of_the_model_is_not_decoded() -> None:
    """Neither by rows that it answers, nor once it serves."""
    coded = Coded()
    sum_id = pair(coded)
    coded.wait(10)
    coded.answer("net", "q0", scores((1, 2)), at="2")
    coded.answer("net-parity", sum_id, parity((1, 2), (3, -1)))
    coded.wait(500)
    assert [one.query_id for one in coded.predictions] == ["q0"]
    model, _ = models()
    coded.publish("models", "net", type(model)(*("net", "2", "torch", "", "", "scores", "float32", (2,))))
    pair_before = len(coded.sums)
    coded.ask("q7", 1, 1)
    coded.ask("q8", 1, 1)
    assert len(coded.sums) == pair_before


def decoded_prediction() -> Prediction:
    """Return an answer that was decoded."""
    coded = Coded()
    sum_id = pair(coded)
    coded.answer("net", "q0", scores((1, 2)))
    coded.answer("net-parity", sum_id, parity((1, 2), (3, -1)))
    coded.wait(10)
    return coded.predictions[-1]


def test_a_decoded_answer_is_not_the_models_own_for_learning() -> None:
    """Its loss is the answer's, not the model's, with feedback and without."""
    prediction = decoded_prediction()
    seen = observation(prediction, Feedback(prediction.query_id, "c"), "zero_one", {}, prediction.answered_us)
    assert seen is not None
    assert (seen.loss, seen.losses, seen.status) == (float(prediction.answer != "c"), (None,), JoinStatus.JOINED)
    without = default_observation(prediction, 0.5, prediction.answered_us)
    assert without is not None
    assert without.losses == (None,)


def test_the_models_own_answer_is_learnt_from_when_it_comes_late() -> None:
    """It takes the place of what was decoded; the answer that was given stays."""
    coded = Coded()
    sum_id = pair(coded)
    coded.answer("net", "q0", scores((1, 2)))
    coded.answer("net-parity", sum_id, parity((1, 2), (3, -1)))
    coded.wait(10)
    coded.answer("net", "q1", (9, 0, 0))
    (late,) = coded.shadows
    assert late.query_ids == ("q1",)
    prediction = coded.predictions[-1]
    own = ModelOutput("net", "1", Outcome.OK, "a", Tensor.of(np.array([9, 0, 0], np.float32)))
    both = completed(prediction, [SideOutput(own, is_late=True)])
    assert (both.outputs, both.answer) == ((own,), prediction.answer)


def test_of_several_models_one_may_be_decoded() -> None:
    """It votes like an answer; the status says that not all are their models' own."""
    coded = Coded(names=("net", "other"), policy="exp4")
    other = models()[0]
    coded.publish("models", "other", type(other)("other", "1", "torch", "", "", "scores", "float32", (2,)))
    sum_id = pair(coded)
    assert len(coded.of("other")) == 2
    for query_id in "q0", "q1":
        coded.answer("other", query_id, (0, 0, 1))
    coded.answer("net", "q0", scores((1, 2)))
    coded.answer("net-parity", sum_id, parity((1, 2), (3, -1)))
    coded.wait(10)
    found = coded.predictions[-1]
    assert (found.query_id, found.reason) == ("q1", "reconstructed")
    assert sorted((one.model, one.reconstructed) for one in found.outputs) == [("net", True), ("other", False)]
