"""Tests of lanes: what is produced, in what order and in which batches."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from streams.operators.contract import Emit, Position, Span
from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError
from streams.runtime.kafka.fast.whole_batches import finished
from streams.runtime.role.accumulator import (
    BACKOFF_MAX_S,
    GATHERED_BYTES,
    PATIENCE_S,
    STANDS_STILL_S,
    Accumulator,
    AccumulatorEvents,
)
from streams.testing.broker import FakeBroker
from tests.fakes import ROUND_TRIP_S, FakeTransport
from tests.virtual import elapse, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from streams.operators.contract import EmitBatch


@pytest.fixture(params=["posted", "awaited"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the transport takes what nobody waits for or not: what lanes promise is the same."""
    monkeypatch.setattr(FakeTransport, "posts", request.param == "posted")
    return str(request.param)


def emit(value: int | bytes, partition: int = 0, topic: str = "out", *, awaited: bool = True) -> Emit:
    """Return a record; its number is also the offset that it completes."""
    payload = value if isinstance(value, bytes) else b"%d" % value
    completes = (Position("in", 0, value if isinstance(value, int) else 0),) if awaited else ()
    return Emit(topic, partition, None, payload, completes)


@dataclass
class Scene:
    """Lanes on a fake broker, and what they told."""

    lanes: Accumulator
    transport: FakeTransport
    broker: FakeBroker
    done: list[int]
    refused: list[Emit]


@asynccontextmanager
async def opened(bound_bytes: int = 1_000_000, patient: Collection[str] = ()) -> AsyncIterator[Scene]:
    """Open lanes, and abandon them at the end."""
    broker = FakeBroker()
    transport = FakeTransport(broker)
    async with asyncio.TaskGroup() as tasks:
        done: list[int] = []
        refused: list[Emit] = []
        events = AccumulatorEvents(
            lambda positions, spans: done.extend(
                [*(p.offset for p in positions), *(at for span in spans for at in range(*span[2:]))]
            ),
            lambda emit, _fault: refused.append(emit),
        )
        scene = Scene(Accumulator(transport, events, tasks, bound_bytes, patient), transport, broker, done, refused)
        yield scene
        scene.lanes.abandon()


def test_what_piles_up_goes_into_the_next_batch() -> None:
    """One batch is in flight; everything sent meanwhile leaves together when it is acknowledged."""

    async def scene() -> None:
        async with opened() as s:
            s.lanes.send([emit(0)])
            await elapse(ROUND_TRIP_S / 2)
            for number in range(1, 50):
                s.lanes.send([emit(number)])
            assert await s.lanes.flush(1)
            assert [count for _, _, count in s.transport.batches] == [1, 49]
            assert s.broker.values("out") == [b"%d" % number for number in range(50)]

    run(scene())


def test_what_nobody_waits_for_is_gathered_before_it_leaves() -> None:
    """One batch instead of one and then the rest."""

    async def scene() -> None:
        async with opened(patient={"out"}) as s:
            for number in range(20):
                s.lanes.send([emit(number)])
                await elapse(PATIENCE_S / 40)
            assert await s.lanes.flush(1)
            assert [count for _, _, count in s.transport.batches] == [20]

    run(scene())


def test_partitions_do_not_wait_for_each_other() -> None:
    """Each partition has its own lane: four leave in the time of one."""

    async def scene() -> None:
        async with opened() as s:
            s.lanes.send([emit(n, partition=n) for n in range(4)])
            await s.lanes.flush(1)
            assert asyncio.get_running_loop().time() < 1.5 * ROUND_TRIP_S

    run(scene())


def test_positions_complete_when_acknowledged_and_not_before() -> None:
    """A record that was sent but not acknowledged completes nothing."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.up.clear()
            s.lanes.send([emit(1), emit(2, awaited=False), emit(3)])
            assert not await s.lanes.flush(5)
            assert s.done == []
            s.transport.up.set()
            await s.lanes.flush(5)
            assert s.done == [1, 3]

    run(scene())


def test_a_failed_batch_is_sent_again_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """Failures that may pass are retried with growing pauses, told ever more seldom; nothing is lost or overtaken."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.faults.extend(BrokerUnavailableError("gone") for _ in range(12))
            s.lanes.send([emit(n) for n in range(3)])
            await elapse(ROUND_TRIP_S)
            s.lanes.send([emit(3)])
            assert await s.lanes.flush(60)
            assert s.broker.values("out") == [b"0", b"1", b"2", b"3"]
            assert s.lanes.counters["lane_retries_total"] == 12
            # 0.05 + 0.1 + 0.2 + 0.4 + 0.8 + 1.6, then 2 s at most.
            assert 12 < asyncio.get_running_loop().time() < 16

    run(scene())
    assert [f"attempt {number}," in line for number, line in zip((1, 2, 4, 8), caplog.messages, strict=True)] == [
        True
    ] * 4


