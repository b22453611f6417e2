"""The hand loop on aiokafka: getmany, answer the poll, send_batch (or send), commit what is acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from load.baseline.job import Done, Job
from load.baseline.work import work_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.baseline.work import Answers

_COMMIT_S = 0.5
_POLL_MS = 200


class Loop:
    """One consumer, one producer, no concurrency but what aiokafka brings.

    Args:
        job: what to read and write.
        work: what answers polls; None = as the job says.
    """

    def __init__(self, job: Job, work: Answers | None = None) -> None:
        self._job = job
        self._work = work or work_of(job)
        self._sent: deque[asyncio.Future[Any]] = deque()
        self._offsets: dict[Any, int] = {}
        self._rows = 0

    async def run(self) -> Done:
        """Answer `count` records."""
        job = self._job
        self._producer = AIOKafkaProducer(
            bootstrap_servers=job.bootstrap, acks="all", max_batch_size=262_144, linger_ms=job.linger_ms
        )
        self._consumer = AIOKafkaConsumer(
            job.source,
            bootstrap_servers=job.bootstrap,
            group_id=job.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await self._producer.start()
        await self._consumer.start()
        try:
            return await self._loop()
        finally:
            await self._consumer.stop()
            await self._producer.stop()

    async def _loop(self) -> Done:
        started = cpu_started = committed = 0.0
        while not self._job.count or self._rows < self._job.count:
            polled = await self._consumer.getmany(timeout_ms=_POLL_MS)
            if polled and not started:
                started, cpu_started, committed = time.perf_counter(), time.process_time(), time.perf_counter()
            if polled:
                await self._answer(polled)
            if time.perf_counter() - committed > _COMMIT_S:
                await self._commit()
                committed = time.perf_counter()
        await self._commit()
        return Done(self._rows, time.perf_counter() - started, time.process_time() - cpu_started)

    async def _answer(self, polled: dict[Any, list[Any]]) -> None:
        answers = self._work.answer([record.value for records in polled.values() for record in records])
        at = 0
        for place, records in polled.items():
            pairs = [(record.key, answers[at + i]) for i, record in enumerate(records)]
            at += len(records)
            await (self._send_batches if self._job.batched else self._send)(place.partition, pairs)
            self._offsets[place] = records[-1].offset + 1
        self._rows += at

    async def _send(self, partition: int, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        for key, value in pairs:
            self._sent.append(await self._producer.send(self._job.sink, value, key, partition))

    async def _send_batches(self, partition: int, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        batch = self._producer.create_batch()
        for key, value in pairs:
            if batch.append(key=key, value=value, timestamp=None) is None:
                self._sent.append(await self._producer.send_batch(batch, self._job.sink, partition=partition))
                batch = self._producer.create_batch()
                batch.append(key=key, value=value, timestamp=None)
        self._sent.append(await self._producer.send_batch(batch, self._job.sink, partition=partition))

    async def _commit(self) -> None:
        offsets, self._offsets = self._offsets, {}
        while self._sent:
            await self._sent.popleft()
        if offsets:
            await self._consumer.commit(offsets)


if __name__ == "__main__":
    asyncio.run(Loop(Job.from_arguments()).run()).say()
