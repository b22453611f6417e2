"""Reads a topic's messages without a group: from a time, its beginning or its end, to its present end or for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from deploy.connect.clients import TIMEOUT_S, librdkafka
from deploy.errors import UsageError
from deploy.state.catalog import END
from deploy.state.topics import partition_counts
from schemas import topics
from streams.operators.contract import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from deploy.config.settings import Settings

POLL_S = 0.5


def messages(
    settings: Settings, topic: str, *, since_us: int | None = None, stops_at_end: bool = False, most: int = 0
) -> Iterator[Message]:
    """Yield a topic's messages, outside any group.

    Args:
        settings: of the deployment.
        topic: its name without the prefix; or of others, by `topics.outside`.
        since_us: begin with the first of each partition that is as late; 0 = with the oldest, None = with the next.
        stops_at_end: whether to stop at the present end instead of waiting for more.
        most: leave the oldest out, so that there are about as many to its present end; 0 = all.

    Raises:
        UsageError: there is no such topic.
        KafkaException: no broker answers.
    """
    counts = partition_counts(settings, outside=topic.startswith(topics.OUTSIDE))
    real = topic.removeprefix(topics.OUTSIDE) if topic.startswith(topics.OUTSIDE) else f"{settings.prefix}.{topic}"
    if topic not in counts:
        raise UsageError(f"there is no topic {real}; there are: {', '.join(sorted(counts)) or 'none'}")
    group = f"{settings.prefix}.tail"  # never joined, never committed
    way = {"group.id": group, "group.protocol": "classic", "enable.auto.commit": False}
    way |= {"enable.partition.eof": True}
    consumer = Consumer({**librdkafka(settings), **way})
    try:
        bounds = _bounds(consumer, real, counts[topic])
        starts = _starts(consumer, bounds, since_us)
        for start, (_, high) in zip(starts, bounds.values(), strict=True):
            start.offset = max(start.offset, high - most // len(starts)) if most else start.offset
        yield from _read(consumer, starts, bounds, stops_at_end=stops_at_end)
    finally:
        consumer.close()


def records(settings: Settings, topic: str, since_us: int = 0, most: int = 0) -> Iterator[Record]:
    """Yield a topic's records that are as late as `since_us`, up to its present end; arguments as of `messages`."""
    for message in messages(settings, topic, since_us=since_us, stops_at_end=True, most=most):
        partition, offset = _place(message)
        key, value = message.key(), message.value()
        assert not isinstance(key, str)
        assert not isinstance(value, str)
        headers: list[tuple[str, bytes]] = list(message.headers() or [])  # type: ignore[arg-type]  # read, they are bytes
        yield Record(topic, partition, offset, message.timestamp()[1] * 1_000, key, value, tuple(headers))


def _bounds(consumer: Consumer, name: str, count: int) -> dict[TopicPartition, tuple[int, int]]:
    """Return by partition the offset of its oldest message, and the one after its newest."""
    places = [TopicPartition(name, number) for number in range(count)]
    return {place: consumer.get_watermark_offsets(place, timeout=TIMEOUT_S) for place in places}


def _starts(
    consumer: Consumer, bounds: dict[TopicPartition, tuple[int, int]], since_us: int | None
) -> list[TopicPartition]:
    """Return where to begin in each partition; at its end if nothing is as late."""
    if since_us:
        asked = [TopicPartition(place.topic, place.partition, -(-since_us // 1000)) for place in bounds]
        found = {place.partition: place.offset for place in consumer.offsets_for_times(asked, timeout=TIMEOUT_S)}
    else:
        found = {place.partition: high if since_us is None else low for place, (low, high) in bounds.items()}
    return [
        TopicPartition(place.topic, place.partition, high if found[place.partition] < 0 else found[place.partition])
        for place, (_, high) in bounds.items()
    ]


def _read(
    consumer: Consumer,
    starts: list[TopicPartition],
    bounds: dict[TopicPartition, tuple[int, int]],
    *,
    stops_at_end: bool,
) -> Iterator[Message]:
    ends = {place.partition: high for place, (_, high) in bounds.items()}
    left = {place.partition for place in starts if place.offset < ends[place.partition]}
    consumer.assign(starts)
    while left or not stops_at_end:
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        partition, offset = _place(message)
        error = message.error()
        if error is not None and error.code() != END:
            raise KafkaException(error)
        if error is not None or offset + 1 >= ends[partition]:
            left.discard(partition)  # its last records may be no messages, but markers of transactions
        if error is None:
            yield message


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset
