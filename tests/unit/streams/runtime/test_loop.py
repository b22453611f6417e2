"""Tests of a role's loop: a scripted kernel on a fake broker, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from schemas.records import Model, PolicyState
from streams.operators.contract import (
    NONE_UNREAD,
    DeadLetter,
    Emit,
    FetchStates,
    Load,
    Loaded,
    Position,
    Predict,
    Predicted,
    Ran,
    Record,
    Skip,
    StateKey,
    WriteStates,
)
from streams.runtime.clock import SystemClock
from streams.runtime.corrupt import corrupt
from streams.runtime.errors import BrokerUnavailableError, KernelError, MisconfiguredError, StuckError
from streams.runtime.kafka.merging import Strain
from streams.runtime.process.readiness import hindrances
from streams.runtime.role.definition import Role
from streams.runtime.role.kernel_calls import Guard, Timer
from streams.runtime.role.loop import READY_S, RoleLoop
from streams.runtime.role.poll_buffer import PollBuffer
from streams.testing.broker import FakeBroker
from tests.fakes import (
    FakeBroadcast,
    FakeConsumer,
    FakeExecutors,
    FakePositions,
    FakeTransport,
    FaultyStore,
    ScriptedKernel,
    echo,
    fake_ports,
)
from tests.virtual import START_US, VirtualClock, elapse, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from schemas.records import Report
    from streams.operators.contract import Effects
    from streams.runtime.ports import TopicPartition

Q = ("queries", 0)
SECOND = 1_000_000
STATE = PolicyState("exp3()", ("a",), 1, (0.5,))
SLICE = Role("role", "role-1", ("queries",)).at_once


@dataclass
class Scene:
    """A running loop, its surroundings, and the switch that stops it."""

    loop: RoleLoop
    broker: FakeBroker
    consumer: FakeConsumer
    transport: FakeTransport
    stop: asyncio.Event
    task: asyncio.Task[None]


@asynccontextmanager
async def running(
    kernel: ScriptedKernel,
    topics: tuple[str, ...] = ("queries",),
    partitions: int = 1,
    broker: FakeBroker | None = None,
    role: dict[str, Any] | None = None,
    **ports: Any,
) -> AsyncIterator[Scene]:
    """Run a loop until the block ends; its failure is raised there."""
    broker = broker or FakeBroker()
    consumer = FakeConsumer(broker, [(topic, n) for topic in topics for n in range(partitions)])
    transport = FakeTransport(broker)
    settings = Role("role", "role-1", topics, **(role or {}))
    loop = RoleLoop(settings, kernel, fake_ports(broker, consumer, transport=transport, **ports))
    stop = asyncio.Event()
    task = asyncio.create_task(loop.run(stop))
    try:
        yield Scene(loop, broker, consumer, transport, stop, task)
    finally:
        stop.set()
        transport.up.set()
        await task


def test_records_become_effects_and_are_committed_once_acknowledged() -> None:
    """The whole way: poll, kernel, produce, acknowledge, commit."""

    async def scene() -> None:
        kernel = ScriptedKernel()
        async with running(kernel) as s:
            s.broker.put(*Q, b"1", b"2", b"3")
            await elapse(2)
            assert s.broker.values("out") == [b"1", b"2", b"3"]
            assert s.broker.committed == {Q: 3}
            assert s.broker.commits == [{Q: 3}]

    run(scene())


def test_a_role_says_once_that_it_is_ready_and_with_what(caplog: pytest.LogCaptureFixture) -> None:
    """Who starts one alone sees when it works; later rebalances are no news of that kind."""
    caplog.set_level("INFO")

    async def scene() -> None:
        async with running(ScriptedKernel(), partitions=2) as s:
            await elapse(1)
            assert s.loop.ready.is_set()
            await s.consumer.rebalance()
            await elapse(1)
        assert [line for line in caplog.messages if "ready" in line] == ["role is ready; its partitions: 0, 1"]

    run(scene())


def test_nothing_is_committed_past_a_record_without_outcome() -> None:
    """Acknowledgements after it change nothing, nor does stopping."""

    async def scene() -> None:
        kernel = ScriptedKernel(decide=lambda record: [] if record.value == b"2" else [echo(record)])
        async with running(kernel) as s:
            s.broker.put(*Q, b"1", b"2", b"3")
            await elapse(2)
        assert s.broker.values("out") == [b"1", b"3"]
        assert s.broker.committed == {Q: 1}

    run(scene())


def test_a_refused_commit_is_tried_again() -> None:
    """An offset stays committable until the broker has it."""

    async def scene() -> None:
        async with running(ScriptedKernel()) as s:
            s.consumer.refuse_commits = True
            s.broker.put(*Q, b"1")
            await elapse(2)
            assert s.broker.committed == {}
            s.consumer.refuse_commits = False
            await elapse(1)
            assert s.broker.committed == {Q: 1}

    run(scene())


def test_the_timer_fires_on_time_while_a_poll_hangs() -> None:
    """A rebalance can hold a poll for seconds; deadlines are met all the same, to the millisecond."""

    async def scene() -> None:
        due_us = START_US + 700_000
        kernel = ScriptedKernel(timer=lambda _now_us: [Emit("out", 0, None, b"default")])

        def decide(record: Record) -> Effects:
            kernel.wakes.append(due_us)
            return []

        kernel.decide = decide
        async with running(kernel) as s:
            s.broker.put(*Q, b"1")
            await elapse(0.6)
            s.consumer.hang_s = 5.0
            await elapse(1)
            assert 0 <= kernel.fired_us[0] - due_us <= 1_000
            assert s.broker.values("out") == [b"default"]

    run(scene())


def test_deadlines_are_followed_to_the_millisecond() -> None:
    """Each wake comes when asked for, the next one is armed by the last."""

    async def scene() -> None:
        kernel = ScriptedKernel(wakes=[START_US + n * 10_000 for n in range(60, 80)])
        async with running(kernel) as s:
            s.broker.put(*Q, b"1")
            await elapse(2)
        late = [
            fired - due
            for fired, due in zip(kernel.fired_us, range(START_US + 600_000, START_US + 800_000, 10_000), strict=True)
        ]
        assert all(0 <= us <= 1_000 for us in late)

    run(scene())


def test_a_kernel_gets_bounded_slices() -> None:
    """A backlog comes in pieces, so that timers and acknowledgements get their turn."""

    async def scene() -> None:
        kernel, broker = ScriptedKernel(), FakeBroker()
        broker.put(*Q, *(b"%d" % n for n in range(3 * SLICE + 1)))
        async with running(kernel, broker=broker) as s:
            await elapse(1)
            assert [len(call) for call in kernel.calls] == [SLICE, SLICE, SLICE, 1]
            assert len(s.broker.values("out")) == 3 * SLICE + 1

    run(scene())


def test_skips_complete_and_are_counted() -> None:
    """A record that needs no outcome moves the commit on."""

    async def scene() -> None:
        reports: list[Report] = []
        kernel = ScriptedKernel(decide=lambda record: [Skip((record.position,), "duplicate")])
        async with running(kernel, hooks=(reports.append,)) as s:
            s.broker.put(*Q, b"1", b"2")
            await elapse(3)
            assert s.broker.committed == {Q: 2}
        assert reports[-1].counters["skipped_total{reason=duplicate}"] == 2

    run(scene())


def test_a_dead_letter_is_acknowledged_before_its_source_is_committed() -> None:
    """While the copy is not safe, the original stays uncommitted."""

    async def scene() -> None:
        kernel = ScriptedKernel(decide=lambda record: [DeadLetter(record, "undecodable", "garbage")])
        async with running(kernel) as s:
            s.transport.up.clear()
            s.broker.put(*Q, b"\x00garbage")
            await elapse(3)
            assert s.broker.committed == {}
            s.transport.up.set()
            await elapse(1)
            assert s.broker.values("queries.dlq") == [b"\x00garbage"]
            assert s.broker.committed == {Q: 1}

    run(scene())


def test_a_batch_that_cannot_be_unpacked_becomes_a_dead_letter_and_its_neighbours_are_served() -> None:
    """The kernel never sees it; what is committed lies behind its last offset."""

    async def scene() -> None:
        kernel, broker = ScriptedKernel(), FakeBroker()
        broker.put(*Q, b"a", b"b")
        broker.logs[Q].insert(1, corrupt(Q, (1, 1), 1_000, b"bytes", "LZ4 says no"))
        broker.logs[Q][2] = broker.logs[Q][2]._replace(offset=2)
        async with running(kernel, broker=broker) as s:
            await elapse(3)
            (letter,) = s.broker.logs["queries.dlq", 0]
            assert kernel.seen() == [b"a", b"b"]
            assert (letter.key, letter.value) == (None, b"bytes")
            assert s.broker.committed == {Q: 3}

    run(scene())


def test_a_followed_batch_that_cannot_be_unpacked_is_passed_over() -> None:
    """Its neighbours are known all the same, and the role is ready."""

    async def scene() -> None:
        kernel, broker, reports = ScriptedKernel(decide=lambda _record: []), FakeBroker(), []
        broker.logs["applications", 0].append(corrupt(("applications", 0), (0, 4), 1_000, b"bytes", "LZ4 says no"))
        broker.put("applications", 0, b"good")
        broadcast = FakeBroadcast(broker, ["applications"])
        async with running(kernel, broker=broker, broadcast=broadcast, hooks=(reports.append,)):
            await elapse(3)
            assert kernel.seen() == [b"good"]
        assert reports[-1].counters["refused_again_total{cause=corrupt_batch}"] == 1

    run(scene())


def test_an_emit_that_is_too_large_becomes_a_dead_letter_and_its_source_complete() -> None:
    """The partition moves on."""

    async def scene() -> None:
        async with running(ScriptedKernel()) as s:
            s.transport.limit = 100_000
            s.broker.put(*Q, b"x" * 200_000, b"small")
            await elapse(2)
            assert [len(value or b"") for value in s.broker.values("out.dlq")] == [65_536]
            assert s.broker.values("out") == [b"small"]
            assert s.broker.committed == {Q: 2}

    run(scene())


def test_an_emit_that_is_refused_for_good_becomes_a_dead_letter_with_its_cause() -> None:
    """The whole record is kept, its source is complete, and the partition moves on."""

    async def scene() -> None:
        reports: list[Report] = []
        async with running(ScriptedKernel(), hooks=(reports.append,)) as s:
            s.transport.refused.add(("out", b"bad"))
            s.broker.put(*Q, b"1", b"bad", b"2")
            await elapse(3)
            assert s.broker.values("out") == [b"1", b"2"]
            assert s.broker.values("out.dlq") == [b"bad"]
            assert s.broker.committed == {Q: 3}
        assert reports[-1].counters["dead_letters_total{cause=refused,topic=out}"] == 1

    run(scene())


def test_a_dead_letter_that_is_refused_for_good_ends_the_role() -> None:
    """Its source may not be lost, and a person has to act."""

    async def scene() -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(MisconfiguredError, match=r"out\.dlq refuses a dead letter")):
            async with running(ScriptedKernel()) as s:
                s.transport.refused |= {("out", b"bad"), ("out.dlq", b"bad")}
                s.broker.put(*Q, b"bad")
                await elapse(3)
        assert s.broker.committed == {}

    run(scene())


def failing(record: Record) -> Effects:
    """Raise on one record, echo the others."""
    if record.value == b"poison":
        raise ValueError("cannot divide by zero queries")
    return [echo(record)]


def test_the_record_a_kernel_fails_on_becomes_a_dead_letter_and_its_neighbours_are_served() -> None:
    """The slice is read again one by one; only the culprit goes to the dead letters, with cause `bug`."""

    async def scene() -> None:
        kernel = ScriptedKernel(decide=failing)
        async with running(kernel) as s:
            s.broker.put(*Q, b"1", b"2", b"poison", b"3", b"4")
            await elapse(2)
            assert s.broker.values("out") == [b"1", b"2", b"3", b"4"]
            assert s.broker.values("queries.dlq") == [b"poison"]
            assert s.broker.committed == {Q: 5}
            s.broker.put(*Q, b"5", b"6")
            await elapse(2)
            assert len(kernel.calls[-1]) == 2, "later slices are whole again"

    run(scene())


def test_a_kernel_that_failed_starts_over_from_what_is_incomplete() -> None:
    """Records it had taken before the failure are given to it again, after it was told to forget."""

    async def scene() -> None:
        held: list[Record] = []

        def decide(record: Record) -> Effects:
            if record.value == b"held":
                held.append(record)
                return []
            return failing(record)

        kernel = ScriptedKernel(decide=decide)
        async with running(kernel) as s:
            s.broker.put(*Q, b"1", b"held")
            await elapse(1)
            s.broker.put(*Q, b"2", b"poison")
            await elapse(2)
            assert kernel.revoked == [(0,)]
            assert kernel.starts == [{0: 0}, {0: 1}]
            assert [record.value for record in held] == [b"held", b"held"]
            assert s.broker.values("queries.dlq") == [b"poison"]
            assert s.broker.values("out") == [b"1", b"2"]

    run(scene())


def test_a_timer_that_is_due_again_at_once_leaves_others_their_turn() -> None:
    """A kernel ends thousands of windows in many short calls; answers go out in between."""

    async def scene() -> None:
        clock, turns = VirtualClock(), list[str]()
        kernel = ScriptedKernel(timer=lambda _: turns.append("timer") or [])
        guard = Guard("role", clock, lambda _: timer.set(clock.now_us() if len(turns) < 6 else None))
        timer = Timer(kernel, clock, guard, lambda: NONE_UNREAD)
        firing = asyncio.create_task(timer.run())
        timer.set(clock.now_us())
        for _ in range(3):
            await asyncio.sleep(0)
            turns.append("other")
        firing.cancel()
        assert turns == ["timer", "other"] * 3

    run(scene())


def test_a_kernel_whose_timer_fails_starts_over_from_what_is_incomplete(caplog: pytest.LogCaptureFixture) -> None:
    """What it held is given to it again, and the alarm set; the traceback is logged once, the failure counted."""

    async def scene() -> None:
        reports: list[Report] = []
        broken = [True]

        def fire(now_us: int) -> Effects:
            if broken.pop() if broken else False:
                raise ZeroDivisionError("timer")
            return [echo(kernel.calls[-1][0])]

        def decide(record: Record) -> Effects:
            kernel.wakes = [START_US + (700_000 if broken else 2_000_000)]
            return []

        kernel = ScriptedKernel(decide=decide, timer=fire)
        async with running(kernel, hooks=(reports.append,)) as s:
            s.broker.put(*Q, b"held")
            await elapse(4)
            assert kernel.seen() == [b"held", b"held"]
            assert kernel.starts == [{0: 0}, {0: 0}]
            assert s.broker.values("out") == [b"held"]
            assert s.broker.committed == {Q: 1}
        assert reports[-1].counters["kernel_failures_total"] == 1
        assert caplog.text.count("Traceback") == 1

    run(scene())


def test_a_topic_that_was_made_anew_ends_nobody_and_its_new_records_are_processed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The kernel starts over there, it is said and counted, and offsets are committed from the new beginning on."""

    async def scene() -> None:
        reports: list[Report] = []
        kernel = ScriptedKernel(decide=lambda record: [echo(record)])
        async with running(kernel, hooks=(reports.append,)) as s:
            for value in (b"1", b"2", b"3"):
                s.broker.put(*Q, value)
            await elapse(2)
            assert s.broker.committed == {Q: 3}
            s.broker.make_anew(Q[0])
            s.broker.put(*Q, b"new")
            await elapse(3)
            assert s.broker.values("out") == [b"1", b"2", b"3", b"new"]
            assert kernel.starts == [{0: 0}, {0: 0}]
            assert s.broker.committed == {Q: 1}
        assert reports[-1].counters["logs_set_back_total"] == 1
        assert "queries-0 at 0: below what was read before" in caplog.text

    run(scene())


