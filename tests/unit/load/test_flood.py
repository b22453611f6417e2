"""A backlog through a wire that answers from memory, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from load.harness.flood import Taken, flood, make
from load.harness.recorder import Recorder
from load.harness.wire import Arrival, Wire
from load.harness.workload import Rows
from schemas import topics
from schemas.codec import Codec
from schemas.records import Feedback, Prediction, Query, Status
from tests.wires import VirtualWire

if TYPE_CHECKING:
    from collections.abc import Iterator

CODEC = Codec()
START_US = 1_000_000
TAKES_US = 30_000


class FakeWire(VirtualWire):
    """A system that answers each query so many times, each time 30 ms later."""

    def __init__(self, answers: int = 1, takes_us: int = TAKES_US) -> None:
        super().__init__()
        self.time_us = START_US
        self.produced: list[tuple[str, bytes, bytes]] = []
        self._answers, self._takes_us = answers, takes_us

    def produce(self, topic: str, key: bytes, value: bytes, *, patient: bool = False) -> None:
        """Keep the record; schedule the answers to a query."""
        self.produced.append((topic, key, value))
        if topic == topics.QUERIES:
            query = CODEC.decode(Query, value)
            prediction = Prediction(
                query.query_id, query.application, query.context, None, Status.COMPLETE, None, 1, 1.0, (), 0, 0, 0, 0
            )
            for number in range(self._answers):
                self.arrive(
                    Arrival(topics.PREDICTIONS, 0, 0, key, CODEC.encode(prediction)), (number + 1) * self._takes_us
                )

    def rest(self, quiet_s: float = 0.5) -> Iterator[Arrival]:
        """Yield what arrives until nothing does."""
        while arrived := self.poll(quiet_s):
            yield from arrived


def _flood(wire: FakeWire, workload: Rows, count: int = 10) -> tuple[Taken, dict[str, Any]]:
    recorder = Recorder(START_US, slo_us=50_000)
    taken = flood(make(workload, CODEC, count, 0), cast("Wire", wire), CODEC, recorder, wire.now_us, limit_s=2.0)
    return taken, recorder.figures()


def test_a_backlog_is_sent_before_an_answer_is_looked_at_and_each_answer_is_told_the_truth() -> None:
    """Judged by the labels, with the times at which they were read."""
    wire = FakeWire()
    taken, figures = _flood(wire, Rows("digits", ["a", "b"], [1, 2]))
    sent = [topic for topic, *_ in wire.produced]
    assert sent == [topics.QUERIES] * 10 + [topics.FEEDBACK] * 10
    assert (figures["queries_sent"], figures["in_time"], figures["lost"], figures["error"]) == (10, 10, 0, 0.5)
    assert (len(taken.predictions), taken.feedback_sent) == (10, 10)
    assert figures["p50_ms"] == pytest.approx(TAKES_US / 1e3, rel=0.01)
    assert all(START_US + TAKES_US <= at_us < START_US + 2 * TAKES_US for at_us in taken.read_us)


def test_feedback_of_a_backlog_has_the_key_of_its_query() -> None:
    """So that both are on one partition."""
    wire = FakeWire()
    _flood(wire, Rows("digits", ["a"], [3], contexts=["ann"]), 1)
    _topic, key, value = wire.produced[-1]
    assert (key, CODEC.decode(Feedback, value).label) == (b"ann", 3)


def test_no_feedback_goes_out_where_no_truth_is_known() -> None:
    """What nobody knows is not told."""
    wire = FakeWire()
    taken, figures = _flood(wire, Rows("digits", ["a"]))
    assert {topic for topic, *_ in wire.produced} == {topics.QUERIES}
    assert (taken.feedback_sent, "error" in figures) == (0, False)


def test_a_backlog_counts_the_second_answer_to_a_query_as_a_duplicate() -> None:
    """Also one that comes after the last query has its first."""
    taken, figures = _flood(FakeWire(answers=2), Rows("digits", ["a"], [1]))
    assert (len(taken.predictions), figures["duplicates"], taken.feedback_sent) == (10, 10, 10)


def test_a_system_that_is_silent_loses_the_backlog_when_the_time_is_over() -> None:
    """Virtual time passes the limit, not more than what is read to the end besides."""
    wire = FakeWire(answers=0)
    _, figures = _flood(wire, Rows("digits", ["a"], [1]))
    assert figures["lost"] == 10
    assert START_US + 2_000_000 <= wire.time_us < START_US + 3_000_000


def test_an_answer_that_comes_when_the_time_is_over_is_none() -> None:
    """It would be counted as late, which nobody asks of a backlog."""
    taken, figures = _flood(FakeWire(takes_us=2_300_000), Rows("digits", ["a"], [1]))
    assert (figures["lost"], taken.predictions, taken.feedback_sent) == (10, (), 0)
