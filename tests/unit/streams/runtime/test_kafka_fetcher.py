"""What a consumer fetches: when it asks, what it holds, and what it does about brokers that refuse."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiokafka import errors
from aiokafka.protocol.fetch import FetchRequest_v11
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition

from streams.operators.contract import Batch
from streams.runtime.kafka.fast.fetcher import Fetcher
from streams.runtime.kafka.fast.protocol import Api, FetchAnswer, Fetched
from streams.runtime.kafka.merging import StrainGauge
from streams.runtime.kafka.transport_ports import FetchSettings
from tests.virtual import run

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from streams.operators.contract import Record
    from streams.runtime.kafka.fast.requests import Calls

PLACES = (TopicPartition("p.t", 0), TopicPartition("p.t", 1))
BACKOFF_S = 0.1


def batch(value: bytes, count: int = 1, first: int = 0) -> bytes:
    """Build a batch of so many records, the first with this offset."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 16)
    for offset in range(count):
        builder.append(offset, 1_000, None, value, [])
    return first.to_bytes(8, "big") + bytes(builder.build())[8:]


class Broker:
    """Client, connections and broker in one; answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[dict[TopicPartition, int]] = []
        self.sessions: list[tuple[int, int]] = []
        self.waits_ms: list[int] = []
        self.least_bytes: list[int] = []
        self.refreshed = 0
        self.is_connected = True
        self.connects = True
        self.begin = 0
        self._answers: list[asyncio.Future[Any]] = []
        self._loop = asyncio.get_running_loop()

    def leader(self, place: TopicPartition) -> int:
        """Lead every partition."""
        return 1

    def refresh(self) -> None:
        """Count."""
        self.refreshed += 1

    async def oldest(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Say where logs begin."""
        return dict.fromkeys(places, self.begin)

    def connected(self, node: int) -> bool:
        """Say so."""
        return self.is_connected

    async def connect(self, node: int) -> bool:
        """Connect at once, or fail."""
        self.is_connected = self.connects
        return self.connects

    def post(self, node: int, api: Api, body: bytes) -> asyncio.Future[Any]:
        """Note what is asked for."""
        said = FetchRequest_v11.decode(BytesIO(body))
        self.asked.append({TopicPartition(topic, p[0]): p[2] for topic, parts in said.topics for p in parts})
        self.sessions.append((said.session_id, said.session_epoch))
        self.waits_ms.append(said.max_wait_time)
        self.least_bytes.append(said.min_bytes)
        self._answers.append(self._loop.create_future())
        return self._answers[-1]

    async def answer(self, *partitions: Fetched, code: int = 0, session: int = 0) -> None:
        """Answer the last request."""
        self._answers[-1].set_result(FetchAnswer(code, list(partitions), session))
        await asyncio.sleep(0.001)

    async def fail(self, fault: Exception) -> None:
        """Break the connection under the last request."""
        self._answers[-1].set_exception(fault)
        await asyncio.sleep(0.001)


class Scene:
    """A fetcher that has two partitions of one broker, both to be read from offset 0."""

    def __init__(self, batched: frozenset[str] = frozenset(), *, is_ahead: bool = True) -> None:
        self.broker = Broker()
        settings = FetchSettings(quiet_wait_ms=3_000, merge_ms=4, is_ahead=is_ahead)
        calls, gauge = cast("Calls", self.broker), StrainGauge(asyncio.get_running_loop().time, lambda: 0.0)
        self.fetcher = Fetcher(calls, {"p.t": "t"}, settings, BACKOFF_S, self.broker.oldest, batched, gauge=gauge)
        for place in PLACES:
            self.fetcher.seek(place, 0)

    async def poll(
        self, *partitions: TopicPartition, timeout_s: float = 0.01
    ) -> dict[TopicPartition, list[Record | Batch]]:
        """Take what is there."""
        return await self.fetcher.poll(partitions, timeout_s)

    def unread(self) -> dict[TopicPartition, int | None]:
        """Return how much of each partition is unread."""
        return dict(self.fetcher.unread())