def test_a_log_that_lost_its_newest_records_while_nobody_read_is_read_again_from_what_is_there() -> None:
    """Also where all that is there lies below what was committed: none of it counts as complete."""

    async def scene() -> None:
        kernel = ScriptedKernel(decide=lambda record: [echo(record)])
        async with running(kernel) as s:
            for value in (b"1", b"2", b"3"):
                s.broker.put(*Q, value)
            await elapse(2)
            await s.consumer.rebalance()
            s.broker.make_anew(Q[0])
            s.broker.put(*Q, b"new")
            await elapse(3)
            assert s.broker.values("out")[-1] == b"new"
            assert s.broker.committed == {Q: 1}

    run(scene())


def test_a_kernel_that_is_to_start_over_is_called_no_more_before() -> None:
    """Nothing in its memory is trusted: neither records nor states are given to it while the poll still hangs."""

    async def scene() -> None:
        def fail(now_us: int) -> Effects:
            raise ZeroDivisionError("timer")

        kernel = ScriptedKernel(timer=fail, wakes=[START_US + 700_000])
        async with running(kernel) as s:
            s.broker.put(*Q, b"1")
            await elapse(0.6)
            s.consumer.hang_s = 2.0
            await elapse(0.5)
            s.broker.put(*Q, b"2")
            await elapse(4)
            assert kernel.fired_us[1:] == []
            assert kernel.starts == [{0: 0}, {0: 1}]
            assert s.broker.values("out") == [b"1", b"2"]

    run(scene())