def test_a_record_that_is_too_large_is_handed_back_and_the_lane_goes_on() -> None:
    """One impossible record does not stop its neighbours."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.limit = 5
            large = emit(b"far too large")
            s.lanes.send([emit(1), large, emit(2)])
            s.transport.batch_records = 1
            await s.lanes.flush(5)
            assert s.refused == [large]
            assert s.broker.values("out") == [b"1", b"2"]

    run(scene())


def test_a_record_that_is_refused_for_good_is_handed_back_after_its_forerunners(way: str) -> None:
    """It is not sent again, and the order of the others is kept."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.refused.add(("out", b"bad"))
            s.lanes.send([emit(1), emit(b"bad"), emit(2)])
            assert await s.lanes.flush(5)
            assert [record.value for record in s.refused] == [b"bad"]
            assert s.broker.values("out") == [b"1", b"2"]
            assert s.lanes.counters["lane_retries_total"] == (way == "posted")  # once, to find the one that is meant

    run(scene())


def test_a_missing_topic_keeps_only_what_somebody_waits_for() -> None:
    """A model without workers may not fill the memory; a record whose source waits is kept until the topic is there."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.missing.add("out")
            s.lanes.send([emit(1), emit(2, awaited=False), emit(3, awaited=False)])
            s.lanes.send([emit(4, topic="there")])
            assert not await s.lanes.flush(1)
            assert s.broker.values("there") == [b"4"]
            s.transport.missing.clear()
            assert await s.lanes.flush(5)
            assert s.broker.values("out") == [b"1"]
            assert s.lanes.counters["lane_shed_total{topic=out}"] == 2
            assert s.lanes.pressure() == 0

    run(scene())


def test_a_part_is_kept_for_what_completes_the_whole() -> None:
    """Of two outcomes of one record the second completes it: without the first a query would have none."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.missing.add("out")
            s.lanes.send([emit(1, awaited=False)._replace(is_part=True), emit(2)])
            assert not await s.lanes.flush(1)
            s.transport.missing.clear()
            assert await s.lanes.flush(5)
            assert s.broker.values("out") == [b"1", b"2"]

    run(scene())


def test_a_partition_that_is_away_for_hours_is_tried_again_for_hours() -> None:
    """The pause between two attempts grows no more, and never becomes a number too large to be one."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.faults.extend(BrokerUnavailableError("no leader") for _ in range(1_200))
            s.lanes.send([emit(1)])
            assert await s.lanes.flush(1_300 * BACKOFF_MAX_S)
            assert s.done == [1]

    run(scene())


def test_a_partition_without_a_leader_keeps_only_what_somebody_waits_for_after_a_while() -> None:
    """A leader that moves costs nothing; one that stays away may not fill the memory with what is answered by then."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.faults.extend(BrokerUnavailableError("no leader") for _ in range(8))
            s.lanes.send([emit(1), emit(2, awaited=False)])
            await elapse(STANDS_STILL_S / 2)
            assert s.lanes.counters["lane_shed_total{topic=out}"] == 0
            await elapse(STANDS_STILL_S)
            s.lanes.send([emit(3, awaited=False), emit(4)])
            assert await s.lanes.flush(20)
            assert s.broker.values("out") == [b"1", b"4"]
            assert s.lanes.counters["lane_shed_total{topic=out}"] == 2
            s.lanes.send([emit(5, awaited=False)])
            assert await s.lanes.flush(1)
            assert s.broker.values("out")[-1] == b"5"
            assert s.lanes.pressure() == 0

    run(scene())


def test_a_leader_that_is_silent_leaves_room_for_the_others() -> None:
    """One model's topic takes a part of the room and no more; what somebody waits for is never dropped."""

    async def scene() -> None:
        async with opened(bound_bytes=100_000) as s:
            s.transport.up.clear()
            for number in range(100):
                s.lanes.send([emit(b"x" * 750, awaited=False, topic="model"), emit(number)])
                await elapse(0.05)
            assert s.lanes.pressure() < 0.8
            assert s.lanes.counters["lane_shed_total{topic=model}"] > 60
            s.transport.up.set()
            assert await s.lanes.flush(5)
            assert s.done == list(range(100))

    run(scene())


