"""The demo's client against a system in memory, in virtual time: what it asks, what it reads, when it is done."""

from __future__ import annotations

import numpy as np
import pytest

from deploy.demo.models import Digits
from deploy.demo.tally import DemoTrial, Tally
from deploy.demo.traffic import QUIET_S, DemoTraffic, Link, Queries, WarmUp
from load.harness.recorder import Recorder
from load.harness.wire import Arrival
from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Decision,
    Feedback,
    JoinStatus,
    ModelOutput,
    ModelPredictions,
    Observation,
    Observations,
    Outcome,
    Prediction,
    Query,
    Status,
    Tensor,
)
from streams.topology import build
from tests.wires import VirtualWire

CODEC = Codec()
TOPOLOGY = build(["svc"])
ROWS = np.zeros((3, 64), dtype=np.float32)
LABELS = np.ones(3, dtype=np.int64)
DATA = Digits(ROWS, LABELS, ROWS, LABELS)
LEG_US = 5_000
LEARNING_US = 250_000
OBSERVED_AT_ONCE = 2


class Loop(VirtualWire):
    """One model that always answers 1; observations are in the deciding state a quarter of a second after the feedback.

    Args:
        joins: whether the feedback on query number `n` is joined.
    """

    def __init__(self, joins: frozenset[int] = frozenset(range(1000))) -> None:
        super().__init__()
        self.asked: list[Query] = []
        self.fed_back = 0
        self._joins = joins
        self._learnt_us: list[int] = []
        self._held: list[Observation] = []

    def produce(self, topic: str, key: bytes, value: bytes, *, patient: bool = False) -> None:
        """Answer a query; join feedback."""
        if topic == topics.QUERIES:
            query = CODEC.decode(Query, value)
            self.asked.append(query)
            self._later(topics.MODEL_PREDICTIONS, _predicted(query))
            self._later(topics.PREDICTIONS, self._prediction(query))
            return
        seen = CODEC.decode(Feedback, value)
        self.fed_back += 1
        if self.fed_back - 1 in self._joins:
            self._learnt_us.append(self.time_us + LEARNING_US)
            decision = self._decision()
            joined = Observation(seen.query_id, "digits", None, decision, (0.0,), 0.0, 1, JoinStatus.JOINED, 0, 0)
            self._held.append(joined)
            if len(self._held) == OBSERVED_AT_ONCE:
                self._later(topics.OBSERVATIONS, Observations(tuple(self._held)))
                self._held.clear()

    def dead_letter(self) -> None:
        """Let a record arrive on a dead-letter topic."""
        self.arrive(Arrival("feedback.dlq", 0, 0, None, b"?"))

    def _decision(self) -> Decision:
        version = sum(at_us <= self.time_us for at_us in self._learnt_us)
        return Decision((0,), version, "digits", "exp3()", ("svc",), (1.0,))

    def _prediction(self, query: Query) -> Prediction:
        output = ModelOutput("svc", "1", Outcome.OK, 1)
        return Prediction(
            query.query_id, "digits", None, self._decision(), Status.COMPLETE, None, 1, 1.0, (output,), 0, 0, 0, 0
        )

    def _later(self, topic: str, record: Prediction | ModelPredictions | Observations) -> None:
        self.arrive(Arrival(topic, 0, self.time_us + LEG_US, b"", CODEC.encode(record)), LEG_US)


def _predicted(query: Query) -> ModelPredictions:
    answers = Tensor.of(np.ones(1, dtype=np.int64))
    return ModelPredictions("svc", "1", "w", (query.query_id,), (Outcome.OK,), answers, None, (0,), 10, 1, 4, 0)


def _traffic(loop: Loop) -> tuple[DemoTraffic, Tally, Recorder]:
    tally, recorder = (
        Tally("digits", ["svc"], 0, (10, 20), DemoTrial("svc", "1", "2", 0.2, 21, 27)),
        Recorder(0, 100_000),
    )
    link = Link(loop, CODEC, loop.now_us)  # type: ignore[arg-type]  # the loop is the wire, too
    queries = Queries("digits", DATA, np.arange(3), tally, seed=1)
    return DemoTraffic(link, queries, recorder, tally, TOPOLOGY), tally, recorder


def test_it_asks_on_until_everything_joined_is_learnt() -> None:
    """The last query was decided before the last feedback was learnt: closing queries see it, and count nowhere."""
    loop = Loop()
    traffic, tally, recorder = _traffic(loop)
    traffic.run(range(0, 100_000, 10_000))
    assert (tally.joined, tally.applied, traffic.feedback_sent) == (10, 10, 10)
    closing = len(loop.asked) - 10
    assert 1 <= closing <= 5
    assert recorder.total.sent == recorder.total.answered == 10
    assert loop.fed_back == 10
    assert tally.models["svc"].rows == tally.judged_by_second.total() == 10


def test_feedback_that_is_never_joined_is_waited_for_no_longer_than_there_is_news() -> None:
    """An answer without its model teaches nothing; nobody tells the client so."""
    loop = Loop(joins=frozenset(range(8)))
    traffic, tally, _ = _traffic(loop)
    traffic.run(range(0, 100_000, 10_000))
    assert (tally.joined, tally.applied, traffic.feedback_sent) == (8, 8, 10)
    assert loop.time_us < (1.0 + QUIET_S) * 1e6


def test_dead_letters_of_every_topic_are_counted() -> None:
    """They are read as they are: bytes that nobody could decode."""
    loop = Loop()
    traffic, tally, _ = _traffic(loop)
    loop.dead_letter()
    traffic.run([0])
    assert tally.dead_letters == 1


def test_stopped_before_the_first_query_it_asks_nothing() -> None:
    """Ctrl-C during the warm-up ends the load, too: no closing queries for a run that was none."""
    loop = Loop()
    traffic, tally, _ = _traffic(loop)
    traffic.stop()
    traffic.run([1_000_000])
    assert not loop.asked
    assert not tally.questions


@pytest.mark.parametrize("count", [1, 20])
def test_the_warm_up_tells_of_the_first_prediction_once_and_gives_no_feedback(count: int) -> None:
    """Nothing is learnt from it, and nothing counted."""
    loop, first = Loop(), []
    link = Link(loop, CODEC, loop.now_us)  # type: ignore[arg-type]
    warm = WarmUp(link, "digits", DATA, lambda: first.append(loop.time_us))
    assert warm.run(range(0, count * 1_000, 1_000)) == count
    assert first == [LEG_US]
    assert loop.fed_back == 0