def test_a_timer_that_fails_again_and_again_ends_the_process_with_its_cause() -> None:
    """No record can be blamed and starting over does not help; the supervisor starts a new process."""

    async def scene() -> None:
        def fail(now_us: int) -> Effects:
            kernel.wakes = [now_us + 100_000]
            raise ZeroDivisionError("timer")

        kernel = ScriptedKernel(timer=fail, wakes=[START_US + 700_000])
        with pytest.RaisesGroup(pytest.RaisesExc(KernelError, match="role failed 4 times .* its timer: ZeroDivision")):
            async with running(kernel) as s:
                s.broker.put(*Q, b"1")
                await elapse(8)
        assert s.consumer.stopped

    run(scene())


def test_a_kernel_that_fails_on_states_starts_over() -> None:
    """The state is asked for again by what is read again."""

    async def scene() -> None:
        key = StateKey(0, "digits")
        broken = [True]

        def take(states: object) -> Effects:
            if broken:
                broken.clear()
                raise LookupError("state")
            return [echo(kernel.calls[-1][0])]

        kernel = ScriptedKernel(decide=lambda _record: [FetchStates((key,))], states=take)
        async with running(kernel, store=FaultyStore()) as s:
            s.broker.put(*Q, b"1")
            await elapse(4)
            assert len(kernel.answers) == 2
            assert s.broker.values("out") == [b"1"]

    run(scene())


