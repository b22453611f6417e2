"""Records are found by bytes in them, between times or from the newest on, in both ways of reading."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from streams.operators.contract import Emit, Span
from streams.runtime.kafka import log_search
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.log_search import KafkaSearch
from tests.kafka import producing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.local.services import Broker
    from streams.operators.contract import Record
    from streams.runtime.kafka.log_search import SearchResult

COUNT = 1_000  # records of each partition, in batches of 1 to 40
WHOLE = 1 << 40


@pytest.mark.parametrize("is_fast", [True, False], ids=["fast", "stock"])
async def test_what_holds_the_bytes_is_found_and_nothing_else(
    kafka: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch, *, is_fast: bool
) -> None:
    """All of it forward; some offsets of it; the newest first, until it is enough; within a bound of bytes."""
    connection = replace(KafkaConnection(kafka.bootstrap, prefix), fast=is_fast)
    kafka.create_topics({connection.real("in"): 2})
    values = {0: [f"id-{number} {'x' * 50}".encode() for number in range(COUNT)], 1: [b"other"] * COUNT}
    values[1][700] = b"here, too: id-7 "
    began_ms = await written(connection, values)
    search = KafkaSearch(connection, {"in": 2})
    await search.start()
    try:
        places = [("in", 0), ("in", 1)]
        assert {place: tuple(bound) for place, bound in (await search.bounds(places)).items()} == dict.fromkeys(
            places, (0, COUNT)
        )
        everything = [Span("in", number, 0, COUNT) for number in (0, 1)]
        found = await search.find(everything, (b"id-7 ",), WHOLE)
        assert at(found.records) == [(0, 7), (1, 700)]
        assert found.is_all
        # Back from offset 7: what was read before is read again.
        assert at((await search.find([Span("in", 0, 3, 8)], (b"id-7 ", b"id-5 "), WHOLE)).records) == [(0, 5), (0, 7)]
        assert at((await search.find([Span("in", 0, 3, 7)], (b"id-7 ",), WHOLE)).records) == []
        first = await search.find(everything[:1], (b"id-",), WHOLE, lambda record: record.offset == 3)
        assert (3 in [record.offset for record in first.records], first.is_all) == (True, False)
        windows = dict.fromkeys(places, (began_ms * 1000, (began_ms + 3_600_000) * 1000))
        assert sorted(await search.spans(windows)) == everything
        before = dict.fromkeys(places, (0, (began_ms - 60_000) * 1000))
        assert [span.begin == span.end for span in await search.spans(before)] == [True, True]
        heard: list[SearchResult] = []
        judged: list[int] = []

        def enough(records: Sequence[Record]) -> bool:
            judged.append(len(records))
            return len(records) > 1

        newest = await search.find_newest(places, (b"id-7 ",), WHOLE, enough, heard.append)
        assert judged == [2]
        assert at(newest.records) == [(0, 7), (1, 700)]
        assert heard[-1].bytes == newest.bytes > 0
        monkeypatch.setattr(log_search, "_STEP", 100)  # offsets at once: 200, 400 and so on follow
        judged.clear()
        parts = await search.find_newest(places, (b"id-7 ", b"id-950 "), WHOLE, enough, heard.append)
        assert (at(parts.records), judged, parts.is_all) == ([(0, 950), (1, 700)], [1, 2], False)
        bounded = await search.find_newest(places, (b"absent",), 1, enough, heard.append)
        assert (bounded.records, bounded.is_all) == ((), False)
    finally:
        await search.stop()


async def written(connection: KafkaConnection, values: dict[int, list[bytes]]) -> int:
    """Write values to their partitions in batches of any size; returns when that began, in ms."""
    draws, began_ms = random.Random(1), time.time_ns() // 1_000_000
    async with producing(connection) as transport:
        for partition, those in values.items():
            left = [Emit("in", partition, b"k", value) for value in those]
            while left:
                some = left[: draws.randint(1, 40)]
                left = left[len(some) :]
                assert not some[await transport.send("in", partition, some) :]
    return began_ms


def at(records: Sequence[Record]) -> list[tuple[int, int]]:
    """Return where records stand."""
    return sorted((record.partition, record.offset) for record in records)
