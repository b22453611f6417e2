"""Where a story's reader looks: over the records of a loop in virtual time, by a search that reads memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from deploy.config.settings import Settings
from deploy.state import story as reading
from deploy.state.story import StoryReader, StoryWish
from schemas import topics
from schemas.ids import query_id
from streams.operators.contract import Span
from streams.runtime.kafka.log_search import SearchResult
from streams.runtime.ports import Bounds
from tests.loops import CODEC, Loop, Slow, digits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from streams.operators.contract import Record
    from streams.runtime.kafka.log_search import KafkaSearch
    from streams.runtime.ports import TopicPartition
    from streams.story.values import Story

MINUTE_US = 60_000_000


@dataclass
class MemorySearch:
    """Searches a loop's logs as `KafkaSearch` does Kafka's.

    Attributes:
        read: what was looked through, by topic: how many records.
    """

    loop: Loop
    read: dict[str, int] = field(default_factory=dict)

    def records(self, place: TopicPartition) -> list[Record]:
        """Return a partition's log."""
        return [record for record in self.loop.driver.read(place[0]) if record.partition == place[1]]

    async def bounds(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return where logs begin and end."""
        return {place: Bounds(0, len(self.records(place))) for place in places}

    async def spans(self, windows: Mapping[TopicPartition, tuple[int, int]]) -> list[Span]:
        """Return offsets by times."""
        return [Span(*place, *(self._first(place, time_us) for time_us in window)) for place, window in windows.items()]

    def _first(self, place: TopicPartition, time_us: int) -> int:
        log = self.records(place)
        return next((one.offset for one in log if one.timestamp_us // 1000 >= time_us // 1000), len(log))

    async def find(
        self,
        spans: Iterable[Span],
        needles: Sequence[bytes],
        most_bytes: int,
        enough: Callable[[Record], bool] | None = None,
    ) -> SearchResult:
        """Search offsets."""
        found: list[Record] = []
        for span in spans:
            for record in self.records(span[:2])[span.begin : span.end]:
                self.read[span.topic] = self.read.get(span.topic, 0) + 1
                if any(needle in (record.value or b"") + b"\n" + (record.key or b"") for needle in needles):
                    found.append(record)
                    if enough is not None and enough(record):
                        return SearchResult(tuple(found), 0, 0, is_all=False)
        assert most_bytes
        return SearchResult(tuple(found), 0, 0, is_all=True)

    async def find_newest(
        self,
        places: Collection[TopicPartition],
        needles: Sequence[bytes],
        most_bytes: int,
        enough: Callable[[Sequence[Record]], bool],
        told: Callable[[SearchResult], None],
    ) -> SearchResult:
        """Search everything."""
        found = await self.find([Span(*at, 0, len(self.records(at))) for at in places], needles, most_bytes)
        told(found)
        enough(found.records)
        return found


def read(search: MemorySearch, wish: StoryWish) -> Story:
    """Return a story as it is read."""
    loop = search.loop
    names = [topics.QUERIES, topics.PREDICTIONS, topics.MODEL_PREDICTIONS, topics.SHADOWS, topics.FEEDBACK]
    names += [topics.OBSERVATIONS, topics.dead_letters(topics.QUERIES), topics.dead_letters(topics.FEEDBACK)]
    counts = dict.fromkeys([*names, *map(topics.model_queries, loop.models)], 1)
    settings = Settings.model_validate({"joiner": {"window_s": 60, "early_s": 5}})
    reader = StoryReader(settings, CODEC, wish, cast("KafkaSearch", search), counts, lambda _: None)
    return asyncio.run(reader.read())


def busy(queries: int, **more: Any) -> tuple[MemorySearch, list[str]]:
    """Return a loop that has answered queries a minute apart, and been told the truth, with their ids."""
    loop, ids = Loop({"good": lambda _: 7, "bad": lambda _: Slow(3, 5_000)}, digits(**more), has_workers=True), []
    for number in range(queries):
        ids.append(loop.query(query_id(loop.driver.now_us, number)))
        loop.driver.run(1.0)
        loop.feedback(ids[-1], label=7)
        loop.driver.run(59.0)
    return MemorySearch(loop), ids


def test_by_an_id_that_says_when_only_what_lies_around_it_is_read() -> None:
    """All of the story is found; of each topic but the state's log hardly more than its own records is read."""
    search, ids = busy(30)
    found = read(search, StoryWish(ids[20]))
    whole = (found.queries, found.answers, found.legs, found.feedback, found.observations)
    assert [len(part) for part in whole] == [1, 1, 1, 1, 1]
    assert found.notes == ()
    assert found.change is not None
    assert found.change.folded == 21
    assert found.legs[0].batch is not None
    del search.read[topics.OBSERVATIONS]
    assert max(search.read.values()) <= 4


def test_an_id_of_a_client_s_own_is_searched_or_found_by_a_time() -> None:
    """The same story, by either way; with a time no more is read than around it."""
    search, _ = busy(5)
    search.loop.query("order-17")
    search.loop.driver.run(1.0)
    asked_us = search.loop.driver.now_us
    for _ in range(20):
        search.loop.query()
        search.loop.driver.run(60.0)
    far = read(search, StoryWish("order-17"))
    search.read.clear()
    near = read(search, StoryWish("order-17", at_us=asked_us - 4 * MINUTE_US))
    assert near == far
    assert len(near.answers) == len(near.legs) == 1
    assert search.read[topics.QUERIES] <= 2


def test_where_nothing_was_found_is_said_and_what_to_type_next() -> None:
    """The topics, the times, and `--at`."""
    search, ids = busy(2)
    absent = read(search, StoryWish(query_id(search.loop.driver.now_us, 99)))
    assert absent.is_empty
    said = "; ".join(absent.notes)
    assert "predictions" in said
    assert "queries" in said
    assert "2023-11-14" in said
    assert "--at TIME" in said
    assert "id whole" in "; ".join(read(search, StoryWish("nobody")).notes)
    assert not read(search, StoryWish(ids[0])).is_empty


def test_a_query_without_an_answer_is_found_by_its_own_record() -> None:
    """Its model hangs, and its time is not over; also by an id that says no time."""
    loop = Loop({"good": lambda _: None, "bad": lambda _: None}, digits(slo_ms=1_000.0))
    names = [loop.query("order-17"), loop.query(query_id(loop.driver.now_us, 1))]
    loop.driver.run(0.1)
    for name in names:
        found = read(MemorySearch(loop), StoryWish(name))
        assert ([one.said.query_id for one in found.queries], found.answers, len(found.legs)) == ([name], (), 1)


def test_late_feedback_is_told_from_its_dead_letter() -> None:
    """An hour later: nothing is learnt from it."""
    search, ids = busy(1)
    name = search.loop.query(query_id(search.loop.driver.now_us, 7))
    search.loop.driver.run(3_600.0)
    search.loop.feedback(name, label=7)
    search.loop.driver.run(100.0)
    found = read(search, StoryWish(name))
    assert (len(found.answers), found.observations) == (1, ())
    assert [one.said.topic for one in found.dead] == [topics.FEEDBACK]
    assert read(search, StoryWish(ids[0])).dead == ()


def test_a_long_log_is_folded_only_when_one_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note says how many there are and which option folds them; some offsets at a time it comes to the same."""
    search, ids = busy(12)
    short = read(search, StoryWish(ids[-1]))
    monkeypatch.setattr(reading, "MOST_READ", 5)
    monkeypatch.setattr(reading, "FOLDED_AT_ONCE", 5)
    bounded, whole = read(search, StoryWish(ids[-1])), read(search, StoryWish(ids[-1], folds_all=True))
    assert bounded.change is None
    assert any("`--fold`" in note and "11 records" in note for note in bounded.notes)
    assert whole == short
    assert whole.change is not None


@pytest.mark.parametrize("context", [None, "ann"])
def test_a_context_s_query_is_found_with_and_without_its_context(context: str | None) -> None:
    """Its own state's log alone is folded, whoever else has learnt meanwhile."""
    search, _ = busy(3, per_context=True)
    loop = search.loop
    ids = {}
    for name in ("bob", "ann", "carl"):
        ids[name] = asked = loop.query(query_id(loop.driver.now_us, 1), context=name)
        loop.driver.run(1.0)
        loop.feedback(asked, label=7)
        loop.driver.run(1.0)
    found = read(search, StoryWish(ids["ann"], context))
    assert found.change is not None
    assert (found.change.name, found.change.folded) == ("digits/ann", 1)