def test_a_stuck_consumer_ends_the_process() -> None:
    """It leaves the group on the way out."""

    async def scene() -> None:
        with pytest.RaisesGroup(StuckError):
            async with running(ScriptedKernel()) as s:
                s.consumer.fault = StuckError("20 polls failed")
                await elapse(2)
        assert s.consumer.stopped

    run(scene())


def test_a_machine_s_clock_that_is_set_far_back_ends_the_process() -> None:
    """Not a step that the clock has followed soon; the new process starts with the right time."""

    async def scene() -> None:
        back_ns = 0

        def passed_ns() -> int:
            return int(asyncio.get_running_loop().time() * 1e9)

        clock = SystemClock(lambda: START_US * 1000 + passed_ns() - back_ns, passed_ns)
        with pytest.RaisesGroup(pytest.RaisesExc(StuckError, match="clock was set back by 60 s")):
            async with running(ScriptedKernel(), clock=clock) as s:
                back_ns = 5_000_000_000
                await elapse(30)
                assert not s.consumer.stopped
                back_ns += 60_000_000_000
                await elapse(2)
        assert s.consumer.stopped

    run(scene())


def test_with_too_much_in_hand_only_replies_are_read() -> None:
    """What completes the records in hand is still taken; the rest waits in Kafka until there is room."""

    async def scene() -> None:
        waiting: list[Record] = []

        def decide(record: Record) -> Effects:
            if record.topic == "queries":
                waiting.append(record)
                return []
            answered = waiting.pop(0)
            return [Emit("out", 0, None, b"answer", (answered.position, record.position))]

        kernel = ScriptedKernel(decide=decide)
        role = {"replies": frozenset({"replies"}), "outstanding": 3}
        async with running(kernel, ("queries", "replies"), role=role) as s:
            s.broker.put(*Q, b"1", b"2", b"3")
            await elapse(1)
            s.broker.put(*Q, b"4")
            await elapse(1)
            assert len(waiting) == 3
            assert s.consumer.polls[-1] == frozenset({"replies"})
            s.broker.put("replies", 0, b"r")
            await elapse(1)
            assert s.broker.values("out") == [b"answer"]
            assert [record.value for record in waiting] == [b"2", b"3", b"4"]

    run(scene())


def test_a_role_without_replies_waits_for_room_and_notices_it_at_once() -> None:
    """It does not poll while it is full, and continues with the acknowledgement, not with a tick."""

    async def scene() -> None:
        async with running(ScriptedKernel(), role={"outstanding": 1}) as s:
            s.transport.up.clear()
            s.broker.put(*Q, b"1")
            await elapse(1)
            polls = len(s.consumer.polls)
            s.broker.put(*Q, b"2")
            await elapse(1)
            assert len(s.consumer.polls) == polls
            s.transport.up.set()
            await elapse(0.005)
            assert s.broker.values("out") == [b"1", b"2"]

    run(scene())


@pytest.mark.parametrize(("at_once", "pauses"), [(1, 0), (2, 3)])
def test_a_role_that_pauses_for_fuller_polls_makes_none_while_they_are_full(at_once: int, pauses: int) -> None:
    """A backlog is read poll by poll; with few records in a poll, the pause makes the next one fuller."""

    async def scene() -> None:
        kernel = ScriptedKernel()
        async with running(kernel, role={"linger_s": 10.0, "at_once": at_once}) as s:
            s.consumer.most = 2
            s.broker.put(*Q, b"1", b"2", b"3", b"4", b"5", b"6", b"7")
            await elapse(1)
            for _ in range(pauses):
                assert len(kernel.seen()) < 7
                await elapse(10)
            assert len(kernel.seen()) == 7

    run(scene())


@pytest.mark.parametrize(("busy", "pause_s"), [(0.0, 5.0), (0.45, 7.5), (1.0, 10.0)])
def test_a_role_pauses_longer_the_busier_its_process_is(busy: float, pause_s: float) -> None:
    """An idle one has polls to spare, so it learns sooner what is new."""

    async def scene() -> None:
        kernel = ScriptedKernel()
        async with running(kernel, role={"linger_s": 10.0}, strain=lambda: Strain(0.0, busy)) as s:
            s.broker.put(*Q, b"1")
            await elapse(0.1)
            s.broker.put(*Q, b"2")
            await elapse(pause_s - 0.2)
            assert len(kernel.seen()) == 1
            await elapse(0.2)
            assert len(kernel.seen()) == 2

    run(scene())


@pytest.mark.parametrize(("record_us", "largest"), [(100, 5), (2_000, 1), (0, 64)])
def test_a_role_beside_others_gets_as_much_as_takes_half_a_millisecond(record_us: int, largest: int) -> None:
    """By what its records have taken, be they cheap or of many rows each; at least one, and never more than it may."""

    class Spent(VirtualClock):
        us = 0

        def now_us(self) -> int:
            return super().now_us() + self.us

    async def scene() -> None:
        clock, sizes = Spent(), list[int]()

        class Slow(ScriptedKernel):
            def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
                sizes.append(len(records))
                clock.us += record_us * len(records)
                return super().on_records(records, now_us)

        async with running(Slow(), role={"slice_us": 500, "at_once": 64}, clock=clock) as s:
            s.broker.put(*Q, *(b"%d" % number for number in range(400)))
            await elapse(2)
        assert sum(sizes) == 400
        assert sizes[0] == 1
        assert max(sizes) == largest

    run(scene())