def play(act: Any, broker_up: bool = True, batched: frozenset[str] = frozenset(), is_ahead: bool = True) -> None:
    """Run a scene's act in virtual time, after the first request."""

    async def scene() -> None:
        stage = Scene(batched, is_ahead=is_ahead)
        stage.broker.is_connected = broker_up
        await asyncio.sleep(0.001)
        coroutine: Coroutine[Any, Any, None] = act(stage, stage.broker)
        await coroutine
        stage.fetcher.stop()

    run(scene())


def mark(offset: int) -> bytes:
    """Build the mark that a transaction leaves when it is committed."""
    builder = DefaultRecordBatchBuilder(2, 0, 1, 1, 0, 0, 1 << 16)
    builder.append(0, 1_000, b"\0\0\0\1", b"\0\0\0\0\0\0", [])
    data = bytearray(builder.build())
    data[:8] = offset.to_bytes(8, "big")
    data[22] |= 0x20  # the attributes' bit for control batches
    data[17:21] = calc_crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def sent(place: TopicPartition, value: bytes = b"", code: int = 0, high_watermark: int = 7) -> Fetched:
    """Say what a broker has for a partition."""
    return Fetched(tuple(place), code, high_watermark, batch(value) if value else b"")


def test_a_broker_is_asked_for_all_its_partitions_and_not_again_before_they_are_drained() -> None:
    """A partition left out of a long fetch would wait for its end; the next one leaves before records are used."""

    async def act(stage: Scene, broker: Broker) -> None:
        assert broker.asked == [{PLACES[0]: 0, PLACES[1]: 0}]
        await broker.answer(sent(PLACES[0], b"a"), sent(PLACES[1]))
        assert len(broker.asked) == 1
        drained = await stage.poll()
        assert [(r.topic, r.partition, r.offset, r.value) for r in drained[PLACES[0]]] == [("t", 0, 0, b"a")]
        assert broker.asked[1:] == [{PLACES[0]: 1, PLACES[1]: 0}]

    play(act)


@pytest.mark.parametrize(("high_watermark", "asked"), [(1, 1), (2, 2)])
def test_who_pauses_after_a_poll_is_not_sent_what_would_be_old_by_the_next_one(high_watermark: int, asked: int) -> None:
    """The next poll asks, and waits for the answer; what is known to be there is asked for in the pause."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(sent(PLACES[0], b"a", high_watermark=high_watermark), sent(PLACES[1], high_watermark=0))
        assert list(await stage.poll()) == [PLACES[0]]
        await asyncio.sleep(0.1)
        assert len(broker.asked) == asked
        poll = asyncio.create_task(stage.poll(timeout_s=5.0))
        await asyncio.sleep(0.001)
        assert broker.asked[1:] == [{PLACES[0]: 1, PLACES[1]: 0}]
        await broker.answer(sent(PLACES[1], b"b"))
        assert list(await poll) == [PLACES[1]]

    play(act, is_ahead=False)


def test_who_pauses_after_a_poll_goes_on_where_nothing_came_of_what_was_sent() -> None:
    """A transaction's mark is no record, and an empty answer none either: the poll that waits asks again."""

    async def act(stage: Scene, broker: Broker) -> None:
        poll = asyncio.create_task(stage.poll(timeout_s=5.0))
        await broker.answer(Fetched(tuple(PLACES[0]), 0, 1, mark(0)), sent(PLACES[1], high_watermark=0))
        assert broker.asked[1:] == [{PLACES[0]: 1, PLACES[1]: 0}]
        await broker.answer(sent(PLACES[1], high_watermark=0))
        assert len(broker.asked) == 3
        await broker.answer(sent(PLACES[1], b"b"))
        assert list(await poll) == [PLACES[1]]

    play(act, is_ahead=False)


