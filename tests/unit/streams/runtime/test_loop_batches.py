"""A role's loop with a kernel that takes whole batches and writes whole batches, on a fake broker, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import pytest

from streams.operators.contract import NONE_UNREAD, Batch, Skip, Span
from streams.runtime.role.definition import Role
from streams.runtime.role.loop import RoleLoop
from streams.testing.broker import FakeBroker
from streams.testing.packing import Packing
from tests.fakes import FakeConsumer, FakeTransport, ScriptedKernel, echo, fake_ports
from tests.virtual import elapse, run
from tests.whole import WholeKernel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from streams.operators.contract import Effects, Needs, Operator, Record, Unread

Q = ("queries", 0)


class Scene(NamedTuple):
    """A running loop and its surroundings."""

    loop: RoleLoop
    broker: FakeBroker
    transport: FakeTransport


@asynccontextmanager
async def running(
    kernel: ScriptedKernel | WholeKernel, packing: Packing | None = None, role: dict[str, Any] | None = None
) -> AsyncIterator[Scene]:
    """Run a loop until the block ends; its failure is raised there."""
    broker = FakeBroker()
    consumer = FakeConsumer(broker, [Q])
    consumer.packing = packing
    transport = FakeTransport(broker)
    settings = Role("role", "role-1", ("queries",), **(role or {}))
    loop = RoleLoop(settings, cast("Operator", kernel), fake_ports(broker, consumer, transport=transport))
    stop = asyncio.Event()
    task = asyncio.create_task(loop.run(stop))
    try:
        yield Scene(loop, broker, transport)
    finally:
        stop.set()
        await task


def failing(record: Record) -> Effects:
    """Raise on one record, echo the others."""
    if record.value == b"poison":
        raise ValueError("cannot divide by zero queries")
    return [echo(record)]


def in_batches(seed: int = 0, topic: str = "queries") -> Packing:
    """Hand a topic's records out in whole batches now and then."""
    return Packing(frozenset({topic}), Random(seed))


class Always(Random):
    """Draws the largest run, packs it and leaves it in one piece."""

    def randint(self, a: int, b: int) -> int:
        """Draw all."""
        return b

    def random(self) -> float:
        """Draw neither a run that is not packed nor a batch that is cut."""
        return 0.5


WHOLE = Packing(frozenset({"queries"}), Always())


@pytest.mark.parametrize("seed", range(8))
def test_batches_are_read_answered_and_committed_as_their_records_are(seed: int) -> None:
    """Whole ones, slices and records beside each other; nothing is lost, doubled or overtaken."""

    async def scene() -> None:
        kernel = WholeKernel(ScriptedKernel())
        async with running(kernel, role={"at_once": 7}, packing=in_batches(seed)) as s:
            for part in range(5):
                s.broker.put(*Q, *(b"%d" % (40 * part + number) for number in range(40)))
                await elapse(0.2)
            await elapse(1)
            assert s.broker.values("out") == [b"%d" % number for number in range(200)]
            assert s.broker.committed == {Q: 200}
            assert s.loop._tracker.ignored_total == 0
        assert kernel.batches > 5
        assert kernel.finished > 5

    run(scene())


def test_a_slice_has_as_many_records_however_they_come() -> None:
    """A batch of a thousand would hold up timers as a thousand records do."""

    async def scene() -> None:
        inner = ScriptedKernel()
        kernel = WholeKernel(inner)
        async with running(kernel, role={"at_once": 32}, packing=WHOLE) as s:
            s.broker.put(*Q, *(b"%d" % number for number in range(100)))
            await elapse(1)
        assert [len(call) for call in inner.calls] == [32, 32, 32, 4]
        assert kernel.batches == 4

    run(scene())


def test_the_record_of_a_batch_that_a_kernel_fails_on_becomes_a_dead_letter_alone() -> None:
    """The batch is read again record by record; batches behind it are whole again."""

    async def scene() -> None:
        inner = ScriptedKernel(decide=failing)
        kernel = WholeKernel(inner)
        async with running(kernel, packing=WHOLE) as s:
            s.broker.put(*Q, b"1", b"2", b"poison", b"3", b"4")
            await elapse(2)
            assert s.broker.values("out") == [b"1", b"2", b"3", b"4"]
            assert s.broker.values("queries.dlq") == [b"poison"]
            assert s.broker.committed == {Q: 5}
            assert s.loop._guard.counters["kernel_failures_total"] == 2, "once with the batch, once alone"
            before = kernel.batches
            s.broker.put(*Q, b"5", b"6")
            await elapse(2)
            assert (kernel.batches, len(inner.calls[-1])) == (before + 1, 2)

    run(scene())


def test_a_batch_of_one_record_that_a_kernel_fails_on_is_looked_at_as_a_record() -> None:
    """The batch is not to blame: its dead letter is the record's."""

    async def scene() -> None:
        async with running(WholeKernel(ScriptedKernel(decide=failing)), packing=WHOLE) as s:
            s.broker.put(*Q, b"poison")
            await elapse(2)
            assert s.broker.values("queries.dlq") == [b"poison"]
            assert s.broker.committed == {Q: 1}

    run(scene())


def test_a_batch_that_is_not_what_was_written_is_read_again() -> None:
    """Whoever takes it finds that out; no record is lost, and none becomes a dead letter."""

    class Spoiling(Packing):
        """Flips a bit of the first batch."""

        def __call__(self, records: Iterable[Record]) -> list[Record | Batch]:
            found = WHOLE(records)
            return [one._replace(data=one.data[:-1] + b"\x7f") if isinstance(one, Batch) else one for one in found]

    async def scene() -> None:
        kernel = WholeKernel(ScriptedKernel())
        async with running(kernel, packing=Spoiling(frozenset(), Random(0))) as s:
            s.broker.put(*Q, b"1", b"2")
            await elapse(2)
            assert (s.broker.values("out"), s.broker.committed) == ([b"1", b"2"], {Q: 2})
            assert s.broker.values("queries.dlq") == []
            assert kernel.batches == 1

    run(scene())


def test_what_is_left_of_a_batch_counts_as_unread_with_all_its_records() -> None:
    """A joiner waits until all feedback before a window's end has been read."""

    class Told(ScriptedKernel):
        told: ClassVar[list[Mapping[tuple[str, int], int]]] = []

        def needs(self) -> Needs:
            return super().needs()._replace(is_told_unread=True)

        def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
            self.wakes = [now_us]
            return super().on_records(records, now_us)

        def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
            self.told.append(dict(unread))
            return super().on_timer(now_us, unread)

    async def scene() -> None:
        async with running(WholeKernel(Told()), WHOLE, {"at_once": 40}) as s:
            s.broker.put(*Q, *(b"%d" % number for number in range(100)))
            await elapse(1)
        assert Told.told[:2] == [{Q: 60}, {Q: 20}]

    run(scene())


def test_what_is_skipped_in_spans_is_complete_and_counted() -> None:
    """A record needs no outcome of its own, nor do thousands of them."""

    async def scene() -> None:
        kernel = ScriptedKernel(decide=lambda record: [Skip((), "seen", (Span(*Q, record.offset, record.offset + 1),))])
        async with running(kernel) as s:
            s.broker.put(*Q, b"1", b"2")
            await elapse(2)
            assert s.broker.committed == {Q: 2}
            assert s.loop._performer.counters["skipped_total{reason=seen}"] == 2

    run(scene())
