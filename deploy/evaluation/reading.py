"""Where observations come from: a recorded trace, or the topics of a running deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.connect.clients import answering
from deploy.state.messages import messages
from streams.evaluation.errors import EvaluationError
from streams.evaluation.history import OBSERVATIONS, TOPICS, history
from streams.operators.contract import Record
from streams.runtime.clock import SystemClock
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.evaluation.history import History


def recorded(folder: Path, codec: Codec, application: str | None) -> History:
    """Return the history in a trace.

    Raises:
        TraceError: there is no trace, or it is damaged.
        EvaluationError: it has no observations of the application.
    """
    trace = Trace.open(folder)
    if OBSERVATIONS not in trace.topics():
        there = ", ".join(trace.topics()) or "nothing"
        raise EvaluationError(f"{folder} holds {there}; record the topic {OBSERVATIONS} to evaluate policies")
    topics = [topic for topic in TOPICS if topic in trace.topics()]
    return history(trace.merged(topics), codec, application, trace.manifest.until_us or 0)


def live(settings: Settings, codec: Codec, application: str) -> History:
    """Return the history that Kafka holds of a running deployment, up to now.

    Raises:
        UsageError: a topic does not exist.
        EvaluationError: there are no observations of the application.
        Unreachable: no broker answers.
    """
    now_us = SystemClock().now_us()  # a deployment may be quiet: its newest record is no clock
    with answering(settings):
        records = (each for topic in TOPICS for each in _records(settings, topic))
        return history(records, codec, application, now_us)


def _records(settings: Settings, topic: str) -> Iterator[Record]:
    for message in messages(settings, topic, from_beginning=True, stops_at_end=True):
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        key, value = message.key(), message.value()
        assert not isinstance(key, str)
        assert not isinstance(value, str)
        yield Record(topic, partition, offset, message.timestamp()[1] * 1_000, key, value)