def test_what_nobody_drains_holds_its_neighbours_up_for_a_moment_only() -> None:
    """A role that reads only replies leaves queries undrained."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(sent(PLACES[0], b"a"), sent(PLACES[1]))
        assert await stage.poll(PLACES[1], timeout_s=0.05) == {}
        assert len(broker.asked) == 1
        assert await stage.poll(PLACES[1], timeout_s=0.1) == {}
        assert broker.asked[1:] == [{PLACES[1]: 0}]
        assert list(await stage.poll()) == [PLACES[0]]

    play(act)


def test_a_poll_waits_for_records_and_returns_when_they_come() -> None:
    """It neither spins nor sleeps over them; an empty answer is followed by the next request."""

    async def act(stage: Scene, broker: Broker) -> None:
        poll = asyncio.create_task(stage.poll(timeout_s=5.0))
        await broker.answer(sent(PLACES[0]), sent(PLACES[1]))
        assert len(broker.asked) == 2
        assert not poll.done()
        await broker.answer(sent(PLACES[1], b"b"))
        assert list(await poll) == [PLACES[1]]

    play(act)


def test_a_broker_that_has_nothing_may_hold_the_next_request_longer_until_it_has_something() -> None:
    """Not while something is undrained: its partition is left out of the request, and would wait for the end."""

    async def act(stage: Scene, broker: Broker) -> None:
        short_ms = broker.waits_ms[0]
        await broker.answer(sent(PLACES[0]), sent(PLACES[1]))
        assert broker.waits_ms == [short_ms, 3_000]
        await broker.answer(sent(PLACES[0], b"a"), sent(PLACES[1]))
        assert await stage.poll(PLACES[1], timeout_s=0.2) == {}
        await broker.answer(sent(PLACES[1]))
        assert broker.waits_ms == [short_ms, 3_000, short_ms, short_ms]

    play(act)


@pytest.mark.parametrize(
    ("count", "late_s", "wait_ms"),
    [(40, 0.049, 500), (60, 0.049, 1), (120, 0.049, 2), (1_000, 0.049, 4), (1_000, 0.0, 1)],
)
def test_a_broker_gathers_records_while_many_come_and_waits_for_any_when_none_do(
    count: int, late_s: float, wait_ms: int
) -> None:
    """So many every 50 ms, taken so late: no more than comes in the wait is asked for; a lull costs no requests."""

    async def act(stage: Scene, broker: Broker) -> None:
        for turn in range(7):
            records = batch(b"0123456789", count, turn * count)
            await broker.answer(Fetched(tuple(PLACES[0]), 0, 7 * count, records), sent(PLACES[1]))
            await asyncio.sleep(late_s)
            assert len((await stage.poll())[PLACES[0]]) == count
            await asyncio.sleep(0.049 - late_s)
        assert broker.waits_ms[-1] == wait_ms
        assert (broker.least_bytes[-1] > 10 * wait_ms) is (wait_ms < 500)
        await broker.answer(sent(PLACES[0]), sent(PLACES[1]))
        assert (broker.waits_ms[-1], broker.least_bytes[-1]) == (3_000, 1)

    play(act)


def test_a_position_that_was_moved_meanwhile_is_what_counts() -> None:
    """Neither an answer on its way nor one that is held is handed out after a seek."""

    async def act(stage: Scene, broker: Broker) -> None:
        stage.fetcher.seek(PLACES[1], 5)
        await broker.answer(sent(PLACES[0], b"a"), sent(PLACES[1], b"b"))
        stage.fetcher.seek(PLACES[0], 9)
        assert await stage.poll() == {}
        await asyncio.sleep(0.001)
        assert broker.asked[-1] == {PLACES[0]: 9, PLACES[1]: 5}

    play(act)


def test_an_offset_out_of_range_is_looked_up_again() -> None:
    """The log's beginning has moved on, or the topic was made anew."""

    async def act(stage: Scene, broker: Broker) -> None:
        broker.begin = 8
        await broker.answer(sent(PLACES[0], code=errors.OffsetOutOfRangeError.errno), sent(PLACES[1]))
        assert broker.asked[1:] == [{PLACES[0]: 8, PLACES[1]: 0}]

    play(act)


