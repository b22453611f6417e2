"""What every `ports.Transport` does: in memory, over aiokafka's public interface, and with our own requests."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from deploy.local.admin import admin_client
from streams.operators.contract import Emit
from streams.runtime.errors import (
    BrokerUnavailableError,
    RecordRefusedError,
    RecordTooLargeError,
    UnknownPartitionError,
)
from streams.runtime.kafka.admin import widen
from streams.runtime.kafka.fast.whole_batches import emits_of, finished
from streams.runtime.kafka.producer import KafkaTransport
from tests.kafka import CLOCK
from tests.ports import SENDING, OnEmbedded, joined, play

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import EmitBatch, Record
    from streams.runtime.ports import Transport
    from tests.ports import Memory, OnKafka, Place

PRODUCE = 0  # ApiKey
NOT_LEADER, TIMED_OUT = 6, 7


def emits(*values: bytes, topic: str = "in", key: bytes | None = b"k") -> list[Emit]:
    """Return records for partition 0."""
    return [Emit(topic, 0, key, value) for value in values]


async def send_all(transport: Transport, records: Sequence[Emit], tries: int = 1) -> None:
    """Send records as lanes do: the rest with the next batch, and again while the broker is away."""
    while records:
        try:
            records = records[await transport.send(records[0].topic, records[0].partition, records) :]
        except BrokerUnavailableError:
            tries -= 1
            if not tries:
                raise
            await asyncio.sleep(0.2)


async def read(place: Place, count: int) -> list[Record]:
    """Return what topic `in` has."""
    member = await joined(place)
    await member.read_count(count)
    await member.consumer.stop(3)
    return member.records


async def values(place: Place, count: int) -> list[bytes | None]:
    """Return the values that topic `in` has."""
    return [record.value for record in await read(place, count)]


def test_records_arrive_in_order_and_whole(place: Place) -> None:
    """Keys, missing keys, empty values and headers, in as many batches as they take."""
    records = [
        Emit("in", 0, None if n % 3 else b"%d" % n, b"%d" % n * (n % 7), (), (("n", b"%d" % n),)) for n in range(999)
    ]

    async def act(place: Place) -> None:
        await place.topics({"in": 1})
        await send_all(await place.transport(), records, 9)
        member = await joined(place)
        await member.read_count(999)
        assert [(r.key, r.value, r.headers) for r in member.records] == [(r.key, r.value, r.headers) for r in records]
        await member.consumer.stop(3)

    play(place, act)


def test_batches_of_several_lanes_all_arrive(place: Place) -> None:
    """Two roles of one process may write to the same partition in the same turn."""

    async def act(place: Place) -> None:
        await place.topics({"in": 1})
        transport = await place.transport()
        await asyncio.gather(*(send_all(transport, emits(b"%d" % n), 9) for n in range(20)))
        assert sorted(await values(place, 20), key=str) == sorted((b"%d" % n for n in range(20)), key=str)

    play(place, act)


def test_a_topic_or_partition_that_is_not_there_is_named(kafka_place: OnKafka) -> None:
    """The transport can be used for others after that."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1})
        transport = await place.transport()
        with pytest.raises(UnknownPartitionError, match="create it"):
            await transport.send("nowhere", 0, [Emit("nowhere", 0, None, b"x")])
        with pytest.raises(UnknownPartitionError, match="not 9"):
            await transport.send("in", 9, [Emit("in", 9, None, b"x")])
        await send_all(transport, emits(b"x"), 9)
        assert await values(place, 1) == [b"x"]

    play(kafka_place, act)


def test_a_partition_that_was_added_since_is_written_to(kafka_place: OnKafka) -> None:
    """The client's picture of the topic may be minutes old."""
    if isinstance(kafka_place, OnEmbedded):
        pytest.skip("the embedded broker adds no partitions")

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1})
        transport = await place.transport()
        await send_all(transport, emits(b"x"), 9)
        admin = admin_client(place.connection.bootstrap)
        await asyncio.to_thread(widen, admin, place.connection.real("in"), 2, place.connection.real("nobody"))
        await send_all(transport, [Emit("in", 1, None, b"y")], 9)
        assert sorted(await values(place, 2), key=str) == [b"x", b"y"]

    play(kafka_place, act)


def test_only_the_record_over_the_limit_is_refused(kafka_place: OnKafka) -> None:
    """The topic's own limit is lower than the producer's: its neighbours are delivered all the same."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1}, {"in": {"max.message.bytes": "10000"}})
        transport = await place.transport()
        records = emits(*(bytes(size) for size in (4_000, 4_000, 20_000, 4_000)))
        assert await transport.send("in", 0, records) == 2
        with pytest.raises(RecordTooLargeError):
            await transport.send("in", 0, records[2:])
        assert await transport.send("in", 0, records[3:]) == 1
        with pytest.raises(RecordTooLargeError, match="limit"):
            await transport.send("in", 0, emits(bytes(5_000_000)))

    play(kafka_place, act)


def test_only_the_record_that_the_topic_never_takes_is_refused(kafka_place: OnKafka) -> None:
    """A compacted topic wants keys; the records that have one are delivered."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1}, {"in": {"cleanup.policy": "compact"}})
        transport = await place.transport()
        records = [*emits(b"1", b"2"), *emits(b"3", key=None), *emits(b"4")]
        assert await transport.send("in", 0, records) == 2
        with pytest.raises(RecordRefusedError, match="InvalidRecord"):
            await transport.send("in", 0, records[2:])
        assert await transport.send("in", 0, records[3:]) == 1
        assert await values(place, 3) == [b"1", b"2", b"4"]

    play(kafka_place, act)


