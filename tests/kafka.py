"""What tests on a real Kafka share: producing, reading back, running a loop, waiting."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from streams.operators.contract import Emit, Record
from streams.runtime.clock import SystemClock
from streams.runtime.errors import BrokerUnavailableError
from streams.runtime.kafka.consumer import ConsumerSettings
from streams.runtime.kafka.fast.outlet import FastOutlet
from streams.runtime.kafka.log_reader import KafkaBroadcast
from streams.runtime.kafka.producer import KafkaTransport, ProducerSettings
from streams.runtime.process.run import kafka_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from streams.operators.contract import Operator
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.role.definition import Role
    from streams.runtime.role.loop import RoleLoop

CLOCK = SystemClock()
# Quick group membership: a member that vanishes is replaced after 3 s.
QUICK = ConsumerSettings(session_timeout_ms=3_000, heartbeat_ms=300, rebalance_timeout_ms=10_000)
# For a step; where others have the cores, Kafka takes a minute to start.
PATIENCE_S = 120.0


@asynccontextmanager
async def producing(connection: KafkaConnection, **settings: Any) -> AsyncIterator[KafkaTransport]:
    """Open a producer."""
    transport = KafkaTransport(connection, CLOCK, ProducerSettings(**settings))
    await transport.start()
    try:
        yield transport
    finally:
        await transport.stop()


async def put(transport: KafkaTransport, values: Iterable[bytes], partition: int = 0, topic: str = "in") -> None:
    """Produce values to one partition, trying again while the broker is not there."""
    emits = [Emit(topic, partition, b"k", value) for value in values]
    async with asyncio.timeout(PATIENCE_S):
        while emits:
            try:
                emits = emits[await transport.send(topic, partition, emits) :]
            except BrokerUnavailableError:
                await asyncio.sleep(0.1)


async def put_batch(connection: KafkaConnection, data: bytes, partition: int = 0, topic: str = "in") -> None:
    """Write a record batch as it is."""
    outlet = FastOutlet(connection, CLOCK, ProducerSettings())
    await outlet.start()
    try:
        await outlet.client.set_topics([connection.real(topic)])
        await outlet.send(connection.kafka_partition((topic, partition)), data)
    finally:
        await outlet.close()


async def take(connection: KafkaConnection, topic: str) -> list[Record]:
    """Return everything a topic holds."""
    reader = KafkaBroadcast(connection, [topic])
    await reader.start()
    records: list[Record] = []
    while not reader.caught_up:
        records += await reader.poll(200)
    await reader.stop(3)
    return records


@asynccontextmanager
async def looping(
    connection: KafkaConnection, kernel: Operator, role: Role, **more: Any
) -> AsyncIterator[tuple[RoleLoop, asyncio.Task[None]]]:
    """Run a loop with its own producer until the block ends."""
    async with producing(connection) as transport:
        loop = kafka_loop(role, kernel, connection, transport, CLOCK, lambda _report: b"report", settings=QUICK, **more)
        stop = asyncio.Event()
        task = asyncio.create_task(loop.run(stop))
        try:
            yield loop, task
        finally:
            stop.set()
            await task


async def until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait for something that other tasks bring about."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - the condition is the broker's doing, there is no event for it
            await asyncio.sleep(0.02)