def test_the_end_that_a_silent_broker_told_long_ago_says_nothing() -> None:
    """A connection falls silent and nobody is told: what was written since may be read once there is another one."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(Fetched(tuple(PLACES[0]), 0, 1, batch(b"a")), Fetched(tuple(PLACES[1]), 0, 0, b""))
        await stage.poll()
        assert stage.unread() == {PLACES[0]: 0, PLACES[1]: 0}
        await asyncio.sleep(10)
        assert stage.unread() == {PLACES[0]: None, PLACES[1]: None}
        await broker.answer()  # nothing is new
        assert stage.unread() == {PLACES[0]: 0, PLACES[1]: 0}

    play(act)


def test_what_is_no_record_does_not_wait_to_be_read() -> None:
    """The mark of a transaction at the end of a log, and records that were deleted before anybody read them."""

    async def act(stage: Scene, broker: Broker) -> None:
        broker.begin = 8
        marked = Fetched(tuple(PLACES[0]), 0, 2, batch(b"a") + mark(1))
        deleted = Fetched(tuple(PLACES[1]), errors.OffsetOutOfRangeError.errno, -1, b"")
        await broker.answer(marked, deleted)
        assert stage.unread() == {PLACES[0]: 2, PLACES[1]: None}
        assert list(await stage.poll()) == [PLACES[0]]
        assert stage.unread() == {PLACES[0]: 0, PLACES[1]: None}  # of which nobody has told
        await asyncio.sleep(2 * BACKOFF_S)
        await broker.answer(sent(PLACES[0], high_watermark=2), sent(PLACES[1], high_watermark=8))
        assert stage.unread() == {PLACES[0]: 0, PLACES[1]: 0}
        await broker.answer(sent(PLACES[0], high_watermark=5), sent(PLACES[1], high_watermark=8))
        assert stage.unread() == {PLACES[0]: 3, PLACES[1]: 0}

    play(act)


def test_a_partition_whose_leader_is_another_one_is_left_alone_until_there_are_new_metadata() -> None:
    """Asking for it again at once would be a loop; its neighbours are asked for."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(sent(PLACES[0], code=errors.NotLeaderForPartitionError.errno), sent(PLACES[1]))
        assert (broker.refreshed, broker.asked[1:]) == (1, [{PLACES[1]: 0}])
        await asyncio.sleep(BACKOFF_S)
        await broker.answer(sent(PLACES[1]))
        assert broker.asked[2:] == [{PLACES[0]: 0, PLACES[1]: 0}]

    play(act)


def test_a_partition_that_cannot_be_read_for_long_does_not_slow_its_neighbours_down() -> None:
    """It rests alone, ever longer, but is asked for again a moment after it can be read."""

    async def act(stage: Scene, broker: Broker) -> None:
        spoilt = 56  # KAFKA_STORAGE_ERROR
        for _ in range(2_000):
            with_it = PLACES[0] in broker.asked[-1]
            await broker.answer(*[sent(PLACES[0], code=spoilt)] * with_it, sent(PLACES[1]))
            await asyncio.sleep(0.009)
        assert len(broker.asked) == 2_001
        asked = sum(PLACES[0] in asked for asked in broker.asked)
        assert 10 < asked < 20  # 20 s; 0.1, 0.2, 0.4, 0.8, 1.6, and then each 2 s
        while PLACES[0] not in broker.asked[-1]:
            await broker.answer(sent(PLACES[1]))
            await asyncio.sleep(0.009)
        await broker.answer(sent(PLACES[0], b"a"), sent(PLACES[1]))
        assert list(await stage.poll()) == [PLACES[0]]

    play(act)


