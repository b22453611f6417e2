"""Whole record batches on a real Apache Kafka: in and out of a role, without losing or doubling a record."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from streams.operators.contract import Batch
from streams.runtime.kafka.consumer import KafkaConsumer
from streams.runtime.kafka.fast.whole_batches import records_of
from streams.runtime.role.definition import Role
from tests.batches import batch, with_checksum
from tests.fakes import ScriptedKernel
from tests.integration.test_runtime_kafka import PARTITIONS, committed, topics
from tests.kafka import CLOCK, QUICK, looping, producing, put, put_batch, take, until
from tests.whole import WholeKernel

if TYPE_CHECKING:
    from deploy.local.services import Broker
    from streams.operators.contract import Effects, Operator, Record

ROLE = Role("echo", "echo-1", ("in",), at_once=64)
IN = frozenset({"in"})


async def test_a_role_that_gets_and_writes_batches_loses_nothing_and_commits_all(kafka: Broker, prefix: str) -> None:
    """Values, keys, order within partitions and commits, over a rebalance and a stop in the middle."""
    values = {p: [b"%d-%d-" % (p, n) + b"x" * 300 for n in range(2_000)] for p in range(PARTITIONS)}
    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        for partition, wanted in values.items():
            await put(transport, wanted[:1_500], partition)
        kernels = [WholeKernel(ScriptedKernel()) for _ in range(3)]
        inner = [cast("ScriptedKernel", kernel.kernel) for kernel in kernels]
        first, second, third = (cast("Operator", kernel) for kernel in kernels)
        async with looping(connection, first, ROLE, batched=IN) as (loop, _):
            await until(lambda: len(inner[0].seen()) >= 1_000)
            async with looping(connection, second, ROLE, batched=IN):
                await until(lambda: bool(inner[1].starts))
                for partition, wanted in values.items():
                    await put(transport, wanted[1_500:], partition)
            assert loop._performer.counters.total() == 0
        async with looping(connection, third, ROLE, batched=IN):
            await until(lambda: len({v for kernel in inner for v in kernel.seen()}) == 2_000 * PARTITIONS)
        out = await take(connection, "out")
        for partition, wanted in values.items():
            found = [record.value for record in out if record.partition == partition]
            assert sorted(set(found), key=found.index) == wanted
        assert {record.key for record in out} == {b"k"}
        assert await committed(connection) == dict.fromkeys(range(PARTITIONS), 2_000)
    assert sum(kernel.batches for kernel in kernels) > 0
    assert sum(kernel.finished for kernel in kernels) > 0


async def test_what_a_broker_has_of_a_topic_comes_in_batches_as_it_was_written(kafka: Broker, prefix: str) -> None:
    """All whole, compressed ones inflated; a seek brings records."""

    class Note:
        """Owns what it is given."""

        async def on_assigned(self, offsets: object) -> dict[tuple[str, int], int | None]:
            owned.set()
            return {}

        async def on_revoked(self, partitions: object) -> None:
            pass

    owned = asyncio.Event()
    async with topics(kafka, prefix) as connection:
        for compression in (0, 4, 0):
            await put_batch(connection, batch(0, [(b"k", b"1", []), (None, b"2", [])], compression))
        consumer = KafkaConsumer(connection, ["in"], "echo", CLOCK, QUICK, batched=IN)
        await consumer.start(Note())
        found: list[Record | Batch] = []
        async with asyncio.timeout(60):
            while not found or found[-1][2] < 4:
                found += await consumer.poll(100)
            assert [(type(one) is Batch, one.offset) for one in found] == [(True, 0), (True, 2), (True, 4)]
            assert [record.value for record in records_of(cast("Batch", found[1]))] == [b"1", b"2"]
            assert cast("Batch", found[-1]).end == 6
            consumer.seek(("in", 0), 1)
            found.clear()
            while not found or found[-1][2] < 5:
                found += await consumer.poll(100)
        assert [(type(one) is Batch, one.offset) for one in found] == [(False, offset) for offset in range(1, 6)]
        await consumer.stop(3)


async def test_a_record_that_breaks_a_kernel_is_found_in_its_batch(kafka: Broker, prefix: str) -> None:
    """All others have their outcome, once, and the partition goes on."""

    def decide(record: Record) -> Effects:
        if record.value == b"7":
            raise ValueError("seven")
        return ScriptedKernel().decide(record)

    async with topics(kafka, prefix) as connection, producing(connection) as transport:
        inner = ScriptedKernel(decide=decide)
        kernel = WholeKernel(inner)
        await put(transport, [b"%d" % number for number in range(20)])
        async with looping(connection, cast("Operator", kernel), ROLE, batched=IN):
            await until(lambda: b"19" in inner.seen())
            await put(transport, [b"later", b"last"])
            await until(lambda: b"last" in inner.seen())
        assert {r.value for r in await take(connection, "out")} == {
            *(b"%d" % number for number in range(20) if number != 7),
            b"later",
            b"last",
        }
        assert [record.value for record in await take(connection, "in.dlq")] == [b"7"]
        assert (await committed(connection))[0] == 22
        assert kernel.batches >= 2


async def test_a_header_that_no_client_of_ours_writes_does_not_stop_a_role(kafka: Broker, prefix: str) -> None:
    """Its name is no text; the batch is given whole, and unpacked as ever by whoever does not like it."""
    async with topics(kafka, prefix) as connection:
        data = batch(0, [(b"k", b"1", [("name", b"v")]), (b"k", b"2", [])])
        await put_batch(connection, with_checksum(data.replace(b"name", b"n\xff\xfee")))
        inner = ScriptedKernel()
        async with looping(connection, cast("Operator", WholeKernel(inner)), ROLE, batched=IN):
            await until(lambda: b"2" in inner.seen())
        assert [record.value for record in await take(connection, "out")] == [b"1", b"2"]
