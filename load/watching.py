"""Watches a deployment from outside: what its groups have committed, what its processes report."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, TopicPartition

from load.wire import Wire
from schemas import topics
from schemas.codec import Codec
from schemas.records import Report

if TYPE_CHECKING:
    from collections.abc import Generator

    from load.system import Stage

R = TypeVar("R")

_POLL_S = 0.1


def await_committed(stage: Stage, prefix: str, group: str, topic: str, count: int, timeout_s: float) -> None:
    """Wait until a group has committed `count` records of a topic, over all its partitions.

    Raises:
        TimeoutError: it has not in time.
    """
    consumer = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": f"{prefix}.{group}", **stage.properties})
    try:
        name = f"{prefix}.{topic}"
        places = [
            TopicPartition(name, p) for p in consumer.list_topics(name, timeout=timeout_s).topics[name].partitions
        ]
        end_s = time.monotonic() + timeout_s
        while (done := sum(max(0, place.offset) for place in consumer.committed(places, timeout=timeout_s))) < count:
            if time.monotonic() > end_s:
                raise TimeoutError(f"{group} committed {done} of {count} records of {topic} within {timeout_s:g} s")
            time.sleep(_POLL_S)
    finally:
        consumer.close()


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


def _gauges(stage: Stage, prefix: str, role: str, gauge: str, timeout_s: float) -> Generator[float, None, None]:
    """Yield what a role's reports say of a gauge, 0 where they say nothing, until the time is up."""
    codec, end_s = Codec(), time.monotonic() + timeout_s
    with closing(Wire(stage.bootstrap, prefix, stage.properties)) as wire:
        wire.follow((topics.REPORTS,))
        while time.monotonic() < end_s:
            reports = [codec.decode(Report, arrival.value) for arrival in wire.poll(1.0)]
            yield from (report.gauges.get(gauge, 0.0) for report in reports if report.role == role)
