"""The compacted topics `applications` and `models`: publishes desired state and reads what holds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from deploy.clients import TIMEOUT_S, librdkafka
from deploy.errors import DeployError
from deploy.topics import partition_counts
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deploy.settings import Settings
    from schemas.codec import Codec

R = TypeVar("R", Application, Model)
RETRY_S = 0.1
TOPICS: dict[type[Application | Model], str] = {Application: topics.APPLICATIONS, Model: topics.MODELS}


def publish(settings: Settings, codec: Codec, records: Iterable[Application | Model]) -> None:
    """Make these the desired state; returns when the broker has them.

    Raises:
        DeployError: the broker did not take one, e.g. because the topics were never created.
    """
    failures: list[str] = []
    producer = Producer({**librdkafka(settings), "acks": "all", "message.timeout.ms": int(TIMEOUT_S * 1000)})

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for record in records:
        topic = f"{settings.prefix}.{TOPICS[type(record)]}"
        producer.produce(topic, codec.encode(record), record.name.encode(), on_delivery=delivered)
    if producer.flush(TIMEOUT_S) or failures:
        message = f"the broker did not take it ({'; '.join(failures) or 'no answer'}); run `skysail topics check`"
        raise DeployError(message)


def read(settings: Settings, codec: Codec, record: type[R]) -> dict[str, R]:
    """Return what holds, by name; records that cannot be decoded are passed over, a null value takes a name away.

    Raises:
        Unreachable: no broker answers.
    """
    topic = TOPICS[record]
    if topic not in partition_counts(settings):
        return {}
    found: dict[str, R] = {}
    for key, value in _values(settings, topic):
        if value is None:
            found.pop(key.decode("utf-8", "replace"), None)
            continue
        try:
            decoded = codec.decode(record, value)
        except DecodeError:
            continue
        found[decoded.name] = decoded
    return found


def _values(settings: Settings, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    group = f"{settings.prefix}.catalog"  # never joined, never committed: librdkafka only insists on a name
    consumer = Consumer({**librdkafka(settings), "group.id": group, "enable.auto.commit": False})
    try:
        place = TopicPartition(f"{settings.prefix}.{topic}", 0, 0)
        low, high = _ends(consumer, place)
        consumer.assign([TopicPartition(place.topic, 0, low)])
        position = low
        while position < high and (message := consumer.poll(TIMEOUT_S)) is not None and not message.error():
            position = (message.offset() or 0) + 1
            yield message.key() or b"", message.value()
    finally:
        consumer.close()


def _ends(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return a partition's first and next offset; a topic that was just created has no leader for a moment."""
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)
        except KafkaException:
            if time.monotonic() > end_s:
                raise
        time.sleep(RETRY_S)