def test_a_refused_topic_is_told_to_the_poll() -> None:
    """The role must say that it may not read; records of other partitions come first."""

    async def act(stage: Scene, broker: Broker) -> None:
        refused = sent(PLACES[0], code=errors.TopicAuthorizationFailedError.errno)
        await broker.answer(sent(PLACES[1], b"b"), refused)
        assert list(await stage.poll()) == [PLACES[1]]
        with pytest.raises(errors.TopicAuthorizationFailedError):
            await stage.poll()

    play(act)


def test_a_broken_connection_is_made_again_after_a_rest() -> None:
    """Whatever broke it may still be there."""

    async def act(stage: Scene, broker: Broker) -> None:
        broker.is_connected = broker.connects = False
        await broker.fail(errors.KafkaConnectionError("gone"))
        await asyncio.sleep(3 * BACKOFF_S)
        assert len(broker.asked) == 1
        broker.connects = True
        await asyncio.sleep(2 * BACKOFF_S)
        assert len(broker.asked) == 2

    play(act)


def test_a_broker_that_is_too_old_is_told_to_the_poll() -> None:
    """Trying again would not help."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.fail(errors.IncompatibleBrokerVersion("broker 1 lacks version 11 of request 1"))
        with pytest.raises(errors.IncompatibleBrokerVersion, match="lacks version"):
            await stage.poll()

    play(act)


def test_a_new_assignment_begins_with_nothing_held() -> None:
    """What was fetched for the old one may belong to somebody else now."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(sent(PLACES[0], b"a"), sent(PLACES[1]))
        stage.fetcher.keep([])
        stage.fetcher.seek(PLACES[1], 3)
        assert await stage.poll() == {}
        assert broker.asked[-1] == {PLACES[1]: 3}

    play(act)


def test_each_partition_is_the_first_in_turn() -> None:
    """A broker may exceed its limits for the first one only: behind others a large batch would wait for ever."""

    async def act(stage: Scene, broker: Broker) -> None:
        for _ in range(3):
            await broker.answer(sent(PLACES[0]), sent(PLACES[1]))
        first = [next(iter(asked)) for asked in broker.asked]
        assert set(first[:2]) == set(PLACES)
        assert first[2:] == first[:2]

    play(act)


def test_within_a_session_only_what_changed_is_asked_for() -> None:
    """The broker knows the rest; what it sends and a poll drains has changed."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(sent(PLACES[0], b"a"), sent(PLACES[1]), session=9)
        await stage.poll()
        await asyncio.sleep(0.001)
        await broker.answer(session=9)
        await broker.answer(sent(PLACES[1], b"b"), session=9)
        assert list(await stage.poll()) == [PLACES[1]]
        await asyncio.sleep(0.001)
        assert broker.asked[1:] == [{PLACES[0]: 1}, {}, {PLACES[1]: 1}]
        assert broker.sessions == [(0, 0), (9, 1), (9, 2), (9, 3)]

    play(act)


def test_with_other_partitions_a_new_session_begins() -> None:
    """What nobody drains must not be sent again: the next fetch leaves it out, and all the rest is named."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(sent(PLACES[0], b"a"), sent(PLACES[1]), session=9)
        assert await stage.poll(PLACES[1], timeout_s=0.2) == {}
        assert (broker.asked[1:], broker.sessions[1:]) == ([{PLACES[1]: 0}], [(9, 0)])
        await broker.answer(session=10)
        assert (broker.asked[2:], broker.sessions[2:]) == ([{}], [(10, 1)])

    play(act)


