"""FastStream: a batch subscriber, `publish_batch` by partition, offsets committed after each batch."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage, KafkaPublishMessage

from load.research.peers.task import Answering, Task, Work


async def _bytes(message: KafkaMessage) -> Any:
    """Decode nothing: by itself it would try JSON on every record."""
    return message.body


def app(task: Task, work: Answering) -> FastStream:
    """Return the application; `max_records` keeps batches below `max_batch_size`, beyond which records are dropped."""
    broker = KafkaBroker(task.bootstrap, acks="all", logger=None, max_batch_size=262_144)

    @broker.subscriber(  # type: ignore[untyped-decorator]  # not installed where types are checked
        task.source,
        batch=True,
        group_id=task.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
        decoder=_bytes,
        **task.setting,
    )
    async def answer(_body: list[bytes], message: KafkaMessage) -> None:
        records = message.raw_message
        pairs = zip(records, work.answer([record.value for record in records]), strict=True)
        for partition, part in itertools.groupby(pairs, lambda pair: pair[0].partition):
            answers = [KafkaPublishMessage(value, key=record.key) for record, value in part]
            await broker.publish_batch(*answers, topic=task.sink, partition=partition)

    return FastStream(broker, logger=None)


if __name__ == "__main__":
    given = Task.from_arguments()
    asyncio.run(app(given, Work(given.model)).run())
