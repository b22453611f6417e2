"""Watches a deployment from outside: what its groups have committed, what its processes report."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from load.wire import Wire
from schemas import topics
from schemas.codec import Codec
from schemas.records import Report

if TYPE_CHECKING:
    from load.system import Stage

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
    wire, codec = Wire(stage.bootstrap, prefix, stage.properties), Codec()
    try:
        wire.follow((topics.REPORTS,))
        end_s, seen = time.monotonic() + timeout_s, 0.0
        while seen < least:
            if time.monotonic() > end_s:
                raise TimeoutError(f"{role} reports {gauge} {seen:g}, not {least:g}, after {timeout_s:g} s")
            reports = [codec.decode(Report, arrival.value) for arrival in wire.poll(1.0)]
            seen = max([seen, *(report.gauges.get(gauge, 0.0) for report in reports if report.role == role)])
    finally:
        wire.close()


def latest_gauge(stage: Stage, prefix: str, role: str, gauge: str, timeout_s: float) -> float:
    """Return what a role's next report says; 0 where it says nothing about the gauge.

    Raises:
        TimeoutError: no report came in time.
    """
    wire, codec = Wire(stage.bootstrap, prefix, stage.properties), Codec()
    try:
        wire.follow((topics.REPORTS,))
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            reports = (codec.decode(Report, arrival.value) for arrival in wire.poll(1.0))
            said = next((report for report in reports if report.role == role), None)
            if said is not None:
                return said.gauges.get(gauge, 0.0)
        raise TimeoutError(f"{role} has not reported within {timeout_s:g} s")
    finally:
        wire.close()
