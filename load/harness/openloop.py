"""The open-loop client: it sends each query when it is due, whether or not earlier ones were answered.

One thread does both directions. It sends all due queries in one go, then waits for answers until the next query is due.
Feedback follows an answer from the true label. The client never waits for a particular answer.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Feedback, Prediction, Query, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from load.harness.recorder import Recorder
    from load.harness.wire import Arrival, Wire
    from schemas.codec import Codec

# How long a quiet turn may keep `stopped` unnoticed; also the longest a turn is asked to wait.
IDLE_S = 0.05


class Side(Protocol):
    """The two things to do, in turns, in one thread."""

    def send(self, index: int, intended_us: int) -> None:
        """Send number `index`, which was meant for `intended_us`; must not block."""
        ...

    def turn(self, wait_s: float) -> None:
        """Take what has arrived, waiting at most `wait_s` for it."""
        ...


def pace(
    side: Side, arrivals_us: Iterable[int], start_us: int, now_us: Callable[[], int], stopped: Callable[[], bool]
) -> int:
    """Send everything at its intended time; returns how many were sent.

    Overdue queries go out in one go, each with its own intended time.

    Args:
        side: sends and takes.
        arrivals_us: offsets from `start_us`, non-decreasing.
        start_us: time of offset 0.
        now_us: the clock.
        stopped: asked between sends; True ends the pacing.
    """
    index = 0
    for index, offset_us in enumerate(arrivals_us, start=1):
        intended_us = start_us + offset_us
        while (ahead_us := intended_us - now_us()) > 0:
            if stopped():
                return index - 1
            side.turn(min(IDLE_S, ahead_us / 1e6))
        side.send(index - 1, intended_us)
    return index


class Asked(NamedTuple):
    """A query and its true label; None = there is no feedback."""

    query: Query
    label: Value | None = None


class Workload(Protocol):
    """Makes queries: a pure function of the index, so that the same seed asks the same."""

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return the query number `index`, with `sent_us` = `intended_us`."""
        ...


class _Due(NamedTuple):
    at_us: int
    key: bytes
    feedback: Feedback


class OpenLoop:
    """Sends a workload by its arrival times, records every answer, returns feedback.

    Args:
        wire: where to send and read; it follows `predictions` and the topics of `taps` already, from their end.
        codec: of the records.
        workload: makes the queries.
        recorder: told of every query and answer.
        now_us: the clock that intended send times are measured by.
        feedback_delay_us: between an answer and its feedback; None = send none.
        on_predictions: called with every poll's predictions (first answers only), in this thread.
        taps: further topics to read, each with a callback for its records.
    """

    def __init__(
        self,
        wire: Wire,
        codec: Codec,
        workload: Workload,
        recorder: Recorder,
        now_us: Callable[[], int],
        *,
        feedback_delay_us: int | None = 0,
        on_predictions: Callable[[Sequence[Prediction]], None] | None = None,
        taps: dict[str, Callable[[Sequence[Arrival]], None]] | None = None,
    ) -> None:
        self._wire = wire
        self._codec = codec
        self._workload = workload
        self._recorder = recorder
        self._now_us = now_us
        self._delay_us = feedback_delay_us
        self._on_predictions = on_predictions
        self._taps = taps or {}
        self._labels: dict[str, Value] = {}
        self._due: deque[_Due] = deque()
        self._stopped = False
        self.feedback_sent = 0

    def stop(self) -> None:
        """End the sending; `run` returns within its drain time. May be called from another thread."""
        self._stopped = True

    def run(self, arrivals_us: Iterable[int], drain_s: float = 5.0) -> None:
        """Send every query at its intended time; then read until all are answered, at most `drain_s`.

        Args:
            arrivals_us: offsets from the recorder's start.
            drain_s: how long the last answers are waited for.
        """
        pace(self, arrivals_us, self._recorder.start_us, self._now_us, lambda: self._stopped)
        self.drain(drain_s)

    def drain(self, seconds: float) -> None:
        """Read and return feedback until every query is answered and its feedback sent, at most `seconds`."""
        end_us = self._now_us() + int(seconds * 1e6)
        while (self._recorder.open or self._due) and self._now_us() < end_us:
            self.turn(IDLE_S)
        self._wire.flush()

    def turn(self, wait_s: float) -> None:
        """Take what has arrived, waiting at most `wait_s`; send the feedback that is due."""
        self._take(self._wire.poll(wait_s))
        now_us = self._now_us()
        while self._due and self._due[0].at_us <= now_us:
            due = self._due.popleft()
            self._wire.produce(topics.FEEDBACK, due.key, self._codec.encode(due.feedback), patient=True)
            self.feedback_sent += 1

    def send(self, index: int, intended_us: int) -> None:
        """Send query number `index`."""
        query, label = self._workload(index, intended_us)
        if label is not None:
            self._labels[query.query_id] = label
        self._wire.produce(topics.QUERIES, key_of(query), self._codec.encode(query))
        self._recorder.sent(query.query_id, query.sent_us, self._now_us())

    def _take(self, arrivals: list[Arrival]) -> None:
        now_us = self._now_us()
        answers = [a for a in arrivals if a.topic == topics.PREDICTIONS]
        first = [p for p in self._read(answers) if self._answered(p, now_us)]
        if first and self._on_predictions is not None:
            self._on_predictions(first)
        for topic, tap in self._taps.items():
            if records := [a for a in arrivals if a.topic == topic]:
                tap(records)

    def _read(self, answers: list[Arrival]) -> Iterator[Prediction]:
        for arrival in answers:
            with suppress(DecodeError):  # somebody else's record: it answers nothing
                yield self._codec.decode(Prediction, arrival.value)

    def _answered(self, prediction: Prediction, now_us: int) -> bool:
        label = self._labels.pop(prediction.query_id, None)
        first = note(self._recorder, prediction, now_us, label)
        if first and label is not None and self._delay_us is not None:
            feedback = Feedback(prediction.query_id, label=label, sent_us=now_us + self._delay_us)
            self._due.append(_Due(now_us + self._delay_us, key_of(prediction), feedback))
        return first


def key_of(about: Query | Prediction) -> bytes:
    """Return the key of a query's records: its context, or its id if it has none."""
    return (about.query_id if about.context is None else about.context).encode()


def note(recorder: Recorder, prediction: Prediction, now_us: int, label: Value | None) -> bool:
    """Record an answer that was read at `now_us`; returns whether it is its query's first.

    It is neither right nor wrong where no label is known, or where it is none.
    """
    correct = None if label is None or prediction.answer is None else prediction.answer == label
    return recorder.answered(prediction.query_id, now_us, prediction.status, correct=correct)