def test_a_broker_that_goes_away_is_come_back_to(away_place: Memory | OnEmbedded) -> None:
    """Sends fail as long as it is away, within their time; then the same transport delivers."""

    async def act(place: Any) -> None:
        await place.topics({"in": 1})
        transport = await place.transport()
        await send_all(transport, emits(b"before"), 9)
        place.go_away()
        with pytest.raises(BrokerUnavailableError):
            async with asyncio.timeout(20):
                await transport.send("in", 0, emits(b"meanwhile"))
        place.come_back()
        await send_all(transport, emits(b"after"), 50)
        found = await values(place, 2)
        assert [value for value in found if value != b"meanwhile"] == [b"before", b"after"]

    play(away_place, act)


@pytest.mark.parametrize("code", [NOT_LEADER, TIMED_OUT])
def test_what_a_leader_refuses_for_now_is_delivered_later(away_place: Memory | OnEmbedded, code: int) -> None:
    """Whether the transport tries again by itself or its caller does."""
    if away_place.name == "memory":
        pytest.skip("no codes in memory: see the test above")

    async def act(place: Any) -> None:
        await place.topics({"in": 1})
        transport = await place.transport()
        await send_all(transport, emits(b"1"), 9)
        place.embedded.cluster.push_request_errors(PRODUCE, [code, code])
        await send_all(transport, emits(b"2", b"3"), 9)
        assert await values(place, 3) == [b"1", b"2", b"3"]

    play(away_place, act)


async def send_finished(transport: Transport, batch: EmitBatch) -> bool:
    """Send a finished batch as lanes do; returns whether it was taken as it is."""
    try:
        await transport.send_batch(batch)
    except RecordRefusedError:
        await send_all(transport, emits_of(batch), 9)
        return False
    return True


def test_finished_batches_arrive_in_order_and_whole(place: Place) -> None:
    """Where a way makes its batches itself, their records do; else each has the time that its maker gave it."""
    records = [
        Emit("in", 0, None if n % 3 else b"%d" % n, b"%d" % n * (n % 7), (), (("n", b"%d" % n),)) for n in range(90)
    ]
    now_ms = CLOCK.now_us() // 1000 - 60_000

    async def act(place: Place) -> None:
        await place.topics({"in": 1})
        transport = await place.transport()
        await send_all(transport, records[:10], 9)
        taken = [await send_finished(transport, finished(records[at : at + 20], now_ms)) for at in range(10, 90, 20)]
        member = await joined(place)
        await member.read_count(90)
        assert [(r.key, r.value, r.headers) for r in member.records] == [(r.key, r.value, r.headers) for r in records]
        times_ms = [record.timestamp_us // 1000 for record in member.records[10:]]
        assert [time_ms == now_ms for time_ms in times_ms[::20]] == taken
        assert place.name == "memory" or taken == [place.name == "fast"] * 4
        await member.consumer.stop(3)

    play(place, act)


@pytest.mark.parametrize(
    ("config", "values"),
    [({"max.message.bytes": "10000"}, (b"1", bytes(20_000))), ({"cleanup.policy": "compact"}, (b"1", b"2"))],
)
def test_a_finished_batch_that_a_topic_does_not_take_is_refused_as_a_whole(
    fast_place: OnKafka, config: dict[str, str], values: tuple[bytes, ...]
) -> None:
    """For a record that is too large, or has no key: its records are sent one by one then."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1}, {"in": config})
        transport = await place.transport()
        await send_all(transport, emits(b"0"), 9)
        with pytest.raises(RecordRefusedError):
            await transport.send_batch(finished(emits(*values, key=None), CLOCK.now_us() // 1000))
        with pytest.raises(RecordRefusedError, match="at most"):
            await transport.send_batch(finished(emits(bytes(2_000_000)), CLOCK.now_us() // 1000))
        await transport.send_batch(finished(emits(b"3"), CLOCK.now_us() // 1000))
        assert [record.value for record in await read(place, 2)] == [b"0", b"3"]

    play(fast_place, act)


def test_a_finished_batch_that_is_none_is_refused(fast_place: OnKafka) -> None:
    """A broker looks at the checksum: to send the same again and again would help nobody."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1})
        transport = await place.transport()
        await send_all(transport, emits(b"0"), 9)
        batch = finished(emits(b"1"), CLOCK.now_us() // 1000)
        with pytest.raises(RecordRefusedError):
            await transport.send_batch(batch._replace(data=batch.data[:-2] + b"\1\0"))
        await transport.send_batch(batch)
        assert [record.value for record in await read(place, 2)] == [b"0", b"1"]

    play(fast_place, act)


def test_where_producers_compress_a_finished_batch_is_refused(fast_place: OnKafka) -> None:
    """Its records are compressed with others."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1})
        transport = KafkaTransport(place.connection, CLOCK, replace(SENDING, compression="zstd"))
        await transport.start()
        place.started.append(transport)
        assert not await send_finished(transport, finished(emits(b"1", b"2"), CLOCK.now_us() // 1000))
        assert [record.value for record in await read(place, 2)] == [b"1", b"2"]

    play(fast_place, act)
