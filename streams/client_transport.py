"""A client's connection to Kafka: produces in batches by partition, reads predictions from their end.

`LinkedTransport` does it over any two links; `KafkaClientTransport` has Kafka's.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Protocol

from schemas import topics
from streams.operators.contract import Emit, Position
from streams.runtime.clock import SystemClock
from streams.runtime.kafka.log_reader import KafkaTail
from streams.runtime.kafka.producer import KafkaTransport
from streams.runtime.ports import Transport
from streams.runtime.role.accumulator import Accumulator, AccumulatorEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streams.operators.contract import Record, Span
    from streams.runtime.errors import RecordRefusedError
    from streams.runtime.kafka.connection import KafkaConnection

_log = logging.getLogger(__name__)

_POLL_MS = 500
_FLUSH_S = 5.0


class _Abandoned(Exception):  # noqa: N818 - ends the lanes' task group, never seen outside
    """Nobody waits for what is still pending."""


class ProducerLink(Transport, Protocol):
    """What records are written by."""

    async def start(self) -> None:
        """Connect."""
        ...

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return how many partitions these topics have, as far as that is known."""
        ...

    async def stop(self) -> None:
        """Disconnect."""
        ...


class TailLink(Protocol):
    """What records are read by, from where topics end when it starts."""

    async def start(self) -> dict[str, int]:
        """Connect; returns the number of partitions of each topic."""
        ...

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what has arrived."""
        ...

    async def stop(self) -> None:
        """Disconnect."""
        ...


class LinkedTransport:
    """Implements `streams.client.ClientTransport` on what writes and what reads.

    Args:
        producer: makes what writes.
        tail: makes what reads topics.
    """

    def __init__(self, producer: Callable[[], ProducerLink], tail: Callable[[Sequence[str]], TailLink]) -> None:
        self._make_producer = producer
        self._make_tail = tail
        self._stack = AsyncExitStack()
        self._tasks: asyncio.TaskGroup  # one for each connection
        self._tail: TailLink | None = None
        self._accumulator: Accumulator | None = None
        self._serial = itertools.count()
        # Batches that are not acknowledged yet: how many of their records are missing, and who waits.
        self._unacknowledged: dict[int, tuple[int, asyncio.Future[None]]] = {}

    async def start(self, follow: Sequence[str]) -> Mapping[str, int]:
        """Connect; returns the partition counts of the followed topics, and of those that are written."""
        async with AsyncExitStack() as stack:
            producer = self._make_producer()
            await producer.start()
            stack.push_async_callback(producer.stop)
            tail = self._tail = self._make_tail(follow)
            counts = await tail.start()
            counts |= await producer.partitions((topics.QUERIES, topics.FEEDBACK))
            stack.push_async_callback(tail.stop)
            self._tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self._accumulator = Accumulator(producer, AccumulatorEvents(self._acknowledged, self._refused), self._tasks)
            self._stack = stack.pop_all()
        return counts

    async def send(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes]],
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        """Produce (key, value) pairs in order, all with these headers; returns when all are acknowledged.

        Raises:
            RecordRefusedError: the topic will never take one of them, e.g. a `RecordTooLargeError`.
        """
        assert self._accumulator is not None
        serial = next(self._serial)
        done = asyncio.get_running_loop().create_future()
        self._unacknowledged[serial] = (len(records), done)
        completes = (Position(topic, partition, serial),)
        self._accumulator.send([Emit(topic, partition, key, value, completes, headers) for key, value in records])
        try:
            await done
        finally:
            self._unacknowledged.pop(serial, None)

    async def read(self) -> Sequence[Record]:
        """Return what has arrived, waiting for at least one record."""
        assert self._tail is not None
        while not (records := await self._tail.poll(_POLL_MS)):
            pass
        return records

    async def close(self) -> None:
        """Send what is pending, as far as that takes seconds, and disconnect."""
        accumulator, self._accumulator = self._accumulator, None
        if accumulator is not None and not await accumulator.flush(_FLUSH_S):
            accumulator.abandon()
            self._tasks.create_task(_abandon())
        try:
            await self._stack.aclose()
        except* _Abandoned:
            _log.warning("closed with %d batches not acknowledged", len(self._unacknowledged))

    def _acknowledged(self, positions: Sequence[Position], _: Sequence[Span]) -> None:
        for position in positions:
            waiting = self._unacknowledged.get(position.offset)
            if waiting is None:
                continue
            missing, done = waiting
            self._unacknowledged[position.offset] = (missing - 1, done)
            if missing == 1 and not done.done():
                done.set_result(None)

    def _refused(self, emit: Emit, fault: RecordRefusedError) -> None:
        waiting = self._unacknowledged.get(emit.completes[0].offset)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_exception(type(fault)(f"{emit.topic} does not take {len(emit.value)} bytes: {fault}"))


class KafkaClientTransport(LinkedTransport):
    """The one on the runtime's Kafka adapter.

    Args:
        connection: where Kafka is.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        # What aiokafka logs about a broker that is gone, an application gets as an exception.
        logging.getLogger("aiokafka").addHandler(logging.NullHandler())
        super().__init__(lambda: KafkaTransport(connection, SystemClock()), partial(KafkaTail, connection))


async def _abandon() -> None:
    raise _Abandoned
