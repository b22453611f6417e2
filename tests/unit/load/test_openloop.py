"""The open-loop client over a wire that answers from memory, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from load.harness.openloop import Asked, OpenLoop
from load.harness.recorder import Recorder
from load.harness.wire import Arrival
from load.harness.workload import Rows
from schemas import topics
from schemas.codec import Codec
from schemas.records import Feedback, Prediction, Query, Status
from tests.wires import VirtualWire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CODEC = Codec()
DELAY_US = 30_000


class FakeWire(VirtualWire):
    """A system that answers every query after 30 ms with its number modulo 2; time passes while it is polled."""

    def __init__(self, respond: Callable[[Query], list[Prediction]]) -> None:
        super().__init__()
        self.produced: list[tuple[str, bytes, bytes]] = []
        self._respond = respond

    def produce(self, topic: str, key: bytes, value: bytes, *, patient: bool = False) -> None:
        """Keep the record; schedule the answers to a query."""
        self.produced.append((topic, key, value))
        if topic == topics.QUERIES:
            for answer in self._respond(CODEC.decode(Query, value)):
                at_us = self.time_us + DELAY_US
                self.arrive(Arrival(topics.PREDICTIONS, 0, at_us, key, CODEC.encode(answer)), DELAY_US)

    def feedback(self) -> list[tuple[bytes, Feedback]]:
        """Return the feedback that was sent, with its keys."""
        return [(k, CODEC.decode(Feedback, value)) for topic, k, value in self.produced if topic == topics.FEEDBACK]


def _answer(query: Query, answer: int | None = 1, status: Status = Status.COMPLETE) -> Prediction:
    return Prediction(
        query.query_id, query.application, query.context, None, status, None, answer, 1.0, (), query.sent_us, 0, 0, 0
    )


def _loop(wire: FakeWire, workload: Rows, **options: object) -> tuple[OpenLoop, Recorder]:
    recorder = Recorder(start_us=0, slo_us=50_000)
    return OpenLoop(wire, CODEC, workload, recorder, wire.now_us, **options), recorder  # type: ignore[arg-type]


def _run(wire: FakeWire, workload: Rows, arrivals_us: Sequence[int], **options: object) -> tuple[OpenLoop, Recorder]:
    loop, recorder = _loop(wire, workload, **options)
    loop.run(arrivals_us, drain_s=1.0)
    return loop, recorder


def test_every_query_is_sent_in_time_answered_and_learnt_from() -> None:
    """Answers right and wrong are judged by the labels; each gets feedback with the true label."""
    wire = FakeWire(lambda query: [_answer(query)])
    loop, recorder = _run(wire, Rows("digits", ["a", "b"], [1, 2]), range(0, 100_000, 10_000))
    figures = recorder.figures()
    assert (figures["queries_sent"], figures["in_time"], figures["lost"], figures["error"]) == (10, 10, 0, 0.5)
    assert figures["p50_ms"] == pytest.approx(30, rel=0.01)
    assert sorted(feedback.label for _, feedback in wire.feedback()) == [1] * 5 + [2] * 5  # type: ignore[type-var]
    assert loop.feedback_sent == 10


def test_the_sender_does_not_wait_for_answers() -> None:
    """Ten queries are out before the first answer is due."""
    wire = FakeWire(lambda query: [_answer(query)])
    _run(wire, Rows("digits", ["a"]), range(0, 10_000, 1_000))
    assert [topic for topic, *_ in wire.produced[:10]] == [topics.QUERIES] * 10


def test_silence_ends_after_the_drain_and_counts_as_lost() -> None:
    """The loop does not hang on a system that answers nothing."""
    wire = FakeWire(lambda _query: [])
    _, recorder = _run(wire, Rows("digits", ["a"], [1]), [0, 1_000])
    assert recorder.open == 2
    assert not wire.feedback()


def test_feedback_has_the_key_of_its_query_and_comes_late_if_told_to() -> None:
    """Keyed by context, stamped with the time at which it was meant to be sent."""
    wire = FakeWire(lambda query: [_answer(query)])
    _run(wire, Rows("digits", ["a"], [1], contexts=["ann"]), [0], feedback_delay_us=200_000)
    ((key, feedback),) = wire.feedback()
    assert (key, feedback.sent_us) == (b"ann", DELAY_US + 200_000)


def test_no_feedback_where_none_is_wanted_or_no_truth_is_known() -> None:
    """Each by itself is enough."""
    silent, ignorant = FakeWire(lambda query: [_answer(query)]), FakeWire(lambda query: [_answer(query)])
    _run(silent, Rows("digits", ["a"], [1]), [0], feedback_delay_us=None)
    _run(ignorant, Rows("digits", ["a"]), [0])
    assert not silent.feedback()
    assert not ignorant.feedback()


def test_a_duplicate_answer_is_counted_and_gets_no_second_feedback() -> None:
    """Duplicates are the harness's finding, not more work for the joiner."""
    wire = FakeWire(lambda query: [_answer(query), _answer(query)])
    heard: list[Prediction] = []
    _, recorder = _run(wire, Rows("digits", ["a"], [1]), [0], on_predictions=heard.extend)
    assert (recorder.duplicates, len(wire.feedback()), len(heard)) == (1, 1, 1)


def test_a_default_without_an_answer_is_neither_right_nor_wrong() -> None:
    """It is counted as what it is."""
    wire = FakeWire(lambda query: [_answer(query, None, Status.DEFAULT)])
    _, recorder = _run(wire, Rows("digits", ["a"], [1]), [0])
    assert recorder.figures()["defaults"] == 1
    assert "error" not in recorder.figures()


def test_other_topics_go_to_their_taps() -> None:
    """Whole polls, undecoded."""
    wire = FakeWire(lambda query: [_answer(query)])
    seen: list[Arrival] = []
    loop, _ = _loop(wire, Rows("digits", ["a"]), taps={topics.OBSERVATIONS: seen.extend})
    wire.arrive(Arrival(topics.OBSERVATIONS, 0, 0, None, b"raw"))
    loop.run([0], drain_s=1.0)
    assert [arrival.value for arrival in seen] == [b"raw"]


def test_stop_ends_an_endless_load() -> None:
    """As Ctrl-C does in the demo."""
    wire = FakeWire(lambda query: [_answer(query)])
    loop, recorder = _loop(wire, Rows("digits", ["a"]), on_predictions=lambda _predictions: loop.stop())
    loop.run(iter(range(0, 10**12, 10_000)), drain_s=1.0)
    assert 0 < recorder.total.sent < 10
    assert recorder.open == 0


def test_a_workload_is_a_function_of_seed_and_index() -> None:
    """Ids differ by seed and index and repeat; rows and contexts go round."""
    rows = Rows("digits", ["a", "b"], [1, 2], contexts=["x", "y", "z"], seed=1)
    assert rows(4, 99) == rows(4, 99) == Asked(Query(rows(4, 0).query.query_id, "digits", "a", "y", 99), 1)
    assert len({Rows("digits", ["a"], seed=s)(i, 0).query.query_id for s in range(3) for i in range(100)}) == 300
