"""What every `ports.Consumer` does: in memory, over aiokafka's public interface, and with our own requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from load.hostile.batches import lz4_with_a_wrong_checksum
from streams.runtime.corrupt import CorruptBatch
from streams.runtime.errors import LogSetBackError
from tests.batches import TWO, AnswerColumn, batch, bomb, compressed, with_checksum
from tests.kafka import put_batch
from tests.ports import joined, play

if TYPE_CHECKING:
    from tests.ports import Memory, OnEmbedded, OnKafka, Place


def numbered(count: int, first: int = 0) -> list[AnswerColumn]:
    """Return records that tell their number."""
    return [(b"k", b"%d" % number, []) for number in range(first, first + count)]


def test_records_come_in_order_and_whole(place: Place) -> None:
    """Tombstones, missing keys, headers with and without a value, and one as large as a batch may be."""
    said: list[AnswerColumn] = [
        (b"k", b"v", [("name", b"value"), ("name", b"again"), ("none", None), ("", b"")]),
        (b"k", None, []),
        (None, b"v", []),
        (None, None, []),
        (b"", b"", [("big", bytes(500_000))]),
    ]

    async def act(place: Place) -> None:
        await place.topics({"in": 1})
        await place.write("in", 0, said)
        member = await joined(place)
        await member.read_count(5)
        assert [(r.key, r.value, [*r.headers]) for r in member.records] == said
        assert [r[:4] for r in member.records] == [("in", 0, n, (1_000 + n) * 1_000) for n in range(5)]
        await member.consumer.stop(3)

    play(place, act)


def test_the_next_member_is_told_what_was_committed(place: Place) -> None:
    """It begins there, unless it says otherwise; without a commit it begins with the oldest record."""

    async def act(place: Place) -> None:
        await place.topics({"in": 2})
        for partition in range(2):
            await place.write("in", partition, numbered(10))
        first = await joined(place)
        assert first.committed == {("in", 0): None, ("in", 1): None}
        await first.read_count(20)
        assert await first.consumer.commit({("in", 0): 4})
        await first.consumer.stop(3)
        second = await joined(place, starts={("in", 1): 8})
        assert second.committed == {("in", 0): 4, ("in", 1): None}
        await second.read_count(8)
        assert (second.offsets(0), second.offsets(1)) == ([*range(4, 10)], [8, 9])
        await second.consumer.stop(3)

    play(place, act)


def test_after_a_seek_the_records_come_again(place: Place) -> None:
    """From there on, and each once; a partition that is not ours is left alone."""

    async def act(place: Place) -> None:
        await place.topics({"in": 1})
        await place.write("in", 0, numbered(10))
        member = await joined(place)
        await member.read_count(10)
        member.consumer.seek(("in", 0), 7)
        member.consumer.seek(("in", 5), 1)
        await member.read_count(13)
        await place.write("in", 0, numbered(1, 10))
        await member.read_count(14)
        assert member.offsets() == [*range(10), 7, 8, 9, 10]
        await member.consumer.stop(3)

    play(place, act)


def test_topics_that_are_not_asked_for_stay_where_they_are(place: Place) -> None:
    """Under backpressure a role reads replies alone; nothing of its queries is lost or comes early."""

    async def act(place: Place) -> None:
        await place.topics({"in": 1, "out": 1})
        member = await joined(place, ("in", "out"))
        await place.write("in", 0, numbered(5))
        for number in range(5):
            await place.write("out", 0, numbered(1, number))
            await member.read(
                lambda count=number + 1: len(member.records) == count,  # type: ignore[misc]
                frozenset({"out"}),
            )
        assert {record.topic for record in member.records} == {"out"}
        assert await member.consumer.poll(20, frozenset()) == []
        await member.read_count(10)
        assert member.offsets() == [*range(5)]
        await member.consumer.stop(3)

    play(place, act)


@pytest.mark.parametrize("aborted", [False, True], ids=["committed", "aborted"])
def test_the_mark_of_a_transaction_is_not_waited_for(place: Place, *, aborted: bool) -> None:
    """Its records are read when they are written, its mark is none: nothing is unread behind it."""

    async def act(place: Place) -> None:
        await place.topics({"in": 1})
        await place.write("in", 0, numbered(1))
        await place.end_transaction("in", aborted=aborted)
        member = await joined(place)
        await member.read_count(2)
        await member.read(lambda: not member.consumer.vitals().lag and not member.consumer.unread())
        await place.write("in", 0, numbered(1))
        await member.read_count(3)
        assert member.offsets() == [0, 1, 3]
        await member.consumer.stop(3)

    play(place, act)


def test_records_that_were_deleted_unread_are_passed(place: Place) -> None:
    """Reading goes on with the oldest one that is there, at the start and later; none of them is lag."""

    async def act(place: Place) -> None:
        await place.topics({"in": 1})
        await place.write("in", 0, numbered(5))
        await place.retain_nothing("in")
        await place.write("in", 0, numbered(2))
        member = await joined(place, starts={("in", 0): 1})
        await member.read_count(2)
        assert member.offsets() == [5, 6]
        member.consumer.seek(("in", 0), 2)
        await member.read_count(4)
        assert member.offsets() == [5, 6, 5, 6]
        await member.read(lambda: not member.consumer.vitals().lag and not member.consumer.unread())
        await member.consumer.stop(3)

    play(place, act)


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(place: Place) -> None:
    """Its reader is told to start over there, or a rebalance does so: no offset counts as read. The other goes on."""

    async def act(place: Place) -> None:
        await place.topics({"in": 1, "out": 1})
        await place.write("in", 0, numbered(5))
        await place.write("out", 0, numbered(1))
        member = await joined(place, ("in", "out"))
        await member.read_count(6)
        assert await member.consumer.commit({("in", 0): 5, ("out", 0): 1})
        await place.make_anew("in")
        await place.write("in", 0, numbered(3, 100))
        await place.write("out", 0, numbered(1, 1))
        while True:  # a rebalance may bring a record twice
            values = list(dict.fromkeys(record.value for record in member.records if record.topic == "in"))
            if len(values) == 8 and ("out", 0, 1) in {record[:3] for record in member.records}:
                break
            try:
                await member.read_count(len(member.records) + 1)
            except LogSetBackError as told:
                for at, start in told.starts.items():
                    member.consumer.seek(at, start)
        assert values == [value for _, value, _ in (*numbered(5), *numbered(3, 100))]
        assert [*dict.fromkeys(member.offsets())] == [*range(5)]
        await member.consumer.stop(3)

    play(place, act)


def test_what_is_unread_is_told(place: Place) -> None:
    """Lag counts records; partitions that have some are named, others are not once the broker has told."""

    async def act(place: Place) -> None:
        await place.topics({"in": 2, "out": 1})
        member = await joined(place, ("in", "out"))
        await member.read(lambda: not member.consumer.unread())
        assert member.consumer.vitals().lag == 0
        await place.write("in", 1, numbered(3))
        await member.read(lambda: member.consumer.vitals().lag == 3, frozenset({"out"}))
        assert member.consumer.unread() == {("in", 1): 3}
        await member.read_count(3)
        assert (member.consumer.vitals().lag, member.consumer.unread()) == (0, {})
        await member.consumer.stop(3)

    play(place, act)


def test_members_share_the_partitions_and_each_has_one_owner(place: Place) -> None:
    """Records that come during the hand-over are read by one of them, and the first has all again at the end."""

    async def act(place: Place) -> None:
        await place.topics({"in": 4})
        first = await joined(place)
        everything = first.owned
        assert len(everything) == 4
        generation = first.consumer.generation
        joining = asyncio.create_task(joined(place))
        for partition in range(4):
            await place.write("in", partition, numbered(3))
        await first.read(lambda: joining.done() and len(first.owned) == 2)
        second = await joining
        assert second.owned | first.owned == everything
        assert not second.owned & first.owned
        assert first.consumer.generation > generation
        read = len({record[:3] for record in first.records + second.records})
        while read < 12:
            first.records += await first.consumer.poll(100)
            second.records += await second.consumer.poll(100)
            read = len({record[:3] for record in first.records + second.records})
        await second.consumer.stop(3)
        await first.read(lambda: first.owned == everything)
        await first.consumer.stop(3)

    play(place, act)


def test_a_member_that_joins_anew_goes_on_with_what_was_committed(place: Place) -> None:
    """Its partitions are taken and given again, and nothing is lost; that takes no other member."""

    async def act(place: Place) -> None:
        await place.topics({"in": 2})
        await place.write("in", 0, numbered(4))
        member = await joined(place)
        await member.read_count(4)
        assert await member.consumer.commit({("in", 0): 4, ("in", 1): 0})
        generation, everything = member.consumer.generation, member.owned
        member.consumer.rejoin()
        await member.read(lambda: member.consumer.generation > generation and member.owned == everything)
        assert member.committed == {("in", 0): 4, ("in", 1): 0}
        await place.write("in", 0, numbered(2, 4))
        await member.read_count(6)
        assert member.offsets() == [*range(6)]
        await member.consumer.stop(3)

    play(place, act)


def spoilt() -> bytes:
    """Return a batch that Java unpacks, and no other library."""
    return compressed(0, TWO, 3, lz4_with_a_wrong_checksum(batch(0, TWO)[61:]))


def test_a_batch_that_cannot_be_unpacked_is_one_corrupt_batch(kafka_place: OnKafka) -> None:
    """It stands where the batch was; what is before, behind, and in other partitions comes whole."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 2})
        await place.write("in", 0, numbered(2))
        await put_batch(place.connection, spoilt())
        await place.write("in", 0, numbered(2))
        await put_batch(place.connection, spoilt())
        await place.write("in", 1, numbered(4))
        member = await joined(place)
        await member.read_count(10)
        assert member.offsets(0) == [0, 1, 3, 4, 5, 7]
        lost = [record for record in member.records if isinstance(record, CorruptBatch)]
        assert [one.offset for one in lost] == [3, 7]
        assert all((one.value or b"")[61:] == spoilt()[61:] for one in lost)
        assert "offsets 2 to 3" in lost[0].what
        assert member.offsets(1) == [0, 1, 2, 3]
        await place.write("in", 0, numbered(1))
        await member.read_count(11)
        await member.read(lambda: not member.consumer.vitals().lag)
        await member.consumer.stop(3)

    play(kafka_place, act)


