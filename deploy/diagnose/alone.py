"""Finds another `skysail run` of the same deployment, on any machine, by its reports.

Its processes report as `selection@1`, `worker.forest@2`, so two runs would use the same names. A process that is
started by itself (`--role`) has another name and does not count.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, TopicPartition

from deploy.connect.clients import TIMEOUT_S, admin, answering, librdkafka
from deploy.errors import UsageError
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.config.settings import Settings
    from schemas.codec import Codec

RECENT_S = 3.0  # every process reports once a second
POLL_S = 0.2
NUMBERED = re.compile(r"([a-z0-9.-]+)@\d+")
END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own codes begin with an underscore


def require_alone(settings: Settings, codec: Codec) -> None:
    """Check that no other `skysail run` reports; takes some seconds if one has just ended.

    Raises:
        UsageError: another one runs.
        Unreachable: no broker answers.
    """
    with answering(settings):
        count = len(
            admin(settings).list_topics(_topic(settings), timeout=TIMEOUT_S).topics[_topic(settings)].partitions
        )
        for report in _reporting(settings, codec, count):
            process = f", process {report.gauges['pid']:.0f} of its machine" if "pid" in report.gauges else ""
            raise UsageError(
                f"deployment {settings.prefix} at {settings.kafka.bootstrap} runs already ({report.instance}{process},"
                " reports now): stop that one first, or set another `prefix` for this one; to add a process to it:"
                " skysail run --role ROLE"
            )


def _topic(settings: Settings) -> str:
    return f"{settings.prefix}.{topics.REPORTS}"


def _reporting(settings: Settings, codec: Codec, count: int) -> Iterator[Report]:
    """Return fresh reports under names that we would use; a run that has just ended has left old ones."""
    group = f"{settings.prefix}.alone"  # never joined, never committed
    named = {"group.id": group, "group.protocol": "classic"}
    way = {"enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 50}
    consumer = Consumer({**librdkafka(settings), **named, **way})
    since_ms = int((time.time() - RECENT_S) * 1000)
    try:
        places = [TopicPartition(_topic(settings), partition, since_ms) for partition in range(count)]
        found = consumer.offsets_for_times(places, timeout=TIMEOUT_S) if places else []
        recent = [place for place in found if place.offset >= 0]
        seen = list(_read(consumer, recent, settings, codec)) if recent else []
        if seen:  # all were read, so later ones are new
            yield from _read(consumer, recent, settings, codec, seconds=RECENT_S)
    finally:
        consumer.close()


def _read(
    consumer: Consumer, places: list[TopicPartition], settings: Settings, codec: Codec, seconds: float = 0.0
) -> Iterator[Report]:
    """Return the reports from these places to the present ends; with `seconds` those that come within them."""
    if not seconds:
        consumer.assign(places)
    ends, end_s = len(places), time.monotonic() + (seconds or TIMEOUT_S)
    while time.monotonic() < end_s and (ends or seconds):
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        if (error := message.error()) is not None:
            ends -= error.code() == END
            continue
        with suppress(DecodeError):
            report = codec.decode(Report, message.value())
            name = NUMBERED.fullmatch(report.instance)
            if name and name[1].partition(".")[0] in settings.roles:
                yield report
