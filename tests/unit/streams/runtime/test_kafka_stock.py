"""What a source on aiokafka's `getmany` does where a rebalance comes while it waits: it forgets, and goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.structs import ConsumerRecord, TopicPartition

from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.merging import StrainGauge
from streams.runtime.kafka.stock import StockSource
from streams.runtime.kafka.transport_ports import FetchSettings
from tests.virtual import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

ONE, TWO = TopicPartition("p.t", 0), TopicPartition("p.t", 1)


def record(place: TopicPartition, offset: int) -> ConsumerRecord:
    """Make a record as aiokafka hands it out."""
    return ConsumerRecord(place.topic, place.partition, offset, 1, 0, None, b"value", None, -1, 5, ())


class Consumer:
    """A consumer of two partitions; each call that waits is a moment at which something may happen."""

    def __init__(self) -> None:
        self.owned = {ONE, TWO}
        self.is_corrupt = True
        self.alone: dict[TopicPartition, Exception | list[ConsumerRecord]] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.passed = 7

    def assignment(self) -> set[TopicPartition]:
        """Return what the group has given."""
        return self.owned

    def highwater(self, place: TopicPartition) -> int:
        """Return the end of the log."""
        return 9

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go there."""

    async def position(self, place: TopicPartition) -> int:
        """Return what is read next."""
        self.meanwhile()
        return self.passed

    async def getmany(self, *places: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Raise where all are asked for; return, or raise, what is said of one."""
        if len(places) != 1:
            if self.is_corrupt:
                raise CorruptRecordException("what nobody can unpack")
            return {}
        self.meanwhile()
        said = self.alone.get(places[0], [])
        if isinstance(said, Exception):
            raise said
        return {places[0]: said} if said else {}


def reading(consumer: Consumer) -> StockSource:
    """Make a source that reads both partitions from offset 3 on, on an event loop that is always at work."""
    names = {"p.t": "t"}
    now_s = asyncio.get_running_loop().time
    busy = StrainGauge(now_s, now_s)
    connection, settings = KafkaConnection("nowhere:9092", "p"), FetchSettings(merge_ms=3)
    source = StockSource(cast("Any", consumer), names, connection, settings, gauge=busy)
    source.own([ONE, TWO])
    for place in (ONE, TWO):
        source.seek(place, 3)
    return source


@pytest.mark.parametrize("said", [[record(ONE, 3)], [], CorruptRecordException("what nobody can unpack")])
@in_virtual_time
async def test_partitions_that_are_revoked_while_they_are_read_one_by_one_bring_nothing(said: Any) -> None:
    """Nor is anything raised, or their positions kept."""
    consumer = Consumer()
    source = reading(consumer)
    consumer.alone = {ONE: said}
    consumer.meanwhile = lambda: source.own([])
    assert await source.poll([], 100) == {}
    assert (source.position(ONE), source.position(TWO)) == (None, None)


@in_virtual_time
async def test_what_was_read_of_a_partition_that_is_revoked_afterwards_is_dropped() -> None:
    """The other one's records are handed out."""
    consumer = Consumer()
    source = reading(consumer)
    consumer.alone = {ONE: [record(ONE, 3)], TWO: [record(TWO, 3)]}
    owned = iter([[ONE, TWO], [TWO]])
    consumer.meanwhile = lambda: source.own(next(owned))
    assert [*await source.poll([], 100)] == [TWO]
    assert (source.position(ONE), source.position(TWO)) == (None, 4)


@in_virtual_time
async def test_a_fetch_of_our_own_that_a_rebalance_overtakes_brings_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition may begin elsewhere by then."""
    consumer = Consumer()
    source = reading(consumer)
    consumer.alone = {ONE: CorruptRecordException("what nobody can unpack")}

    async def fetched(*_: object) -> bytes:
        source.own([])
        source.own([ONE])
        source.seek(ONE, 5)
        return b""

    async def nothing(*_: object) -> None: ...

    for name in ("bootstrap", "set_topics", "close"):
        monkeypatch.setattr(f"streams.runtime.kafka.stock.AIOKafkaClient.{name}", nothing)
    monkeypatch.setattr(source, "_fetched", fetched)
    assert await source.poll([ONE], 100) == {}
    assert source.position(ONE) == 5


@pytest.mark.parametrize(("count", "waited_ms"), [(40, 0), (120, 2), (1_000, 3)])
@in_virtual_time
async def test_polls_let_records_gather_while_many_come(count: int, waited_ms: int) -> None:
    """So many every 50 ms; a poll after one that brought nothing returns what comes at once."""
    consumer, now_s = Consumer(), asyncio.get_running_loop().time
    source = reading(consumer)
    consumer.alone = {ONE: [record(ONE, offset) for offset in range(count)]}
    consumer.passed = 9
    for _ in range(7):
        await source.poll([ONE], 100)
        await asyncio.sleep(0.05)
    consumer.alone = {}
    before_s = now_s()
    await source.poll([ONE], 100)
    assert round(1_000 * (now_s() - before_s)) == waited_ms
    before_s = now_s()
    await source.poll([ONE], 100)
    assert now_s() == before_s


@in_virtual_time
async def test_a_position_that_was_looked_up_during_a_rebalance_is_not_kept() -> None:
    """What is revoked stays forgotten."""
    consumer = Consumer()
    consumer.is_corrupt = False
    source = reading(consumer)
    consumer.meanwhile = lambda: source.own([ONE])
    await source.poll([], 100)
    assert (source.position(ONE), source.position(TWO)) == (7, None)
