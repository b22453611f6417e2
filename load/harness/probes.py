"""Watches a deployment from outside: reads committed offsets and the reports of processes."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, TopicPartition

from load.harness.wire import Wire
from schemas import topics
from schemas.codec import Codec
from schemas.records import Report
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from load.harness.system import Stage

R = TypeVar("R")

_POLL_S = 0.1
_METADATA_S = 10.0


def await_learnt(stage: Stage, prefix: str, count: int, timeout_s: float) -> None:
    """Wait until the joiner has committed `count` records of feedback, and the learner all that has come of them.

    Raises:
        TimeoutError: they have not in time.
    """
    end_s = time.monotonic() + timeout_s
    with _group(stage, prefix, "joiner") as joiner, _group(stage, prefix, "learner") as learner:
        feedback, observations = (
            _places(consumer, f"{prefix}.{topic}", timeout_s)
            for consumer, topic in ((joiner, topics.FEEDBACK), (learner, topics.OBSERVATIONS))
        )
        while (joined := _committed(joiner, feedback, timeout_s)) < count:
            _wait(end_s, f"{joined} of {count} records of feedback are committed after {timeout_s:g} s")
        end = sum(learner.get_watermark_offsets(place, timeout=timeout_s)[1] for place in observations)
        while (learnt := _committed(learner, observations, timeout_s)) < end:
            _wait(end_s, f"{learnt} of {end} records of observations are committed after {timeout_s:g} s")


class Learning:
    """What a deployment learns of feedback that is written from now on.

    Args:
        stage: where.
        prefix: of the deployment.
    """

    def __init__(self, stage: Stage, prefix: str) -> None:
        self._stage, self._prefix = stage, prefix
        with _group(stage, prefix, "joiner") as joiner:
            places = _places(joiner, f"{prefix}.{topics.FEEDBACK}", _METADATA_S)
            self._before = sum(joiner.get_watermark_offsets(place, timeout=_METADATA_S)[1] for place in places)

    def over_us(self, count: int, timeout_s: float) -> int:
        """Wait until `count` records of feedback are learnt and committed; returns when they are, 0 if not in time.

        Roles commit twice a second, and are asked ten times a second.
        """
        try:
            await_learnt(self._stage, self._prefix, self._before + count, timeout_s)
        except TimeoutError:
            return 0
        return SystemClock().now_us()


async def nothing_learnt() -> int:
    """Return when nothing is learnt: never."""
    return 0


@contextmanager
def _group(stage: Stage, prefix: str, group: str) -> Iterator[Consumer]:
    named = {"group.id": f"{prefix}.{group}", "group.protocol": "classic"}
    consumer = Consumer({"bootstrap.servers": stage.bootstrap, **named, **stage.properties})
    try:
        yield consumer
    finally:
        consumer.close()


def _places(consumer: Consumer, topic: str, timeout_s: float) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for p in consumer.list_topics(topic, timeout=timeout_s).topics[topic].partitions]


def _committed(consumer: Consumer, places: list[TopicPartition], timeout_s: float) -> int:
    return sum(max(0, place.offset) for place in consumer.committed(places, timeout=timeout_s))


def _wait(end_s: float, message: str) -> None:
    if time.monotonic() > end_s:
        raise TimeoutError(message)
    time.sleep(_POLL_S)


def await_gauge(stage: Stage, prefix: str, role: str, gauge: str, least: float, timeout_s: float) -> None:
    """Wait until a role reports a gauge of at least `least`.

    Raises:
        TimeoutError: it has not in time.
    """
    seen = 0.0
    with closing(_gauges(stage, prefix, role, gauge, timeout_s)) as reported:
        while seen < least:
            latest = next(reported, None)
            if latest is None:
                raise TimeoutError(f"{role} reports {gauge} {seen:g}, not {least:g}, after {timeout_s:g} s")
            seen = max(seen, latest)


def latest_gauge(stage: Stage, prefix: str, role: str, gauge: str, timeout_s: float) -> float:
    """Return what a role's next report says; 0 where it says nothing about the gauge.

    Raises:
        TimeoutError: no report came in time.
    """
    with closing(_gauges(stage, prefix, role, gauge, timeout_s)) as reported:
        latest = next(reported, None)
    if latest is None:
        raise TimeoutError(f"{role} has not reported within {timeout_s:g} s")
    return latest


def written(stage: Stage, prefix: str, topic: str, kind: type[R]) -> list[R]:
    """Return everything that a topic holds."""
    codec = Codec()
    with closing(Wire(stage.bootstrap, prefix, stage.properties)) as wire:
        wire.follow((topic,), from_start=True)
        return [codec.decode(kind, arrival.value) for arrival in wire.written()]


def length(stage: Stage, prefix: str, topic: str) -> int:
    """Return how many records have been written to a topic, all partitions together."""
    with _group(stage, prefix, "measure") as consumer:
        bounds = [
            consumer.get_watermark_offsets(place, _METADATA_S)
            for place in _places(consumer, f"{prefix}.{topic}", _METADATA_S)
        ]
    return sum(high for _, high in bounds)


def _gauges(stage: Stage, prefix: str, role: str, gauge: str, timeout_s: float) -> Generator[float, None, None]:
    """Yield what a role's reports say of a gauge or a counter, 0 where they say nothing, until the time is up."""
    codec, end_s = Codec(), time.monotonic() + timeout_s
    with closing(Wire(stage.bootstrap, prefix, stage.properties)) as wire:
        wire.follow((topics.REPORTS,))
        while time.monotonic() < end_s:
            reports = [codec.decode(Report, arrival.value) for arrival in wire.poll(1.0)]
            its = [{**report.counters, **report.gauges} for report in reports if report.role == role]
            yield from (figures.get(gauge, 0.0) for figures in its)
