"""A whole loop with a coded model in virtual time: crashes, copies and late outputs cost no answer."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calibration import KNOTS
from schemas import topics
from schemas.records import Application, ModelPredictions, ModelQueries, Outcome, Prediction, Query, Status, Tensor
from streams.operators.contract import Emit, Needs, Operator, Skip
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.tape.about import about_selection
from streams.testing import Crash, Driver, Duplicate, Reorder
from streams.topology import build, worker_role
from tests.coded import CODEC, INTERCEPT, models, scores
from tests.loops import taped
from tests.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streams.operators.contract import Effects, Record
    from streams.testing import Fault

SLO_MS = 400.0
QUICK_US = 10_000


@dataclass
class Staggered(Operator):
    """A model that takes its own time for each row, and as many rows at once as come."""

    name: str
    answer: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
    took_us: Callable[[str], int]
    waiting: list[tuple[int, int, int, ModelQueries, Record]] = field(default_factory=list)
    count: int = 0

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take rows; a record has one, or several where a role that starts again reads what waits."""
        for record in records:
            if record.topic != topics.MODELS:
                batch = CODEC.decode(ModelQueries, record.value)
                for row, query_id in enumerate(batch.query_ids):
                    self.count += 1
                    heapq.heappush(self.waiting, (now_us + self.took_us(query_id), self.count, row, batch, record))
        return []

    def needs(self) -> Needs:
        """Return when the next row is answered."""
        return Needs(self.waiting[0][0] if self.waiting else None)

    def on_timer(self, now_us: int, unread: object = None) -> Effects:
        """Answer what is done; a record is done with its last row."""
        effects: Effects = []
        while self.waiting and self.waiting[0][0] <= now_us:
            _, _, row, batch, record = heapq.heappop(self.waiting)
            effects.append(Emit(topics.MODEL_PREDICTIONS, batch.reply_partition, None, self._answered(batch, row)))
            if all(record is not other for *_, other in self.waiting):
                effects.append(Skip((record.position,), ""))
        return effects

    def _answered(self, batch: ModelQueries, row: int) -> bytes:
        assert isinstance(batch.inputs, Tensor)
        found = np.asarray(self.answer(batch.inputs.numpy()[row]), np.float32)[np.newaxis]
        label = "abc"[int(found.argmax())]
        ids = batch.query_ids[row : row + 1]
        return CODEC.encode(
            ModelPredictions(self.name, "1", "w", ids, (Outcome.OK,), (label,), Tensor.of(found), (0,), 1, 1, 1, 0)
        )


def loop(k: int, late_us: Callable[[str], int], faults: Sequence[Fault], right: tuple[float, ...] = ()) -> Driver:
    """Return selection, a model whose rows may be late and its exact parity model, on the driver."""
    made: dict[str, Callable[[], Operator]] = {
        "selection": partial(
            taped, lambda: Selection(CODEC, SelectionSettings(2)), "selection", about_selection(SelectionSettings(2))
        ),
        worker_role("net"): lambda: Staggered("net", scores, late_us),
        worker_role("net-parity"): lambda: Staggered(
            "net-parity", lambda row: scores(row) + (k - 1) * INTERCEPT, lambda _: QUICK_US
        ),
    }
    driver = Driver(build(["net", "net-parity"], 2), made, faults)
    application = Application("digits", ("net",), "single", slo_ms=SLO_MS, parity="net-parity")
    driver.produce(topics.APPLICATIONS, 0, CODEC.encode(application), b"digits")
    for model in models(k, right):
        driver.produce(topics.MODELS, 0, CODEC.encode(model), model.name.encode())
    driver.run(0.1)
    return driver


def asked(driver: Driver, rows: Sequence[tuple[int, int]], every_s: float) -> dict[str, tuple[int, int]]:
    """Ask rows one after the other, in two partitions in turn; returns them by id."""
    sent = {}
    for number, row in enumerate(rows):
        query_id = f"q{number}"
        sent[query_id] = row
        given_row = Tensor.of(np.array(row, np.float32))
        query = Query(query_id, "digits", given_row, None, driver.now_us)
        driver.produce(topics.QUERIES, number % 2, CODEC.encode(query), query_id.encode())
        driver.run(every_s)
    driver.run(2.0)
    return sent