@pytest.mark.parametrize("asks", [False, True])
def test_a_buffer_counts_what_is_left_of_each_partition(asks: bool) -> None:
    """Whether it was asked before some were taken or not."""
    buffer = PollBuffer()
    buffer.fill([Record("queries", number % 3, number, 0, None, b"") for number in range(9)])
    if asks:
        assert buffer.counts() == dict.fromkeys([("queries", each) for each in range(3)], 3)
    assert [record.offset for record in buffer.take(4)] == [0, 1, 2, 3]
    buffer.drop([("queries", 2)])
    assert buffer.counts() == {("queries", 0): 1, ("queries", 1): 2}
    assert (len(buffer), buffer.first.offset) == (3, 4)
    assert [record.offset for record in buffer.take(9)] == [4, 6, 7]
    assert buffer.counts() == {}


def test_what_a_kernel_holds_counts_against_the_bound() -> None:
    """One record may be hundreds of rows: a worker that is full reads no more, though it has few records in hand."""

    class Full(ScriptedKernel):
        held = 0

    async def scene() -> None:
        kernel = Full()
        async with running(kernel, role={"outstanding": 10}) as s:
            kernel.held = 10
            await elapse(1)
            s.broker.put(*Q, b"1")
            await elapse(1)
            assert s.broker.values("out") == []
            kernel.held = 9
            await elapse(1)
            assert s.broker.values("out") == [b"1"]

    run(scene())


def test_followed_topics_are_known_before_the_first_query() -> None:
    """However long they take; the group is joined afterwards."""

    async def scene() -> None:
        kernel, broker = ScriptedKernel(decide=lambda record: []), FakeBroker()
        broker.put(*Q, b"query")
        broker.put("applications", 0, b"digits")
        broadcast = FakeBroadcast(broker, ["applications"], slow_s=30)
        async with running(kernel, broker=broker, broadcast=broadcast) as s:
            await elapse(29)
            assert kernel.calls == []
            await elapse(5)
            assert kernel.seen() == [b"digits", b"query"]
            s.broker.put("applications", 0, b"digits 2")
            await elapse(2)
            assert kernel.seen()[-1] == b"digits 2"

    run(scene())


def test_a_kernel_that_gets_ready_takes_queries_when_it_is_ready_and_after_a_while_all_the_same() -> None:
    """What it prepares for them is there before; if it never is, they are not kept waiting for ever."""

    async def scene(ready_s: float, joins_s: float) -> None:
        kernel, broker = ScriptedKernel(is_getting_ready=True, wakes=[START_US + int(ready_s * SECOND)]), FakeBroker()

        def prepared(_now_us: int) -> Effects:
            kernel.is_getting_ready = False
            return []

        kernel.timer = prepared
        broker.put(*Q, b"query")
        async with running(kernel, broker=broker, broadcast=FakeBroadcast(broker, ["applications"])) as s:
            await elapse(joins_s - 1)
            assert (kernel.seen(), s.loop.ready.is_set()) == ([], False)
            await elapse(3)
            assert (kernel.seen(), s.loop.ready.is_set()) == ([b"query"], True)

    run(scene(10, 10))
    run(scene(1_000, READY_S))


def test_a_kernel_that_is_ready_again_and_again_keeps_nobody_waiting() -> None:
    """Only a start waits: whoever takes queries already goes on with them."""

    async def scene() -> None:
        kernel = ScriptedKernel(decide=lambda record: [])
        async with running(kernel) as s:
            await elapse(1)
            kernel.is_getting_ready = True
            s.broker.put(*Q, b"query")
            await elapse(1)
            assert kernel.seen() == [b"query"]

    run(scene())


def test_a_bad_followed_record_is_counted_but_not_written_at_every_start() -> None:
    """Each start of each role reads it again: a dead letter each time would fill the topic."""

    async def scene() -> None:
        def decide(record: Record) -> Effects:
            if record.value == b"raises":
                raise ValueError("bad")
            return [DeadLetter(record, "undecodable", "garbage")] if record.value == b"garbage" else []

        broker, reports = FakeBroker(), []
        broker.put("applications", 0, b"garbage", b"raises", b"good")
        kernel = ScriptedKernel(decide=decide)
        broadcast = FakeBroadcast(broker, ["applications"])
        async with running(kernel, broker=broker, broadcast=broadcast, hooks=(reports.append,)) as s:
            await elapse(3)
            assert s.broker.values("applications.dlq") == []
            assert kernel.seen()[-1] == b"good"
        assert reports[-1].counters["refused_again_total{cause=undecodable}"] >= 1

    run(scene())


def test_a_rebalance_commits_first_and_reads_again_what_was_not_done() -> None:
    """Revoked: acknowledgements are waited for and committed. Assigned: the kernel starts at the committed offset."""

    async def scene() -> None:
        kernel = ScriptedKernel(decide=lambda record: [] if record.value == b"3" else [echo(record)])
        async with running(kernel) as s:
            s.broker.put(*Q, b"1", b"2", b"3", b"4")
            await elapse(0.0005)
            await s.consumer.rebalance()
            assert s.broker.commits == [{Q: 2}]
            await elapse(1)
            assert kernel.revoked == [(0,)]
            assert kernel.starts == [{0: 0}, {0: 2}]
            assert kernel.seen() == [b"1", b"2", b"3", b"4", b"3", b"4"]

    run(scene())


def test_records_in_hand_are_dropped_when_their_partition_goes() -> None:
    """A slice that was not given to the kernel yet belongs to the new owner."""

    async def scene() -> None:
        kernel, broker = ScriptedKernel(decide=lambda record: []), FakeBroker()
        broker.put(*Q, *(b"%d" % n for n in range(2 * SLICE)))
        async with running(kernel, broker=broker) as s:
            for _ in range(100):  # turns of the event loop: in the middle of the backlog
                await asyncio.sleep(0)
                if kernel.calls:
                    break
            await s.consumer.rebalance()
            await elapse(1)
            first = [call[0].offset for call in kernel.calls]
            assert first == [0, 0, SLICE]

    run(scene())


def test_partitions_that_do_not_match_are_a_configuration_error() -> None:
    """A role whose topics have different partition counts would look for replies in the wrong place."""

    async def scene() -> None:
        async with running(ScriptedKernel(), ("queries", "replies")) as s:
            await elapse(1)
            s.consumer.partitions = (("queries", 0), ("replies", 0), ("replies", 1))
            with pytest.raises(MisconfiguredError, match="make their counts equal"):
                await s.consumer.rebalance()

    run(scene())


