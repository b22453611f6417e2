"""A role's loop and the models that run on its thread: what is decided is performed in order, whatever it leads to."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from schemas.records import Model, Outcome
from streams.operators.contract import Emit, Load, Loaded, Position, Predict, Predicted, Ran, Record
from streams.runtime.role.definition import Role
from streams.runtime.role.loop import RoleLoop
from streams.testing.broker import FakeBroker
from tests.fakes import FakeConsumer, FakeTransport, ScriptedKernel, fake_ports
from tests.virtual import elapse, in_virtual_time
from workers.executors.models import ModelExecutors
from workers.executors.thread import Timed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from schemas.records import Input
    from streams.operators.contract import Effects

Q = ("queries", 0)


class Instant:
    """An executor whose model answers at once, on the event loop's own thread."""

    ready = True

    async def start(self) -> None:
        """There is nothing to load."""

    async def stop(self) -> None:
        """There is nothing to let go."""

    def is_quick(self, rows: int, *, more: bool) -> bool:
        """Whether a batch runs here: any."""
        return True

    def run_quick(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Answer 1 to every row."""
        return Timed(Predicted((Outcome.OK,) * len(inputs), np.ones(len(inputs))), 0)

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Answer the same."""
        return self.run_quick(inputs, patience_s)


@dataclass
class Asks(ScriptedKernel):
    """Asks a model about each record, so many times one after the other, and then answers.

    Attributes:
        rounds: batches that a record needs.
        fails: of calls with an answer, how many raise, beginning with the second.
        told: batches, in the order of their answers.
    """

    rounds: int = 1
    fails: int = 0
    told: list[int] = field(default_factory=list)
    _running: dict[int, tuple[Record, int]] = field(default_factory=dict)
    _batches: int = 0

    def __post_init__(self) -> None:
        self.decide = lambda record: [*self._ask(record, 1), _says(record, "asked")]
        self.wakes = [0]
        self.timer = lambda _now_us: [Load(Model("m", "1", "function", "", "", "label", None, ()), 0, is_vital=True)]

    def _ask(self, record: Record, number: int) -> Effects:
        self._batches += 1
        self._running[self._batches] = record, number
        return [Predict(self._batches, "m", "1", ["row"], 1_000_000, is_vital=True)]

    def on_loaded(self, loaded: Loaded, now_us: int) -> Effects:
        """Do nothing."""
        return []

    def on_predicted(self, batch_id: int, ran: Ran, now_us: int) -> Effects:
        """Ask again, or answer; the first batch after the first may fail."""
        self.told.append(batch_id)
        if self.fails and len(self.told) > 1:
            self.fails -= 1
            raise ZeroDivisionError
        record, number = self._running.pop(batch_id)
        if number < self.rounds:
            return [*self._ask(record, number + 1), _says(record, f"again {number}")]
        return [_says(record, "answered", record.position)]


def _says(record: Record, what: str, *completes: Position) -> Emit:
    return Emit("out", 0, None, b"%s %s" % (record.value, what.encode()), completes)


@asynccontextmanager
async def running(kernel: Asks, *records: bytes) -> AsyncIterator[FakeTransport]:
    """Run a loop over these records until the block ends."""
    broker = FakeBroker()
    broker.put(*Q, *records)
    executors = ModelExecutors(lambda _model, _chose: Instant())
    ports = fake_ports(broker, FakeConsumer(broker, [Q]), executors=executors, transport=FakeTransport(broker))
    stop = asyncio.Event()
    task = asyncio.create_task(RoleLoop(Role("role", "role-1", ("queries",)), kernel, ports).run(stop))
    try:
        yield cast("FakeTransport", ports.transport)
    finally:
        stop.set()
        await task


@in_virtual_time
async def test_what_was_decided_first_is_written_first() -> None:
    """All that a poll leads to stands before what its answers lead to, and so on from answer to answer."""
    async with running(Asks(rounds=3), b"a", b"b") as transport:
        await elapse(2)
        said = [(value or b"").decode() for value in transport.broker.values("out")]
    steps = ["asked", "again 1", "again 2", "answered"]
    assert said == [f"{record} {step}" for step in steps for record in "ab"]
    assert transport.broker.committed == {Q: 2}


@in_virtual_time
async def test_a_poll_s_answers_leave_in_one_batch_with_the_poll_s_own_records() -> None:
    """No turn of the event loop lies between them."""
    async with running(Asks(), b"a", b"b", b"c") as transport:
        await elapse(2)
    assert [batch for batch in transport.batches if batch[0] == "out"] == [("out", 0, 6)]


@in_virtual_time
async def test_however_many_batches_follow_one_another_each_is_told() -> None:
    """They do not nest: the stack holds one."""
    kernel = Asks(rounds=1_000)
    async with running(kernel, b"a") as transport:
        await elapse(2)
    assert kernel.told == [*range(1, 1_001)]
    assert transport.broker.committed == {Q: 1}


@pytest.mark.parametrize("fails", [1, 2, 3])
@in_virtual_time
async def test_a_kernel_that_fails_on_an_answer_starts_over_and_hears_of_every_batch(fails: int) -> None:
    """In the middle of performing a poll's effects: batches that follow are told once it has started over."""
    kernel = Asks(fails=fails)
    async with running(kernel, b"a", b"b", b"c") as transport:
        await elapse(5)
    assert {*kernel.told} >= {1, 2, 3}
    assert len({*kernel.told}) == len(kernel.told)
    assert len(kernel.starts) > 1
    assert transport.broker.committed == {Q: 3}
