"""A backlog: queries made beforehand and written in one go, answers judged when all are there.

Making a query and judging its answer takes the harness as long as the system takes to answer. So between the first
query and the last answer, `flood` only passes bytes on and reads ids.

`drain` leaves the machine to the system: meanwhile the harness neither sends nor reads. In a large batch, a sender on
the same machine costs a third of the system's own time for a query, in the broker and in itself. A reader costs as much
again. For a query that travels alone these costs hardly count. So a fair comparison of the two needs `drain`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from load.harness import gc_off
from load.harness.aggregates import drain_rate
from load.harness.openloop import IDLE_S, key_of, note
from schemas import topics
from schemas.framing import peek_id
from schemas.records import Feedback, Prediction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from load.harness.openloop import Workload
    from load.harness.recorder import Recorder
    from load.harness.wire import Wire
    from schemas.codec import Codec
    from schemas.records import Value

_LOOK_S = 0.05


class Made(NamedTuple):
    """A query as it travels, and what will be said about its answer: label and feedback, None = nothing."""

    query_id: str
    key: bytes
    query: bytes
    label: Value | None
    feedback: bytes | None


class Taken(NamedTuple):
    """The outcome of a backlog.

    Attributes:
        predictions: the first answer to each query.
        read_us: when each was read.
        appended_us: when the broker had each, where it stamps the topic's records.
        feedback_sent: how many of them got feedback.
    """

    predictions: tuple[Prediction, ...]
    read_us: tuple[int, ...]
    appended_us: tuple[int, ...]
    feedback_sent: int


def make(workload: Workload, codec: Codec, count: int, now_us: int) -> list[Made]:
    """Return `count` queries, all of them meant for `now_us`."""
    return [_made(workload, codec, index, now_us) for index in range(count)]


def flood(
    queries: Sequence[Made], wire: Wire, codec: Codec, recorder: Recorder, now_us: Callable[[], int], limit_s: float
) -> Taken:
    """Send everything at once and return feedback for what is answered, until all is or `limit_s` is over.

    Args:
        queries: from `make`.
        wire: where to send and read; it follows `predictions` from its end.
        codec: of the records.
        recorder: told of every query now and of every answer in the end.
        now_us: the clock.
        limit_s: how long the last answer is waited for.
    """
    recorder.all_sent([made.query_id for made in queries], recorder.start_us)
    unanswered = {made.query_id: made for made in queries}
    with gc_off.stopped():
        for made in queries:
            wire.produce(topics.QUERIES, made.key, made.query)
        values, told = _answers(unanswered, wire, now_us, recorder.start_us + int(limit_s * 1e6))
    wire.flush()
    values += [
        _Read(now_us(), arrival.timestamp_us, arrival.value)
        for arrival in wire.rest()
        if peek_id(arrival.value) not in unanswered
    ]
    labels = {made.query_id: made.label for made in queries}
    answers = [(read, codec.decode(Prediction, read.value)) for read in values]
    first = [
        (read, answer) for read, answer in answers if note(recorder, answer, read.at_us, labels.get(answer.query_id))
    ]
    return Taken(
        tuple(answer for _, answer in first),
        tuple(read.at_us for read, _ in first),
        tuple(read.appended_us for read, _ in first),
        told,
    )


class _Read(NamedTuple):
    """An answer: when it was read, when the broker had it, its bytes."""

    at_us: int
    appended_us: int
    value: bytes | None


def _answers(
    unanswered: dict[str, Made], wire: Wire, now_us: Callable[[], int], end_us: int
) -> tuple[list[_Read], int]:
    """Return the answers, and how many got feedback, which is sent meanwhile.

    What is left in `unanswered` had no answer in time; one that comes later is none.
    """
    values, told = list[_Read](), 0
    while unanswered and now_us() < end_us:
        arrived, at_us = wire.stamped(IDLE_S), now_us()
        for appended_us, value in arrived:
            values.append(_Read(at_us, appended_us, value))
            made = unanswered.pop(peek_id(value), None)
            if made is not None and made.feedback is not None:
                wire.produce(topics.FEEDBACK, made.key, made.feedback, patient=True)
                told += 1
    return values, told


def _made(workload: Workload, codec: Codec, index: int, now_us: int) -> Made:
    query, label = workload(index, now_us)
    feedback = None if label is None else codec.encode(Feedback(query.query_id, label=label, sent_us=now_us))
    return Made(query.query_id, key_of(query), codec.encode(query), label, feedback)


class Drained(NamedTuple):
    """The outcome of `drain`.

    Attributes:
        per_s: answers a second, from when all queries were written to when 95 % had an answer.
        lost: queries without an answer.
    """

    per_s: float
    lost: int


def drain(queries: Sequence[Made], wire: Wire, now_us: Callable[[], int], limit_s: float) -> Drained:
    """Send everything at once, wait until as many answers are written or `limit_s` is over, then read them.

    Args:
        queries: from `make`.
        wire: follows `predictions` from its end; the broker stamps these when it appends them.
        now_us: the clock.
        limit_s: how long the last answer is waited for.
    """
    wire.hold()
    with gc_off.stopped():
        for made in queries:
            wire.produce(topics.QUERIES, made.key, made.query)
    wire.flush()
    written_us = now_us()
    while wire.appended(asking=True) < len(queries) and now_us() < written_us + limit_s * 1e6:
        time.sleep(_LOOK_S)
    wire.go_on()
    appended_us: dict[str | None, int] = {}
    for arrival in wire.written():
        appended_us.setdefault(peek_id(arrival.value), arrival.timestamp_us)
    mine = [appended_us[made.query_id] for made in queries if made.query_id in appended_us]
    return Drained(drain_rate(mine, written_us, len(queries)), len(queries) - len(mine))