def test_states_are_fetched_and_answered() -> None:
    """The kernel goes on meanwhile and gets the states when they come, store down or not."""

    async def scene() -> None:
        key = StateKey(0, "digits")
        kernel = ScriptedKernel(decide=lambda record: [FetchStates((key,)), echo(record)])
        store = FaultyStore()
        store.states[key] = STATE
        store.down = True
        async with running(kernel, store=store) as s:
            s.broker.put(*Q, b"1")
            await elapse(3)
            assert s.broker.values("out") == [b"1"]
            assert kernel.answers == []
            store.down = False
            await elapse(2)
            assert kernel.answers == [{key: STATE}]

    run(scene())


def learner(record: Record) -> Effects:
    """Write a state for each record."""
    expected = record.offset or None
    return [WriteStates(record.partition, expected, record.offset + 1, {"digits": STATE}, (record.position,))]


OWNER: dict[str, Any] = {"role": {"owns_states": True}, "positions": FakePositions(2)}


def test_an_owner_of_states_starts_where_the_store_is_and_reads_back() -> None:
    """The group's committed offset does not matter; what is read back is complete already."""

    async def scene() -> None:
        broker, store = FakeBroker(), FaultyStore()
        broker.put(*Q, *(b"%d" % n for n in range(6)))
        broker.committed[Q] = 1
        store.offsets[0] = 4
        kernel = ScriptedKernel(decide=lambda record: learner(record) if record.offset >= 4 else [])
        async with running(kernel, broker=broker, store=store, **OWNER) as s:
            await elapse(2)
            assert kernel.starts == [{0: 4}]
            assert kernel.seen() == [b"2", b"3", b"4", b"5"]
            assert store.offsets == {0: 6}
            assert s.broker.committed == {Q: 6}

    run(scene())


def test_other_topics_are_read_back_where_the_kernel_says_so() -> None:
    """What lies before their committed offsets is delivered again and stays complete."""

    async def scene() -> None:
        broker = FakeBroker()
        for topic in ("queries", "more", "rest"):
            broker.put(topic, 0, *(b"%s %d" % (topic.encode(), n) for n in range(4)))
            broker.committed[topic, 0] = 3
        kernel = ScriptedKernel(window_us=1, others=frozenset(("more",)))
        async with running(kernel, ("queries", "more", "rest"), broker=broker, positions=FakePositions(2)) as s:
            await elapse(2)
            assert sorted(kernel.seen()) == [
                *(b"more 1", b"more 2", b"more 3"),
                *(b"queries 1", b"queries 2", b"queries 3"),
                b"rest 3",
            ]
            assert set(s.broker.committed.values()) == {4}

    run(scene())


def test_a_topic_that_is_new_to_its_group_is_read_from_near_its_end_or_as_a_whole() -> None:
    """Where its topics change, as of role `mapping`; one that was read before goes on."""

    async def scene() -> None:
        broker, names = FakeBroker(), ("known", "near", "whole")
        for topic in names:
            broker.put(topic, 0, *(b"%s %d" % (topic.encode(), n) for n in range(4)))
        broker.committed["known", 0] = 3
        kernel = ScriptedKernel(topics=frozenset(names), whole=frozenset(("whole",)))
        async with running(kernel, names, broker=broker, positions=FakePositions(2, end=4)):
            await elapse(2)
            assert {*kernel.seen()} == {
                *(b"known 3", b"near 2", b"near 3"),
                *(b"whole 0", b"whole 1", b"whole 2", b"whole 3"),
            }

    run(scene())


@pytest.mark.parametrize(("has_written", "recalled"), [(False, []), (True, [b"a", b"b"])])
def test_a_kernel_is_told_what_its_role_has_written_since_what_it_begins_with(
    *, has_written: bool, recalled: list[bytes]
) -> None:
    """From a minute before the first of it on, as clocks disagree."""

    async def scene() -> None:
        broker = FakeBroker()
        for topic in ("queries", "written"):
            broker.put(topic, 0, b"a", b"b")
        kernel = ScriptedKernel(has_written=has_written)
        begun_us, since_us = START_US - 10 * SECOND, list[int]()

        def written(time_us: int) -> FakeBroadcast:
            since_us.append(time_us)
            return FakeBroadcast(broker, ["written"])

        positions = FakePositions(0, time_us=begun_us)
        async with running(kernel, broker=broker, positions=positions, written=written):
            await elapse(2)
            assert [record.value for record in kernel.recalled] == recalled
            assert since_us == [begun_us - 60 * SECOND][: len(recalled)]
            assert kernel.seen() == [b"a", b"b"]

    run(scene())


def test_what_a_role_has_written_is_read_until_it_can_be() -> None:
    """A broker that was away at the start of a partition costs a while, and no record."""

    async def scene() -> None:
        broker, failures = FakeBroker(), [BrokerUnavailableError("away")] * 2
        broker.put(*Q, b"1")
        broker.put("written", 0, b"a")
        kernel = ScriptedKernel(has_written=True)

        def written(_: int) -> FakeBroadcast:
            if failures:
                raise failures.pop()
            return FakeBroadcast(broker, ["written"])

        async with running(kernel, broker=broker, positions=FakePositions(0), written=written):
            await elapse(2)
            assert [record.value for record in kernel.recalled] == [b"a"]
            assert kernel.seen() == [b"1"]

    run(scene())


def test_a_refused_write_starts_the_partition_over_from_the_store() -> None:
    """The store lost its last second: the kernel forgets, and applies again from what is stored."""

    async def scene() -> None:
        store = FaultyStore()
        kernel = ScriptedKernel(decide=learner)
        async with running(kernel, store=store, **OWNER) as s:
            s.broker.put(*Q, *(b"%d" % n for n in range(6)))
            await elapse(1)
            assert store.offsets == {0: 6}
            store.offsets[0] = 3
            s.broker.put(*Q, b"6")
            kernel.decide = lambda record: learner(record) if record.offset >= 3 else []
            await elapse(2)
            assert kernel.revoked == [(0,)]
            assert kernel.starts == [{0: 0}, {0: 3}]
            assert s.consumer.seeks == [(Q, 1)]
            assert store.offsets == {0: 7}
            assert s.broker.committed == {Q: 7}

    run(scene())


