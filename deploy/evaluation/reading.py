"""Where observations come from: a recorded trace, or the topics of a running deployment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deploy.connect.clients import answering
from deploy.state.messages import records
from streams.evaluation.errors import EvaluationError
from streams.evaluation.history import OBSERVATIONS, TOPICS, history
from streams.runtime.clock import SystemClock
from streams.trace.manifest import KAFKA
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.evaluation.history import KnownApplication


def recorded(folder: Path, codec: Codec, application: str | None, *, with_outputs: bool = False) -> KnownApplication:
    """Return the history in a trace; with what models have answered, if that is asked for.

    Raises:
        TraceError: there is no trace, or it is damaged.
        EvaluationError: it has no observations of the application.
    """
    trace = Trace.open(folder)
    if OBSERVATIONS not in trace.topics():
        there = ", ".join(trace.topics()) or "nothing"
        raise EvaluationError(f"{folder} holds {there}; record the topic {OBSERVATIONS} to evaluate policies")
    topics = [topic for topic in TOPICS if topic in trace.topics()]
    until_us = trace.manifest.until_us or 0
    found = history(trace.merged(topics), codec, application, until_us, with_outputs=with_outputs)
    if found.window_s is None and trace.manifest.source != KAFKA:  # rows of elsewhere say all that they ever will
        return replace(found, window_s=0.0)
    return found


def live(settings: Settings, codec: Codec, application: str, *, with_outputs: bool = False) -> KnownApplication:
    """Return the history that Kafka holds of a running deployment, up to now; with outputs, if they are asked for.

    Raises:
        UsageError: a topic does not exist.
        EvaluationError: there are no observations of the application.
        Unreachable: no broker answers.
    """
    now_us = SystemClock().now_us()  # a deployment may be quiet: its newest record is no clock
    with answering(settings):
        found = (each for topic in TOPICS for each in records(settings, topic))
        return history(found, codec, application, now_us, with_outputs=with_outputs)
