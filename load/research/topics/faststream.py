"""FastStream: a batch subscriber, `publish_batch` by partition, offsets committed after each batch."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage, KafkaPublishMessage

from load.research.topics.work import TopicTask, TopicWork


async def _bytes(message: KafkaMessage) -> Any:
    """Decode nothing: the work reads JSON itself, faster."""
    return message.body


def app(task: TopicTask) -> FastStream:
    """Return the application."""
    work = TopicWork(task.model)
    broker = KafkaBroker(task.bootstrap, acks="all", logger=None, max_batch_size=262_144)

    @broker.subscriber(  # type: ignore[untyped-decorator]  # not installed where types are checked
        task.source,
        batch=True,
        max_records=2_000,
        group_id=task.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
        decoder=_bytes,
    )
    async def score(_body: list[bytes], message: KafkaMessage) -> None:
        records = message.raw_message
        pairs = zip(records, work.answer([record.value for record in records]), strict=True)
        for partition, part in itertools.groupby(pairs, lambda pair: pair[0].partition):
            scored = [KafkaPublishMessage(value, key=record.key) for record, value in part]
            await broker.publish_batch(*scored, topic=task.sink, partition=partition)

    return FastStream(broker, logger=None)


if __name__ == "__main__":
    asyncio.run(app(TopicTask.from_arguments()).run())