rows_of_two = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=24)
accidents = st.lists(
    st.one_of(
        st.builds(Crash, st.integers(100_000, 900_000), st.sampled_from(["selection", worker_role("net-parity")])),
        st.builds(Duplicate, st.sampled_from([topics.MODEL_PREDICTIONS, topics.model_queries("net-parity")])),
        st.builds(Reorder, st.sampled_from([topics.MODEL_PREDICTIONS])),
    ),
    max_size=3,
)


@given(st.integers(2, 4), rows_of_two, st.sets(st.integers(0, 23)), accidents, st.sampled_from([0.002, 0.02]))
def test_every_query_is_answered_and_what_is_decoded_is_what_the_model_would_have_said(
    k: int, rows: list[tuple[int, int]], late: set[int], faults: list[Fault], every_s: float
) -> None:
    """Whatever crashes, comes twice or out of order; of a linear model the decoded scores are its own."""
    is_late = {f"q{number}" for number in late}
    driver = loop(k, lambda query_id: 5_000_000 if query_id in is_late else QUICK_US, faults)
    sent = asked(driver, rows, every_s)
    answers = [*map(_prediction, driver.read(topics.PREDICTIONS))]
    if not is_late and not faults:
        assert all(one.status is Status.COMPLETE for one in answers)
    assert {one.query_id for one in answers} == sent.keys()
    for one in answers:
        for output in one.outputs:
            if output.scores is not None:
                own = scores(sent[one.query_id])
                assert np.abs(output.scores.numpy() - own).max() <= 1e-4
                assert output.reconstructed == (one.status is Status.PARTIAL) == (one.reason == "reconstructed")
        was_away = bool(faults) and one.reason == "expired"  # selection, until its time was over
        assert was_away or one.answered_us <= one.deadline_us + 1_000


def test_one_late_row_of_a_group_is_answered_and_two_are_not() -> None:
    """Five seconds late, with 400 ms of time: the first by the sum, the others by default."""
    late = {"q1": 5_000_000, "q2": 5_000_000, "q3": 5_000_000}
    driver = loop(2, lambda query_id: late.get(query_id, QUICK_US), [])
    asked(driver, [(1, 2), (3, 4), (5, 6), (7, 8)], 0.002)
    found = {one.query_id: one.reason for one in map(_prediction, driver.read(topics.PREDICTIONS))}
    assert found == {"q0": None, "q1": "reconstructed", "q2": "deadline", "q3": "deadline"}


def test_a_replay_computes_decoded_outputs_and_how_sure_they_are_again() -> None:
    """To the bit: a last digit more is a difference."""
    right = tuple(0.1 + 0.7 * knot for knot in KNOTS)
    driver = loop(2, lambda query_id: 5_000_000 if query_id == "q1" else QUICK_US, [], right)
    asked(driver, [(1, 2), (3, 4)], 0.002)
    deployment = RecordedDeployment(SelectionSettings(2), JoinerSettings(2))
    report = replay(trace_of(driver), deployment, CODEC)
    assert report.is_equal
    assert not report.unchecked
    assert report.checked["predictions"] == 2

    changed = trace_of(driver)
    ((place, found),) = [
        (place, record)
        for place, log in changed.logs.items()
        for record in log
        if place[0] == topics.PREDICTIONS and _prediction(record).reason == "reconstructed"
    ]
    surer = _prediction(found)._replace(confidence=float(np.nextafter(_prediction(found).confidence, 1.0)))
    log = changed.logs[place]
    log[log.index(found)] = found._replace(value=CODEC.encode(surer))
    report = replay(changed, deployment, CODEC)
    assert report.different == {"predictions": 1}
    assert report.differences[0].id == "q1"


@pytest.mark.parametrize("right", [(0.5,), (2.0,) * len(KNOTS)])
def test_a_curve_that_is_none_counts_as_none_in_a_replay_too(right: tuple[float, ...]) -> None:
    """Anybody may have written the model's record."""
    driver = loop(2, lambda query_id: 5_000_000 if query_id == "q1" else QUICK_US, [], right)
    asked(driver, [(1, 2), (3, 4)], 0.002)
    assert max(_prediction(record).confidence for record in driver.read(topics.PREDICTIONS)) <= 1.0
    report = replay(trace_of(driver), RecordedDeployment(SelectionSettings(2), JoinerSettings(2)), CODEC)
    assert report.is_equal


def _prediction(record: Record) -> Prediction:
    return CODEC.decode(Prediction, record.value)
