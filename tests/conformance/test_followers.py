"""What every `ports.Broadcast` on Kafka does, over aiokafka's public interface and with our own requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # not in its __all__

from deploy.local.admin import admin_client
from load.hostile.batches import lz4_with_a_wrong_checksum
from streams.runtime.corrupt import CorruptBatch
from streams.runtime.kafka import private
from streams.runtime.kafka.admin import find
from streams.runtime.kafka.log_reader import KafkaBroadcast, KafkaPositions, KafkaRecent
from tests.batches import TWO, batch, compressed
from tests.kafka import put_batch
from tests.ports import OnKafka, play

if TYPE_CHECKING:
    from streams.operators.contract import Record


def led(admin: AdminClient, name: str) -> int:
    """Return how many partitions with a leader the broker tells of."""
    found = find(admin, [name])[name]
    return found.partitions - found.leaderless


async def read_until(reader: KafkaBroadcast, records: list[Record], count: int) -> None:
    """Poll until so many records were read."""
    async with asyncio.timeout(60):
        while len(records) < count:
            records += await reader.poll(100)


def test_everything_is_read_and_the_end_is_told(kafka_place: OnKafka) -> None:
    """Behind a corrupt batch and the mark of a transaction, too; later records follow."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1, "out": 2})
        await place.write("in", 0, TWO)
        await put_batch(place.connection, compressed(0, TWO, 3, lz4_with_a_wrong_checksum(batch(0, TWO)[61:])))
        await place.end_transaction("in", aborted=False)
        reader = KafkaBroadcast(place.connection, ["in", "out"])
        await reader.start()
        records: list[Record] = []
        async with asyncio.timeout(60):
            while not reader.caught_up:
                records += await reader.poll(100)
        assert [record.offset for record in records] == [0, 1, 3, 4]
        assert [type(record) is CorruptBatch for record in records] == [False, False, True, False]
        await place.write("out", 1, TWO)
        await read_until(reader, records, 6)
        await reader.stop(3)

    play(kafka_place, act)


def test_a_partition_that_is_added_is_read_from_its_beginning(kafka_place: OnKafka) -> None:
    """And nothing of the others comes again."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1})
        await place.write("in", 0, TWO)
        reader = KafkaBroadcast(place.connection, ["in"])
        await reader.start()
        records: list[Record] = []
        await read_until(reader, records, 2)
        admin, name = admin_client(place.connection.bootstrap), place.connection.real("in")
        for added in admin.create_partitions([NewPartitions(name, 2)]).values():
            await asyncio.to_thread(added.result, 10)
        async with asyncio.timeout(60):
            while await asyncio.to_thread(led, admin, name) < 2:  # noqa: ASYNC110 - the broker knows no event
                await asyncio.sleep(0.05)
        await place.write("in", 1, TWO)
        await private.client_of(reader._logs._running().consumer).force_metadata_update()
        await read_until(reader, records, 4)
        await place.write("in", 0, TWO)
        await read_until(reader, records, 6)
        assert [record[1:3] for record in records] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]
        await reader.stop(3)

    play(kafka_place, act)


def test_places_in_a_log_are_found(kafka_place: OnKafka) -> None:
    """Its end, what it ends with, and where a window of time begins: records of `TWO` are a millisecond apart."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 2})
        await place.write("in", 0, TWO)
        positions, recent = KafkaPositions(place.connection), KafkaRecent(place.connection)
        assert await positions.ends([("in", 0), ("in", 1)]) == {("in", 0): 2, ("in", 1): 0}
        assert await positions.before({("in", 0): 2, ("in", 1): 0}, 0) == {("in", 0): 1, ("in", 1): 0}
        assert await positions.before({("in", 0): 2}, 10_000) == {("in", 0): 0}
        times_us = await positions.times({("in", 0): 1, ("in", 1): 0})
        assert times_us == {("in", 0): (await recent.last("in", 1))[0].timestamp_us}
        assert await positions.times({("in", 0): 2}) == {}
        assert [record.value for record in await recent.last("in", 1)] == [b"b"]

    play(kafka_place, act)