def test_a_partition_whose_state_cannot_be_read_waits_and_others_go_on() -> None:
    """None of its records is in hand meanwhile; when the store is mended they are read again."""

    async def scene() -> None:
        bad = StateKey(0, "digits")
        store = FaultyStore()
        store.damaged.add(bad)
        store.offsets, store.tokens = {0: 1}, {0: "before"}
        broker = FakeBroker()
        broker.put(*Q, b"old")

        def decide(record: Record) -> Effects:
            if record.partition == 0 and record.offset == 1 and bad in store.damaged:
                return [FetchStates((bad,))]
            return learner(record) if (record.partition, record.offset) != (0, 0) else []

        kernel = ScriptedKernel(decide=decide)
        async with running(kernel, partitions=2, broker=broker, store=store, **OWNER) as s:
            s.broker.put(*Q, b"1")
            await elapse(1)
            for n in range(50):
                s.broker.put(*Q, b"2-%d" % n)
                s.broker.put("queries", 1, b"other %d" % n)
                await elapse(0.1)
            await elapse(1)
            assert store.offsets == {0: 1, 1: 50}
            assert b"2-0" not in kernel.seen()
            assert kernel.revoked == [(0,)]
            store.damaged.clear()
            await elapse(6)
            assert store.offsets == {0: 52, 1: 50}
            assert s.broker.committed == {Q: 52, ("queries", 1): 50}

    run(scene())


def test_a_store_that_is_down_at_the_start_is_waited_for() -> None:
    """Without its offset nothing may be applied."""

    async def scene() -> None:
        broker, store = FakeBroker(), FaultyStore()
        broker.put(*Q, b"0")
        store.down = True
        kernel = ScriptedKernel(decide=learner)
        async with running(kernel, broker=broker, store=store, **OWNER):
            await elapse(20)
            assert kernel.calls == []
            store.down = False
            await elapse(2)
            assert store.offsets == {0: 1}

    run(scene())


def test_an_effect_without_a_store_is_a_mistake_of_the_wiring() -> None:
    """It fails at once instead of dropping states."""

    async def scene() -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(TypeError, match="give the loop a store")):
            async with running(ScriptedKernel(decide=learner)) as s:
                s.broker.put(*Q, b"0")
                await elapse(2)

    run(scene())


def test_a_stop_waits_for_acknowledgements_and_commits() -> None:
    """What was taken is finished; nothing new is taken."""

    async def scene() -> None:
        kernel = ScriptedKernel()
        async with running(kernel) as s:
            s.broker.put(*Q, b"1")
            await elapse(0.0005)
            s.stop.set()
        assert s.broker.values("out") == [b"1"]
        assert s.broker.committed == {Q: 1}
        assert s.consumer.stopped

    run(scene())


def test_what_a_kernel_says_at_its_stop_is_written() -> None:
    """Before the role leaves."""

    async def scene() -> None:
        async with running(ScriptedKernel(last=[Emit("out", 0, None, b"kept")])) as s:
            await elapse(0.1)
            assert s.broker.values("out") == []
        assert s.broker.values("out") == [b"kept"]

    run(scene())


def test_a_role_joins_anew_when_its_partitions_are_to_be_spread_otherwise() -> None:
    """Once for each change, and not for what was there when it joined."""

    async def scene() -> None:
        kernel = ScriptedKernel(spread=object())
        async with running(kernel) as s:
            s.broker.put(*Q, b"1")
            await elapse(1)
            assert s.consumer.rejoins == 0
            kernel.spread = object()
            for number in range(3):
                s.broker.put(*Q, b"%d" % number)
                await elapse(1)
            assert s.consumer.rejoins == 1

    run(scene())


def test_a_stop_drains_replies_for_a_while() -> None:
    """Queries in hand are answered here instead of twice, if their replies come in time."""

    async def scene() -> None:
        waiting: list[Record] = []

        def decide(record: Record) -> Effects:
            if record.topic == "queries":
                waiting.append(record)
                return []
            return [Emit("out", 0, None, b"answer", (waiting.pop().position, record.position))]

        role = {"replies": frozenset({"replies"}), "drain_s": 1.0}
        async with running(ScriptedKernel(decide=decide), ("queries", "replies"), role=role) as s:
            s.broker.put(*Q, b"1")
            await elapse(0.6)
            s.stop.set()
            await elapse(0.6)
            s.broker.put(*Q, b"too late")
            s.broker.put("replies", 0, b"r")
        assert s.broker.values("out") == [b"answer"]
        assert s.broker.committed == {Q: 1, ("replies", 0): 1}

    run(scene())


def test_a_stop_does_not_wait_for_a_dead_broker() -> None:
    """It gives up after seconds; what was not acknowledged is read again by the next owner."""

    async def scene() -> None:
        async with running(ScriptedKernel()) as s:
            s.transport.up.clear()
            s.broker.put(*Q, b"1")
            await elapse(1)
            s.stop.set()
            await s.task
            assert asyncio.get_running_loop().time() < 10
        assert s.broker.committed == {}

    run(scene())


def test_every_second_a_report_goes_to_the_hooks_and_to_the_topic() -> None:
    """Kernel, runtime and process in one report; its record is keyed by the instance."""

    async def scene() -> None:
        reports: list[Report] = []
        async with running(ScriptedKernel(), hooks=(reports.append,)) as s:
            s.broker.put(*Q, b"1")
            await elapse(3.5)
            assert len(reports) == 3
            assert reports[-1].counters["calls_total"] == 1
            assert reports[-1].counters["lane_records_total"] >= 1
            assert reports[-1].gauges["outstanding"] == 0
            assert s.broker.logs["reports", 0][0].key == b"role-1"

    run(scene())


def hindering(reports: list[Report]) -> list[str]:
    """Return what hinders by the last report."""
    return hindrances([(reports[-1], 0.0)])


