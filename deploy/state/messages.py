"""Reads a topic's messages without a group: from its beginning or its end, to its present end or for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from deploy.connect.clients import TIMEOUT_S, librdkafka
from deploy.errors import UsageError
from deploy.state.topics import partition_counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from deploy.config.settings import Settings

POLL_S = 0.5


def messages(settings: Settings, topic: str, *, from_beginning: bool, stops_at_end: bool) -> Iterator[Message]:
    """Yield a topic's messages, outside any group.

    Raises:
        UsageError: there is no such topic.
    """
    counts = partition_counts(settings)
    if topic not in counts:
        message = f"there is no topic {settings.prefix}.{topic}; there are: {', '.join(sorted(counts)) or 'none'}"
        raise UsageError(message)
    group = f"{settings.prefix}.tail"  # never joined, never committed
    way = {"group.id": group, "group.protocol": "classic", "enable.auto.commit": False}
    consumer = Consumer({**librdkafka(settings), **way})
    try:
        yield from _read(consumer, _places(consumer, settings, topic, counts[topic]), from_beginning, stops_at_end)
    finally:
        consumer.close()


def _places(consumer: Consumer, settings: Settings, topic: str, count: int) -> dict[int, tuple[TopicPartition, int]]:
    """Return by partition where it begins and the offset of its end."""
    places = {}
    for partition in range(count):
        place = TopicPartition(f"{settings.prefix}.{topic}", partition)
        place.offset, high = consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)
        places[partition] = (place, high)
    return places


def _read(
    consumer: Consumer, places: dict[int, tuple[TopicPartition, int]], from_beginning: bool, stops_at_end: bool
) -> Iterator[Message]:
    starts = [
        TopicPartition(place.topic, place.partition, place.offset if from_beginning else high)
        for place, high in places.values()
    ]
    ends = {
        place.partition: places[place.partition][1] for place in starts if place.offset < places[place.partition][1]
    }
    consumer.assign(starts)
    while ends or not stops_at_end:
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if offset + 1 >= ends.get(partition, 0):
            ends.pop(partition, None)
        yield message
