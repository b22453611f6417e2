"""Kafka for servers that have none: one poll at a time to the server, the answers to the sink, a commit now and then.

At least once: committed queries have been answered. A poll holds at most as many queries as may be in flight. They are
asked concurrently, each by itself or in groups, as the server's setting says.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from load.research.peers.task import Task, Work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import numpy as np
    from aiokafka import ConsumerRecord
    from numpy.typing import NDArray

    Ask = Callable[[NDArray[np.generic]], Awaitable[Sequence[int]]]

_POLL_MS = 200
_COMMIT_S = 0.5
_IN_FLIGHT = 512


async def bridge(task: Task, ask: Ask, group_rows: int) -> None:
    """Run until terminated.

    Args:
        task: what to read and write.
        ask: returns the labels of rows (n, features), n at most `group_rows`.
        group_rows: how many queries go into one request.
    """
    work = Work(task.model)
    producer = AIOKafkaProducer(bootstrap_servers=task.bootstrap, acks="all", max_batch_size=262_144)
    consumer = AIOKafkaConsumer(
        task.source,
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await producer.start()
    await consumer.start()
    committed_s = time.monotonic()
    while True:
        polled = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_IN_FLIGHT)
        if records := list(itertools.chain(*polled.values())):
            await _pass_on(records, work, ask, group_rows, producer, task.sink)
        if not records or time.monotonic() - committed_s >= _COMMIT_S:
            await consumer.commit()
            committed_s = time.monotonic()


async def _pass_on(
    records: Sequence[ConsumerRecord], work: Work, ask: Ask, group_rows: int, producer: AIOKafkaProducer, sink: str
) -> None:
    queries = work.decode(record.value for record in records)
    rows = work.rows(queries)
    groups = [rows[i : i + group_rows] for i in range(0, len(rows), group_rows)]
    labels = itertools.chain(*await asyncio.gather(*map(ask, groups)))
    answers = work.encode(queries, [int(label) for label in labels])
    sends = [
        await producer.send(sink, answer, record.key, record.partition)
        for record, answer in zip(records, answers, strict=True)
    ]
    await asyncio.gather(*sends)