def test_a_burst_is_no_reason_to_drop_anything() -> None:
    """Who has much to say to a model whose topic takes it says all of it."""

    async def scene() -> None:
        async with opened(bound_bytes=100_000) as s:
            s.transport.batch_records = 10
            s.lanes.send([emit(b"x" * 750, awaited=False) for _ in range(200)])
            await elapse(ROUND_TRIP_S)
            s.lanes.send([emit(b"y" * 750, awaited=False) for _ in range(200)])
            assert await s.lanes.flush(5)
            assert len(s.broker.values("out")) == 400

    run(scene())


def test_pressure_is_the_share_of_the_bound_that_waits() -> None:
    """It rises with what is pending, in flight included, and falls to zero with the acknowledgement."""

    async def scene() -> None:
        async with opened(bound_bytes=10_000) as s:
            s.transport.up.clear()
            s.lanes.send([emit(b"x" * 4_750), emit(b"y" * 4_750)])
            await elapse(1)
            assert s.lanes.pressure() == 1.0
            s.transport.up.set()
            await s.lanes.flush(1)
            assert s.lanes.pressure() == 0

    run(scene())


def test_a_misconfigured_cluster_ends_the_loop_with_its_cause() -> None:
    """What only a person can change is not retried."""

    async def scene() -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(MisconfiguredError, match="no right")):
            async with opened() as s:
                s.transport.faults.extend([MisconfiguredError("no right to write")] * 2)
                s.lanes.send([emit(1)])
                await s.lanes.flush(1)

    run(scene())


def test_more_than_a_batch_holds_leaves_in_several() -> None:
    """What does not fit stays first in line."""

    async def scene() -> None:
        async with opened() as s:
            s.lanes.send([emit(n) for n in range(2_500)])
            await s.lanes.flush(5)
            assert [count for _, _, count in s.transport.batches] == [1_000, 1_000, 500]
            assert s.done == list(range(2_500))

    run(scene())


def done_batch(*values: bytes, begin: int = 0, topic: str = "out") -> EmitBatch:
    """Return a finished batch; the number of each record, counted from `begin`, is the offset that it completes."""
    return finished(
        [Emit(topic, 0, None, value) for value in values], 1_000, (Span("in", 0, begin, begin + len(values)),)
    )


def test_finished_batches_leave_with_all_that_has_piled_up() -> None:
    """Each in its place, behind what was said before it, as one batch."""

    async def scene() -> None:
        async with opened() as s:
            s.lanes.send([done_batch(b"0")])
            await elapse(ROUND_TRIP_S / 2)
            s.lanes.send([emit(1), emit(2), done_batch(b"3", b"4", begin=3), emit(5), done_batch(b"6", begin=6)])
            s.lanes.send([done_batch(b"7", begin=7), emit(8), emit(9)])
            assert await s.lanes.flush(5)
            assert s.broker.values("out") == [b"%d" % number for number in range(10)]
            assert [count for _, _, count in s.transport.batches] == [1, 9]
            assert sorted(s.done) == [*range(10)]
            assert (s.lanes.counters["lane_batches_total"], s.lanes.counters["lane_records_total"]) == (2, 10)
            assert s.lanes.pressure() == 0

    run(scene())