@pytest.mark.parametrize("code", [70, 71])
def test_a_session_that_the_broker_has_forgotten_is_begun_again_at_once(code: int) -> None:
    """Others needed the room, or it was started again: no reason to wait."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(session=9)
        await broker.answer(code=code)
        assert broker.asked == [{PLACES[0]: 0, PLACES[1]: 0}, {}, {PLACES[0]: 0, PLACES[1]: 0}]
        assert broker.sessions == [(0, 0), (9, 1), (9, 0)]

    play(act)


def test_a_failure_ends_the_session() -> None:
    """Whether the broker has heard the last fetch is not known; the old session is named, so that it is not kept."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(session=9)
        await broker.fail(errors.KafkaConnectionError("gone"))
        await asyncio.sleep(2 * BACKOFF_S)
        assert broker.sessions == [(0, 0), (9, 1), (9, 0)]
        await broker.answer(sent(PLACES[0], code=errors.NotLeaderForPartitionError.errno), session=11)
        await asyncio.sleep(2 * BACKOFF_S)
        assert broker.sessions[3:] == [(11, 0)]

    play(act)


def test_a_poll_that_waits_returns_when_the_fetcher_stops() -> None:
    """Nothing comes any more, and whoever stops need not wait for it."""

    async def act(stage: Scene, broker: Broker) -> None:
        poll = asyncio.create_task(stage.poll(timeout_s=60.0))
        await asyncio.sleep(0.001)
        stage.fetcher.stop()
        assert await poll == {}
        assert asyncio.get_running_loop().time() < 1.0

    play(act)


def several(place: TopicPartition, first: int, *counts: int) -> Fetched:
    """Say that a broker has batches of so many records."""
    data = b""
    for count in counts:
        data, first = data + batch(b"v", count, first), first + count
    return Fetched(tuple(place), 0, 99, data)


def test_plain_batches_of_a_topic_that_is_wanted_so_come_whole_and_are_passed() -> None:
    """Slices begin where the partition was to be read from; the position lies behind the last record."""

    async def act(stage: Scene, broker: Broker) -> None:
        stage.fetcher.seek(PLACES[0], 2)
        await broker.answer()
        await broker.answer(several(PLACES[0], 0, 5, 3), sent(PLACES[1]))
        drained = await stage.poll()
        first, second = drained[PLACES[0]]
        assert (first[:4], second[:4]) == (("t", 0, 2, 5), ("t", 0, 5, 8))
        assert first.data == batch(b"v", 5)
        assert stage.unread()[PLACES[0]] == 99 - 8
        assert broker.asked[-1][PLACES[0]] == 8

    play(act, batched=frozenset({"t"}))


def test_batches_of_other_topics_come_as_records() -> None:
    """Their readers know nothing else."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(several(PLACES[0], 0, 2))
        assert [one.offset for one in (await stage.poll())[PLACES[0]]] == [0, 1]

    play(act, batched=frozenset({"another"}))


def test_what_is_read_again_comes_record_by_record_up_to_where_it_was_left() -> None:
    """Somebody stumbled over it, and looks for the one that is to blame; what is new comes whole again."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(several(PLACES[0], 0, 2, 2))
        assert [type(one) for one in (await stage.poll())[PLACES[0]]] == [Batch, Batch]
        stage.fetcher.seek(PLACES[0], 1)
        await broker.answer()
        await broker.answer(several(PLACES[0], 0, 2, 2, 3))
        again = (await stage.poll())[PLACES[0]]
        assert [one.offset for one in again] == [1, 2, 3, 4]
        assert isinstance(again[-1], Batch)
        assert again[-1].end == 7

    play(act, batched=frozenset({"t"}))


def test_a_partition_that_comes_back_with_another_assignment_comes_whole() -> None:
    """Nobody has stumbled over anything."""

    async def act(stage: Scene, broker: Broker) -> None:
        await broker.answer(several(PLACES[0], 0, 2))
        await stage.poll()
        stage.fetcher.keep([])
        stage.fetcher.seek(PLACES[0], 0)
        await asyncio.sleep(0.001)
        await broker.answer(several(PLACES[0], 0, 2))
        assert [type(one) for one in (await stage.poll())[PLACES[0]]] == [Batch]

    play(act, batched=frozenset({"t"}))