def test_reports_say_what_a_role_waits_for_until_it_is_ready() -> None:
    """A model first, then the store that says where its partition begins; later a broker that takes nothing."""

    async def scene() -> None:
        reports: list[Report] = []
        broker, store, kernel = FakeBroker(), FaultyStore(), AsksModels()
        store.down = True
        parts = {"hooks": (reports.append,), "executors": Slow(), "store": store}
        async with running(kernel, broker=broker, **parts, **OWNER) as s:
            await elapse(1.5)
            assert hindering(reports) == ["role-1 waits for its models to be loaded"]
            await elapse(3)
            assert hindering(reports) == [
                "role-1 reaches no store of policy states (Redis, a file); see `skysail doctor`"
            ]
            store.down = False
            await elapse(3)
            assert (s.loop.ready.is_set(), hindering(reports)) == (True, [])
            s.transport.up.clear()
            await elapse(5)
            (said,) = hindering(reports)
            assert said.startswith("role-1 waits for Kafka")
            s.transport.up.set()
            await elapse(5)
            assert hindering(reports) == []

    run(scene())


def test_reports_say_that_the_store_has_gone() -> None:
    """While what is to be written waits for it; an idle role does not know."""

    async def scene() -> None:
        reports: list[Report] = []
        broker, store = FakeBroker(), FaultyStore()
        async with running(
            ScriptedKernel(decide=learner), broker=broker, store=store, hooks=(reports.append,), **OWNER
        ):
            await elapse(2)
            assert hindering(reports) == []
            store.down = True
            broker.put(*Q, b"0")
            await elapse(3)
            assert hindering(reports) == [
                "role-1 reaches no store of policy states (Redis, a file); see `skysail doctor`"
            ]
            store.down = False
            await elapse(5)
            assert hindering(reports) == []

    run(scene())


class Answering(FakeExecutors):
    """Executors whose model needs a second to be loaded, and one for a batch."""

    def load(self, load: Load) -> None:
        """Load after a second."""
        self.later(1.0, lambda: self.events.loaded(Loaded.of(load, None, SECOND)))

    def predict(self, predict: Predict) -> None:
        """Fail every row after a second."""
        self.later(1.0, lambda: self.events.predicted(predict, Ran(Predicted.failed(len(predict.rows), "no"), SECOND)))


class Slow(Answering):
    """Executors whose model needs three seconds to be loaded."""

    def load(self, load: Load) -> None:
        """Load after three seconds."""
        self.later(3.0, lambda: self.events.loaded(Loaded.of(load, None, SECOND)))


@dataclass
class AsksModels(ScriptedKernel):
    """Loads a model at its start, and asks it for every record; breaks over a record `break`."""

    fails: int = 0
    outcomes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.decide = self._ask
        self.wakes = [0]
        self.timer = lambda _now_us: [Load(Model("m", "1", "function", "", "", "label", None, ()))]

    def _ask(self, record: Record) -> Effects:
        return [Predict(record.offset, "m", "1", ["row"], SECOND)]

    def on_loaded(self, loaded: Loaded, now_us: int) -> Effects:
        """Do nothing."""
        return []

    def on_predicted(self, batch_id: int, ran: Ran, now_us: int) -> Effects:
        """Answer, unless it is to fail."""
        self.outcomes.append(batch_id)
        if self.fails:
            self.fails -= 1
            raise ZeroDivisionError
        return [Emit("out", 0, None, b"predicted", (Position("queries", 0, batch_id),))]


def test_no_partition_is_taken_before_the_model_is_loaded() -> None:
    """Its queries would wait for a model that is not there."""

    async def scene() -> None:
        async with running(AsksModels(), executors=Answering()) as s:
            await elapse(0.9)
            assert not s.loop.ready.is_set()
            await elapse(0.2)
            assert s.loop.ready.is_set()

    run(scene())


def test_what_a_model_answered_is_performed() -> None:
    """Its effects complete what was asked."""

    async def scene() -> None:
        async with running(AsksModels(), executors=Answering()) as s:
            s.broker.put(*Q, b"1")
            await elapse(3.6)
            assert s.broker.values("out") == [b"predicted"]
            assert s.broker.committed == {Q: 1}

    run(scene())


def test_outcomes_of_batches_that_were_asked_before_a_failure_are_told_after_it() -> None:
    """A kernel that starts over still hears which of its models are free."""

    async def scene() -> None:
        kernel = AsksModels(fails=1)
        async with running(kernel, executors=Answering()) as s:
            s.broker.put(*Q, b"1")
            s.broker.put(*Q, b"2")
            await elapse(8)
            assert {*kernel.outcomes[:2]} == {0, 1}
            assert s.broker.committed == {Q: 2}

    run(scene())


def test_topics_that_a_kernel_pauses_are_left_unread() -> None:
    """The others are read on."""

    async def scene() -> None:
        kernel = ScriptedKernel(pauses=frozenset({"queries"}))
        async with running(kernel, ("queries", "replies")) as s:
            s.broker.put(*Q, b"1")
            s.broker.put("replies", 0, b"r")
            await elapse(1)
            assert kernel.seen() == [b"r"]
            kernel.pauses = frozenset()
            await elapse(1)
            assert kernel.seen() == [b"r", b"1"]

    run(scene())


@pytest.mark.parametrize(("written", "committed"), [(9, None), (0, None), (9, 3)])
def test_a_role_whose_offsets_were_lost_begins_near_the_end_if_it_has_run_before(
    written: int, committed: int | None
) -> None:
    """Otherwise all that it has done would be done again; a new deployment begins at the beginning."""

    class Positions(FakePositions):
        async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
            return {(topic, number): written if topic == "out" else 6 for topic, number in partitions}

    async def scene() -> None:
        broker, kernel = FakeBroker(), ScriptedKernel(window_us=1)
        broker.put(*Q, *(b"%d" % n for n in range(6)))
        if committed is not None:
            broker.committed[Q] = committed
        async with running(kernel, broker=broker, positions=Positions(2), role={"wrote": frozenset((("out", 0),))}):
            await elapse(1)
            start = committed or (4 if written else 0)
            assert kernel.starts == [{0: start}]
            assert [int(value or b"") for value in kernel.seen()] == [*range(max(0, start - 2), 6)]

    run(scene())
