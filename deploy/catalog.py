"""The compacted topics `applications` and `models`: publishes desired state and reads what holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from deploy.clients import TIMEOUT_S, librdkafka
from deploy.errors import DeployError
from deploy.topics import partition_counts
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confluent_kafka import Message

    from deploy.settings import Settings
    from schemas.codec import Codec

R = TypeVar("R", Application, Model)
END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own codes begin with an underscore
FETCH_WAIT_MS = 50  # a broker inside this process tells the end of a partition no sooner
TOPICS: dict[type[Application | Model], str] = {Application: topics.APPLICATIONS, Model: topics.MODELS}


def publish(settings: Settings, codec: Codec, records: Iterable[Application | Model]) -> None:
    """Make these the desired state; returns when the broker has them.

    Raises:
        DeployError: the broker did not take one, e.g. because the topics were never created.
    """
    _write(settings, [(TOPICS[type(record)], record.name, codec.encode(record)) for record in records])


def remove(settings: Settings, record: type[Application | Model], name: str) -> None:
    """Take a name away: a null value on the compacted topic, which every role takes as such.

    Raises:
        DeployError: the broker did not take it.
    """
    _write(settings, [(TOPICS[record], name, None)])


def _write(settings: Settings, values: Iterable[tuple[str, str, bytes | None]]) -> None:
    failures: list[str] = []
    producer = Producer({**librdkafka(settings), "acks": "all", "message.timeout.ms": int(TIMEOUT_S * 1000)})

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for topic, name, value in values:
        producer.produce(f"{settings.prefix}.{topic}", value, name.encode(), on_delivery=delivered)
    if producer.flush(TIMEOUT_S) or failures:
        message = f"the broker did not take it ({'; '.join(failures) or 'no answer'}); run `skysail topics check`"
        raise DeployError(message)


def read(settings: Settings, codec: Codec, record: type[R]) -> dict[str, R]:
    """Return what holds, by name; records that cannot be decoded are passed over, a null value takes a name away.

    Raises:
        Unreachable: no broker answers.
        DeployError: the broker stopped answering.
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
    """Return keys and values of a topic of one partition, up to its present end.

    Raises:
        DeployError: the broker stopped answering, so that something may be missing.
    """
    group = f"{settings.prefix}.catalog"  # never joined, never committed: librdkafka only insists on a name
    way = {"auto.offset.reset": "earliest", "enable.partition.eof": True, "fetch.wait.max.ms": FETCH_WAIT_MS}
    consumer = Consumer({**librdkafka(settings), "group.id": group, "enable.auto.commit": False, **way})
    try:
        # Offset 0, not OFFSET_BEGINNING: to look that up takes librdkafka half a second (measured).
        consumer.assign([TopicPartition(f"{settings.prefix}.{topic}", 0, 0)])
        while (message := _polled(consumer, topic)).error() is None:
            yield message.key() or b"", message.value()
    finally:
        consumer.close()


def _polled(consumer: Consumer, topic: str) -> Message:
    """Return the next record, or the news that there is none."""
    message = consumer.poll(TIMEOUT_S)
    error = message.error() if message is not None else KafkaError(KafkaError.REQUEST_TIMED_OUT)
    if message is None or (error is not None and error.code() != END):
        raise DeployError(f"topic {topic} could not be read to its end: {error}; run `skysail topics check`")
    return message
