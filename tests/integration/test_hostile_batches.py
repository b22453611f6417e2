"""What strangers can write into a topic, on a real Apache Kafka: none of it stops a role, or holds a partition up."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError

from deploy.local.admin import admin_client
from load.harness.topics import delete
from load.hostile.batches import lz4_with_a_wrong_checksum
from streams.operators.contract import DeadLetter, Emit
from streams.runtime.kafka.admin import create
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.role.definition import Role
from streams.topology import build
from tests.batches import TWO, batch, compressed
from tests.fakes import ScriptedKernel
from tests.kafka import looping, producing, put, put_batch, take, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from deploy.local.services import Broker

ROLE = Role("echo", "echo-1", ("in",))
LIMIT = 300_000
QUERIES = build(()).topics["queries"].config()


@asynccontextmanager
async def topics(
    kafka: Broker, prefix: str, source: Mapping[str, str], dead: Mapping[str, str] | None = None
) -> AsyncIterator[KafkaConnection]:
    """Create a source with one partition, its dead letters and the reports."""
    connection = KafkaConnection(kafka.bootstrap, prefix)
    configs = {
        connection.real("in"): source,
        connection.real("in.dlq"): dead or {},
        connection.real("reports"): {},
    }
    await asyncio.to_thread(create, admin_client(kafka.bootstrap), dict.fromkeys(configs, 1), configs=configs)
    try:
        yield connection
    finally:
        await asyncio.to_thread(delete, kafka.bootstrap, prefix)


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_the_dead_letter_of_the_largest_record_fits(kafka: Broker, prefix: str, compression: str | None) -> None:
    """Whatever fills it, in a dead-letter topic that takes no more than its source: the role goes on behind it."""
    room, half = b"x" * (LIMIT - 150), b"x" * (LIMIT // 2 - 100)
    limit = {"max.message.bytes": str(LIMIT)}
    records = [
        Emit("in", 0, room, b"v"),
        Emit("in", 0, b"k", room),
        Emit("in", 0, b"k", b"v", (), (("big", room),)),
        Emit("in", 0, b"k", b"v", (), (("skysail.error.message", room),)),
        Emit("in", 0, half, b"v", (), (("big", half),)),
        Emit("in", 0, None, b"last", (), (("none", None), ("", b""))),  # type: ignore[arg-type]
    ]
    kernel = ScriptedKernel(decide=lambda record: [DeadLetter(record, "undecodable", "no query")])
    async with (
        topics(kafka, prefix, limit, limit) as connection,
        producing(connection, compression=compression) as sent,
    ):
        for record in records:
            assert await sent.send("in", 0, [record]) == 1
        async with looping(connection, kernel, ROLE) as (loop, _):
            await until(lambda: len(kernel.seen()) == len(records) and not loop._tracker.outstanding())
        letters = await take(connection, "in.dlq")
        assert len(letters) == len(records)
        assert {dict(letter.headers)["skysail.error.topic"] for letter in letters} == {b"in"}
        assert b"last" in {letter.value for letter in letters}


async def test_a_batch_that_only_java_unpacks_is_a_dead_letter(kafka: Broker, prefix: str) -> None:
    """In a topic that keeps what comes compressed: a wrong checksum that Java does not look at, and a bomb."""
    spoilt = compressed(0, TWO, 3, lz4_with_a_wrong_checksum(batch(0, TWO)[61:]))
    zeros = compressed(0, [(None, bytes(64 << 20), [])], 4)
    async with topics(kafka, prefix, {}) as connection:
        for data in (batch(0, TWO[:1]), spoilt, zeros, batch(0, TWO[1:])):
            await put_batch(connection, data)
        kernel = ScriptedKernel(decide=lambda _: [])
        async with looping(connection, kernel, ROLE):
            await until(lambda: kernel.seen() == [b"a", b"b"])
        letters = await take(connection, "in.dlq")
        causes = [
            (dict(one.headers)["skysail.error.cause"], dict(one.headers)["skysail.error.offset"]) for one in letters
        ]
        assert causes == [(b"corrupt_batch", b"2"), (b"corrupt_batch", b"3")]
        assert (letters[0].value or b"")[61:] == spoilt[61:]


async def test_a_topic_of_clients_holds_nothing_compressed(kafka: Broker, prefix: str) -> None:
    """The broker unpacks what comes: a bomb is refused, and what only Java unpacks is read like everything else."""
    spoilt = compressed(0, TWO, 3, lz4_with_a_wrong_checksum(batch(0, TWO)[61:]))
    zeros = compressed(0, [(None, bytes(64 << 20), [])], 4)
    async with topics(kafka, prefix, QUERIES) as connection:
        await put_batch(connection, spoilt)
        with pytest.raises(MessageSizeTooLargeError):
            await put_batch(connection, zeros)
        kernel = ScriptedKernel()
        kernel.decide = lambda _: []
        async with looping(connection, kernel, ROLE):
            await until(lambda: kernel.seen() == [b"a", b"b"])
        assert await take(connection, "in.dlq") == []


async def test_the_mark_of_a_transaction_is_not_waited_for(kafka: Broker, prefix: str) -> None:
    """It is the log's last offset and no record: a role that has read everything lags behind nothing."""
    async with topics(kafka, prefix, {}) as connection, producing(connection) as transport:
        await put(transport, [b"before"])
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=prefix)
        await producer.start()
        kernel = ScriptedKernel(decide=lambda _: [])
        async with looping(connection, kernel, ROLE) as (loop, _):
            async with producer.transaction():
                await producer.send_and_wait(connection.real("in"), b"within", partition=0)
            consumer = loop._ports.consumer
            await until(lambda: kernel.seen() == [b"before", b"within"])
            await until(lambda: consumer.vitals().lag == 0)
            progressed_us = consumer.vitals().progressed_us
            await until(lambda: consumer.vitals().progressed_us > progressed_us)
        await producer.stop()