def test_a_headers_name_may_be_any_bytes(kafka_place: OnKafka) -> None:
    """As librdkafka writes them; what is no UTF-8 is escaped, and nothing is lost."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1})
        data = batch(0, [(b"k", b"v", [("name", b"1")]), (b"k", b"w", [])])
        await put_batch(place.connection, with_checksum(data.replace(b"name", b"n\xffme")))
        member = await joined(place)
        await member.read_count(2)
        assert [(r.value, r.headers) for r in member.records] == [(b"v", (("n\\xffme", b"1"),)), (b"w", ())]
        await member.consumer.stop(3)

    play(kafka_place, act)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_of_any_producer_are_read(kafka_place: OnKafka, codec: int) -> None:
    """gzip, Snappy, LZ4 and Zstandard."""

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1})
        await put_batch(place.connection, batch(0, numbered(100), codec))
        member = await joined(place)
        await member.read_count(100)
        assert member.offsets() == [*range(100)]
        await member.consumer.stop(3)

    play(kafka_place, act)


def test_a_bomb_is_a_corrupt_batch(kafka_place: OnKafka) -> None:
    """8 KB of Zstandard that would be 256 MB."""
    if kafka_place.name == "stock":
        pytest.skip("aiokafka unpacks without a bound; topics of clients are stored uncompressed")

    async def act(place: OnKafka) -> None:
        await place.topics({"in": 1})
        await put_batch(place.connection, compressed(0, [(None, bytes(64 << 20), [])], 4))
        await place.write("in", 0, numbered(1))
        member = await joined(place)
        await member.read_count(2)
        assert [type(record) is CorruptBatch for record in member.records] == [True, False]
        await member.consumer.stop(3)

    assert len(bomb(4)) < 100_000
    play(kafka_place, act)


def test_a_broker_that_goes_away_is_come_back_to(away_place: Memory | OnEmbedded) -> None:
    """Polls return nothing, commits are refused and stopping is quick meanwhile; afterwards everything goes on."""

    async def act(place: Memory | OnEmbedded) -> None:
        await place.topics({"in": 1})
        await place.write("in", 0, numbered(2))
        member = await joined(place)
        await member.read_count(2)
        place.go_away()
        assert await member.consumer.commit({("in", 0): 1}) is False
        member.records += await member.consumer.poll(50)
        place.come_back()
        await place.write("in", 0, numbered(2, 2))
        await member.read(lambda: member.offsets()[-1:] == [3])
        assert sorted(set(member.offsets())) == [0, 1, 2, 3]
        place.go_away()
        before_s = asyncio.get_running_loop().time()
        await member.consumer.stop(1.0)
        assert asyncio.get_running_loop().time() - before_s < 10
        place.come_back()

    play(away_place, act)
