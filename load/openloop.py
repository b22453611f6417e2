"""The open-loop client: sends when a query is due, whatever became of the ones before it.

One thread does both directions: it sends what is due in one go, then waits for answers no longer than until the next
query is due. Feedback follows an answer from the true label. Nothing here ever waits for a particular answer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from schemas import topics
from schemas.records import Feedback, Prediction, Query, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from load.recorder import Recorder
    from load.wire import Arrival, Wire
    from schemas.codec import Codec

_IDLE_S = 0.05  # how long a silent sink may keep `stop` waiting


class Asked(NamedTuple):
    """A query and its true label; None = nobody will ever know."""

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
        wire: where to send and read; it must not follow anything yet.
        codec: of the records.
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
        recorder: Recorder,
        now_us: Callable[[], int],
        *,
        feedback_delay_us: int | None = 0,
        on_predictions: Callable[[Sequence[Prediction]], None] | None = None,
        taps: dict[str, Callable[[Sequence[Arrival]], None]] | None = None,
    ) -> None:
        self._wire = wire
        self._codec = codec
        self._recorder = recorder
        self._now_us = now_us
        self._delay_us = feedback_delay_us
        self._on_predictions = on_predictions
        self._taps = taps or {}
        self._labels: dict[str, Value] = {}
        self._due: deque[_Due] = deque()
        self._stopped = False
        self.feedback_sent = 0
        wire.follow((topics.PREDICTIONS, *self._taps))

    def stop(self) -> None:
        """End the sending; `run` returns within its drain time. May be called from another thread."""
        self._stopped = True

    def run(self, arrivals_us: Iterable[int], workload: Workload, drain_s: float = 5.0) -> None:
        """Send every query at its intended time; then read until all are answered, at most `drain_s`.

        Args:
            arrivals_us: offsets from the recorder's start.
            workload: makes the queries.
            drain_s: how long the last answers are waited for.
        """
        start_us = self._recorder.start_us
        pending = _Peekable((index, start_us + offset_us) for index, offset_us in enumerate(arrivals_us))
        while pending.head is not None and not self._stopped:
            now_us = self._now_us()
            while pending.head is not None and pending.head[1] <= now_us:
                self._send(workload(*pending.head))
                pending.advance()
            self._turn(_IDLE_S if pending.head is None else (pending.head[1] - self._now_us()) / 1e6)
        self.drain(drain_s)

    def drain(self, seconds: float) -> None:
        """Read and return feedback until every query is answered and its feedback sent, at most `seconds`."""
        end_us = self._now_us() + int(seconds * 1e6)
        while (self._recorder.open or self._due) and self._now_us() < end_us:
            self._turn(_IDLE_S)
        self._wire.flush()

    def _turn(self, wait_s: float) -> None:
        self._take(self._wire.poll(min(_IDLE_S, max(0.0, wait_s))))
        now_us = self._now_us()
        while self._due and self._due[0].at_us <= now_us:
            due = self._due.popleft()
            self._wire.produce(topics.FEEDBACK, due.key, self._codec.encode(due.feedback))
            self.feedback_sent += 1

    def _send(self, asked: Asked) -> None:
        query = asked.query
        if asked.label is not None:
            self._labels[query.query_id] = asked.label
        self._wire.produce(topics.QUERIES, _key(query), self._codec.encode(query))
        self._recorder.sent(query.query_id, query.sent_us, self._now_us())

    def _take(self, arrivals: list[Arrival]) -> None:
        now_us = self._now_us()
        answers = [a for a in arrivals if a.topic == topics.PREDICTIONS]
        predictions = [self._codec.decode(Prediction, a.value) for a in answers]
        first = [p for p in predictions if self._answered(p, now_us)]
        if first and self._on_predictions is not None:
            self._on_predictions(first)
        for topic, tap in self._taps.items():
            if records := [a for a in arrivals if a.topic == topic]:
                tap(records)

    def _answered(self, prediction: Prediction, now_us: int) -> bool:
        label = self._labels.pop(prediction.query_id, None)
        correct = None if label is None or prediction.answer is None else prediction.answer == label
        first = self._recorder.answered(prediction.query_id, now_us, prediction.status, correct=correct)
        if first and label is not None and self._delay_us is not None:
            feedback = Feedback(prediction.query_id, label=label, sent_us=now_us + self._delay_us)
            self._due.append(_Due(now_us + self._delay_us, _key(prediction), feedback))
        return first


class _Peekable:
    """The arrivals with the next one in sight; `head` is None at the end."""

    def __init__(self, items: Iterator[tuple[int, int]]) -> None:
        self._items = items
        self.head = next(items, None)

    def advance(self) -> None:
        """Put the next arrival in sight."""
        self.head = next(self._items, None)


def _key(about: Query | Prediction) -> bytes:
    return (about.query_id if about.context is None else about.context).encode()