def test_a_large_finished_batch_goes_alone() -> None:
    """What is gathered fills a request; what is large already would only be copied."""

    async def scene() -> None:
        async with opened() as s:
            half = b"x" * (GATHERED_BYTES // 2)
            s.lanes.send([done_batch(half), done_batch(half, begin=1), emit(2), emit(3), done_batch(half * 2, begin=4)])
            assert await s.lanes.flush(5)
            assert [len(value) for value in s.broker.values("out")] == [len(half), len(half), 1, 1, 2 * len(half)]
            assert [count for _, _, count in s.transport.batches] == [1, 3, 1]
            assert s.done == [0, 2, 3, 1, 4]

    run(scene())


def test_what_is_refused_together_goes_one_by_one_and_then_together_again() -> None:
    """The batch that is meant is unpacked, the others arrive as they are, and nothing is overtaken."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.refused.add(("out", b"bad"))
            s.lanes.send([done_batch(b"0", b"1"), emit(2), done_batch(b"3", b"bad", b"5", begin=3)])
            s.lanes.send([done_batch(b"6", begin=6)])
            await elapse(ROUND_TRIP_S / 2)
            s.lanes.send([done_batch(b"7", begin=7), done_batch(b"8", begin=8)])
            assert await s.lanes.flush(5)
            assert [record.value for record in s.refused] == [b"bad"]
            assert s.broker.values("out") == [b"%d" % number for number in (0, 1, 2, 3, 5, 6, 7, 8)]
            assert sorted(s.done) == [*range(9)]
            assert s.lanes.counters["lane_unpacked_total"] == 1
            s.lanes.send([done_batch(b"9", begin=9), done_batch(b"10", begin=10)])
            assert await s.lanes.flush(5)
            assert s.transport.batches[-1] == ("out", 0, 2)

    run(scene())


def test_a_finished_batch_completes_its_spans_when_acknowledged_and_not_before() -> None:
    """One that failed is sent again, and nothing overtakes it."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.faults.extend([BrokerUnavailableError("gone"), BrokerUnavailableError("gone")])
            s.lanes.send([done_batch(b"0", b"1"), emit(2)])
            await elapse(ROUND_TRIP_S)
            assert s.done == []
            assert await s.lanes.flush(5)
            assert (sorted(s.done), s.broker.values("out")) == ([0, 1, 2], [b"0", b"1", b"2"])

    run(scene())


def test_of_a_refused_batch_the_record_that_is_meant_is_found_and_the_others_arrive() -> None:
    """They go as they would have without a batch, before what was said later; the last completes all."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.refused.add(("out", b"bad"))
            s.lanes.send([done_batch(b"0", b"bad", b"2"), emit(3)])
            s.transport.batch_records = 1
            assert await s.lanes.flush(5)
            assert [record.value for record in s.refused] == [b"bad"]
            assert s.broker.values("out") == [b"0", b"2", b"3"]
            assert s.done == [0, 1, 2, 3]
            assert s.lanes.counters["lane_unpacked_total"] == 1
            assert s.lanes.pressure() == 0

    run(scene())


def test_of_finished_batches_those_that_complete_nothing_are_dropped_where_a_topic_is_missing() -> None:
    """As single records are."""

    async def scene() -> None:
        async with opened() as s:
            s.transport.missing.add("out")
            s.lanes.send([done_batch(b"0"), finished([emit(b"nobody waits")], 1_000), done_batch(b"1", begin=1)])
            assert not await s.lanes.flush(1)
            s.transport.missing.clear()
            assert await s.lanes.flush(5)
            assert (s.broker.values("out"), s.done) == ([b"0", b"1"], [0, 1])

    run(scene())


def test_a_finished_batch_presses_with_all_its_bytes() -> None:
    """A few of them fill the memory as many records do."""

    async def scene() -> None:
        async with opened(bound_bytes=10_000) as s:
            s.transport.up.clear()
            s.lanes.send([done_batch(b"x" * 9_000)])
            await elapse(1)
            assert 0.9 < s.lanes.pressure() < 1.0
            s.transport.up.set()
            await s.lanes.flush(1)
            assert s.lanes.pressure() == 0

    run(scene())


def test_what_is_sent_in_one_turn_leaves_in_the_next_one_without_a_task(way: str) -> None:
    """Of all lanes in one go, and so does what has piled up when the answer comes."""

    async def scene() -> None:
        async with opened() as s:
            offers: list[int] = []
            post = s.transport.post
            s.transport.post = lambda lanes: (offers.append(len(lanes)), post(lanes))[1]  # type: ignore[method-assign]
            s.lanes.send([emit(0), emit(1, partition=1)])
            s.lanes.send([emit(2), emit(3, topic="other")])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert offers == [3]
            assert len(s.lanes._running) == (0 if way == "posted" else 3)
            s.lanes.send([emit(4)])
            assert await s.lanes.flush(1)
            assert offers == ([3, 1] if way == "posted" else [3])
            assert sorted(s.done) == [*range(5)]

    run(scene())


def test_lanes_that_are_abandoned_complete_nothing_any_more() -> None:
    """What was on its way may arrive: its source is read again all the same."""

    async def scene() -> None:
        async with opened() as s:
            s.lanes.send([emit(0), emit(1, partition=1)])
            await elapse(ROUND_TRIP_S / 2)
            s.lanes.send([emit(2, partition=2)])
            s.lanes.abandon()
            await elapse(1)
            assert s.done == []
            assert s.lanes._running == set()

    run(scene())


def test_an_error_in_what_is_told_ends_the_role(way: str) -> None:
    """It is a fault of the program, and nobody would hear of it otherwise."""

    async def scene() -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError, match="tracker")):
            async with opened() as s:
                s.lanes._events = s.lanes._events._replace(acknowledged=_failing)
                s.lanes.send([emit(0)])
                await elapse(5)

    run(scene())


def _failing(*_: object) -> None:
    raise ZeroDivisionError("tracker")
