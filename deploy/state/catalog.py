"""The compacted topics `applications` and `models`: publishes and reads desired state; reads `profiles`, too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from deploy.connect.clients import TIMEOUT_S, librdkafka
from deploy.errors import DeployError
from deploy.state.topics import partition_counts
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Model, Profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confluent_kafka import Message

    from deploy.config.settings import Settings
    from schemas.codec import Codec

R = TypeVar("R", Application, Model)
K = TypeVar("K", Application, Model, Profile)
END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own codes begin with an underscore
_FIRST = 0  # the partition of these topics: where somebody adds one, a key's records must not lie in two
FETCH_WAIT_MS = 50  # the embedded broker reports the end of a partition no sooner
TOPICS: dict[type[Application | Model | Profile], str] = {
    Application: topics.APPLICATIONS,
    Model: topics.MODELS,
    Profile: topics.PROFILES,
}


def publish(settings: Settings, codec: Codec, records: Iterable[Application | Model]) -> None:
    """Make these the desired state; returns when the broker has them.

    A model's record is the version that serves; earlier versions stay known. Its `shares` name the canaries and
    shadows, `standby` and `labels` the versions that are loaded besides, its `partitions` are those of the topic.
    Records of known versions have none of these, and no history of what served.

    Raises:
        DeployError: the broker refused one, e.g. because the topics were never created.
    """
    written: list[tuple[str, str, bytes | None]] = []
    for record in records:
        value = codec.encode(record)
        if isinstance(record, Model):
            written.append(_known(codec, record))
        written.append((TOPICS[type(record)], record.name, value))
    write(settings, written)


def know(settings: Settings, codec: Codec, model: Model) -> None:
    """Make a version known without serving it; it becomes the last one added.

    Raises:
        DeployError: the broker refused it.
    """
    write(settings, [_known(codec, model)])


def _known(codec: Codec, model: Model) -> tuple[str, str, bytes]:
    alone = replace(model, shares={}, partitions=topics.MODEL_PARTITIONS, labels={}, standby=(), latest=0)
    alone = replace(alone, since_us=0, served=())
    return topics.MODELS, topics.model_version(model.name, model.version), codec.encode(alone)


def serve(settings: Settings, codec: Codec, model: Model) -> None:
    """Let a known version serve, with the canaries and shadows of its `shares`; its place in the order stays.

    Raises:
        DeployError: the broker refused it.
    """
    write(settings, [(topics.MODELS, model.name, codec.encode(model))])


def aspire(settings: Settings, codec: Codec, known: Iterable[Model], serving: Iterable[Model]) -> None:
    """Make versions known, in this order, and then let known versions serve, all in one go.

    Raises:
        DeployError: the broker refused one.
    """
    last = [(topics.MODELS, model.name, codec.encode(model)) for model in serving]
    write(settings, [*(_known(codec, model) for model in known), *last])


def remove(settings: Settings, record: type[Application | Model], name: str) -> None:
    """Remove a name: write a null value to the compacted topic, which every role follows.

    Raises:
        DeployError: the broker refused it.
    """
    topic, version = TOPICS[record], topics.model_version(name, "")
    keys = {key.decode("utf-8", "replace") for key, _ in values(settings, topic)} if record is Model else ()
    write(settings, [(topic, key, None) for key in (name, *sorted(k for k in keys if k.startswith(version)))])


def write(settings: Settings, records: Iterable[tuple[str, str, bytes | None]]) -> None:
    """Write records: topic, key and value; returns when the broker has them.

    Raises:
        DeployError: the broker refused one.
    """
    write_to(settings, ((topic, _FIRST, name, value) for topic, name, value in records))


def write_to(settings: Settings, records: Iterable[tuple[str, int, str, bytes | None]]) -> None:
    """Write records to partitions: topic, partition, key and value; returns when the broker has them.

    Raises:
        DeployError: the broker refused one.
    """
    failures: list[str] = []
    producer = Producer({**librdkafka(settings), "acks": "all", "message.timeout.ms": int(TIMEOUT_S * 1000)})

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for topic, partition, name, value in records:
        producer.produce(f"{settings.prefix}.{topic}", value, name.encode(), partition, on_delivery=delivered)
    if producer.flush(TIMEOUT_S) or failures:
        message = f"the broker refused the record ({'; '.join(failures) or 'no answer'}); run `skysail topics check`"
        raise DeployError(message)


def read(settings: Settings, codec: Codec, record: type[R]) -> dict[str, R]:
    """Return the present state by name. Undecodable records are skipped; a null value removes a name.

    Raises:
        Unreachable: no broker answers.
        DeployError: the broker stopped answering.
    """
    found = _by_key(settings, codec, record)
    return {value.name: value for key, value in found.items() if topics.MODEL_VERSION not in key}


def versions(settings: Settings, codec: Codec) -> dict[str, list[Model]]:
    """Return all versions of each deployed model, in the order in which they were added.

    Raises:
        Unreachable: no broker answers.
        DeployError: the broker stopped answering.
    """
    found = _by_key(settings, codec, Model)
    known: dict[str, list[Model]] = {model.name: [] for key, model in found.items() if key == model.name}
    for key, model in found.items():
        if key == topics.model_version(model.name, model.version) and model.name in known:
            known[model.name].append(model)
    for name, listed in known.items():
        if found[name].version not in {model.version for model in listed}:
            listed.append(found[name])  # published before versions had keys of their own
    return known


def profiles(settings: Settings, codec: Codec) -> dict[str, Profile]:
    """Return what batches of models take, by model, as far as hosts have measured it.

    Raises:
        Unreachable: no broker answers.
        DeployError: the broker stopped answering.
    """
    return _by_key(settings, codec, Profile)


def _by_key(settings: Settings, codec: Codec, record: type[K]) -> dict[str, K]:
    """Return the topic's last record per key, in the order of writing."""
    topic = TOPICS[record]
    if topic not in partition_counts(settings):
        return {}
    found: dict[str, K] = {}
    for raw, value in values(settings, topic):
        key = raw.decode("utf-8", "replace")
        found.pop(key, None)
        if value is None:
            continue
        try:
            found[key] = codec.decode(record, value)
        except DecodeError:
            continue
    return found


def values(settings: Settings, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Return keys and values of a topic of one partition, up to its present end.

    Raises:
        DeployError: the broker stopped answering, so the result would be incomplete.
    """
    group = f"{settings.prefix}.catalog"  # never joined, never committed: librdkafka only insists on a name
    way = {"auto.offset.reset": "earliest", "enable.partition.eof": True, "fetch.wait.max.ms": FETCH_WAIT_MS}
    way |= {"group.id": group, "group.protocol": "classic", "enable.auto.commit": False}
    consumer = Consumer({**librdkafka(settings), **way})
    try:
        # Offset 0, not OFFSET_BEGINNING: to look that up takes librdkafka half a second (measured).
        consumer.assign([TopicPartition(f"{settings.prefix}.{topic}", 0, 0)])
        while (message := _polled(consumer, topic)).error() is None:
            yield message.key() or b"", message.value()
    finally:
        consumer.close()


def _polled(consumer: Consumer, topic: str) -> Message:
    """Return the next record, or the mark of the partition's end."""
    message = consumer.poll(TIMEOUT_S)
    error = message.error() if message is not None else KafkaError(KafkaError.REQUEST_TIMED_OUT)
    if message is None or (error is not None and error.code() != END):
        raise DeployError(f"topic {topic} could not be read to its end: {error}; run `skysail topics check`")
    return message
