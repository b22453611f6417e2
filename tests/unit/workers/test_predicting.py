"""A worker's kernel, its timer and what runs its model: when batches start, and when they are answered."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.deferred import Deferred
from schemas import topics
from schemas.codec import Codec
from schemas.records import Model, ModelPredictions, ModelQueries, Outcome, Tensor
from streams.operators.contract import Emit, Predicted, Record
from tests.virtual import VirtualClock, elapse, run
from tests.workers import Replica
from workers.executors.thread import Timed
from workers.kernel.model.lane import patience_us
from workers.kernel.model.worker import ModelWorker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input

CODEC = Codec()
BATCH_S = 0.005
MS = 1_000


class Slow:
    """An executor whose model takes 5 ms of virtual time a batch."""

    ready = True

    async def start(self) -> None:
        """There is nothing to load."""

    async def stop(self) -> None:
        """There is nothing to let go."""

    def is_quick(self, rows: int, *, more: bool) -> bool:
        """Leave it to `run`."""
        return False

    def run_quick(self, rows: Sequence[Input], patience_s: float) -> Timed | None:
        """Leave it to `run`."""
        return None

    async def run(self, rows: Sequence[Input], patience_s: float) -> Timed:
        """Answer 1 to every row."""
        await elapse(BATCH_S)
        return Timed(Predicted((Outcome.OK,) * len(rows), np.ones(len(rows), np.int64)), round(BATCH_S * 1e6))


class Fast(Slow):
    """An executor whose model takes no time, whatever it says, except for rows that it hands to its thread."""

    def __init__(self, quick: Sequence[bool], predict_us: int = 100) -> None:
        self._quick = list(quick)
        self._predict_us = predict_us
        self.more: list[bool] = []
        self.done: list[str] = []

    def is_quick(self, rows: int, *, more: bool) -> bool:
        """Whether the next batch is."""
        self.more.append(more)
        if not self._quick.pop(0):
            self.done.append("in the thread")
            return False
        return True

    def run_quick(self, rows: Sequence[Input], patience_s: float) -> Timed | None:
        """Answer 1 to every row at once."""
        self.done.append("on the loop")
        return Timed(Predicted((Outcome.OK,) * len(rows), np.ones(len(rows), np.int64)), self._predict_us)


def asked(offset: int, due_us: int) -> Record:
    """Make the record of one query."""
    query = ModelQueries((f"q{offset}",), 0, (due_us,), Tensor.of(np.zeros((1, 2), np.float32)))
    return Record(topics.model_queries("m"), 0, offset, 0, None, CODEC.encode(query))


async def scene(controller: str, parameters: dict[str, float]) -> tuple[list[tuple[float, int]], dict[str, float]]:
    """Ask once to warm up, then two rows 4 ms apart, due in a second; returns (ms after the first, rows) of batches."""
    clock, batches = VirtualClock(), list[tuple[int, int]]()
    model = Model("m", "1", "function", "nowhere", "", "label", "float32", (2,))
    settings = WorkerSettings(controller=controller, parameters=parameters, objective_us=20 * MS)
    kernel = ModelWorker(CODEC, model, "w", settings)

    def write(emit: Emit) -> None:
        batches.append((clock.now_us(), CODEC.decode(ModelPredictions, emit.value).batch_rows))

    async with Replica(kernel, Slow(), write) as replica:
        for offset, pause_s in enumerate((0.1, 0.1, 0.1, 0.1, 0.004, 0.2)):
            if offset == 4:
                start_us = clock.now_us()
            replica.read([asked(offset, clock.now_us() + 1_000 * MS)])
            await elapse(pause_s)
    found = [((at - start_us) / MS, rows) for at, rows in batches if at >= start_us]
    return found, dict(kernel.statistics())


def test_a_timer_ends_the_wait_of_a_batch_that_is_not_full() -> None:
    """Both rows go together when the linger maximum is over, and the report says why."""
    batches, figures = run(scene(Deferred.name, {"linger_ms": 10.0, "eager_below": 0.0}))
    assert batches == [(15.0, 2)]
    assert figures["batches_total{model=m,reason=linger}"] >= 1


def test_a_controller_that_never_waits_starts_at_once() -> None:
    """Each row alone, five milliseconds after it came."""
    batches, figures = run(scene("quantile", {}))
    assert [rows for _, rows in batches] == [1, 1]
    assert batches[0][0] == 5.0
    assert figures["batches_total{model=m,reason=eager}"] + figures["batches_total{model=m,reason=cap}"] == 6


def test_allowed_batch_sizes_are_those_of_the_model_that_they_name() -> None:
    """Its cap is one of them from the start; another model's is not touched."""
    caps = []
    for name in ("m", "other"):
        settings = WorkerSettings(allowed_batch_sizes={"m": (8, 32)})
        model = Model(name, "1", "function", "nowhere", "", "label", "float32", (2,))
        caps.append(ModelWorker(CODEC, model, "w", settings).statistics()[f"batch_cap{{model={name}}}"])
    assert caps == [8, 1]


async def answers(
    executor: Slow, offers: Sequence[Sequence[int]], pause_s: float = 0.0, rows: int = 1, log: list[str] | None = None
) -> list[tuple[float, str]]:
    """Offer queries by offset, polls `pause_s` apart; returns (ms since the first, query) in the order of writing."""
    clock, written = VirtualClock(), list[tuple[float, str]]()
    model = Model("m", "1", "function", "nowhere", "", "label", "float32", (2,))
    settings = WorkerSettings(controller="fixed", parameters={"rows": float(rows)})
    start_us = clock.now_us()

    def write(emit: Emit) -> None:
        written.extend(((clock.now_us() - start_us) / MS, query_id) for query_id in ids(emit))
        if log is not None:
            log.extend(ids(emit))

    async with Replica(ModelWorker(CODEC, model, "w", settings), executor, write) as replica:
        for offsets in offers:
            replica.read([asked(offset, clock.now_us() + 1_000 * MS) for offset in offsets])
            await elapse(pause_s)
        await elapse(0.1)
    return written


def test_a_quick_batch_is_answered_in_the_call_that_brings_its_rows() -> None:
    """Nothing else has a turn between a poll and its answers."""

    async def scene() -> list[str]:
        written, clock = list[str](), VirtualClock()
        async with Replica(quick_worker(), Fast([True]), lambda emit: written.extend(ids(emit))) as replica:
            replica.read([asked(0, clock.now_us() + 1_000 * MS)])
            return [*written]

    assert run(scene()) == ["q0"]


def test_answers_are_written_in_order_where_quick_batches_follow_others() -> None:
    """What the thread has predicted is answered first: before the other batch runs, which it need not wait for."""
    executor = Fast([False, True, False, True])
    written = run(answers(executor, [[0, 1, 2, 3]], log=executor.done))
    assert written == [(5.0, "q0"), (5.0, "q1"), (10.0, "q2"), (10.0, "q3")]
    assert executor.done == ["in the thread", "q0", "on the loop", "q1", "in the thread", "q2", "on the loop", "q3"]


@given(st.lists(st.booleans(), min_size=30, max_size=30), st.lists(st.integers(0, 4), max_size=7), st.integers(1, 3))
def test_every_row_is_answered_once_and_in_order_whatever_is_quick(
    quick: list[bool], sizes: list[int], rows: int
) -> None:
    """Batches on the loop and in the thread follow one another as they like, while others come."""
    numbers = iter(range(30))
    offers = [[*islice(numbers, size)] for size in sizes]
    written = run(answers(Fast(quick), offers, pause_s=0.003, rows=rows))
    assert [query_id for _, query_id in written] == [f"q{number}" for number in range(sum(sizes))]


@pytest.mark.parametrize(
    ("offers", "written"),
    [
        ([[0, 1, 2], [3]], [(0.0, "q0"), (0.0, "q1"), (3.0, "q2"), (3.0, "q3")]),
        ([[0, 1, 2]], [(0.0, "q0"), (0.0, "q1"), (4.0, "q2")]),
        ([[0, 1, 2, 3], [4]], [(0.0, "q0"), (0.0, "q1"), (0.0, "q2"), (0.0, "q3"), (3.0, "q4")]),
        ([[0, 1], [2]], [(0.0, "q0"), (0.0, "q1"), (3.0, "q2")]),
    ],
    ids=["joins", "does not come", "finds a full batch before it", "comes to a model that is idle"],
)
def test_what_came_while_a_batch_kept_the_loop_joins_the_next(
    offers: Sequence[Sequence[int]], written: list[tuple[float, str]]
) -> None:
    """That one waits for it for half of the 8 ms at most, and only where it has room."""
    assert run(answers(Fast([True] * 4, predict_us=8 * MS), offers, pause_s=0.003, rows=2)) == written


def test_the_executor_is_told_whether_rows_are_left_behind() -> None:
    """A batch with others behind it is quick only if the thread would not pay off."""
    executor = Fast([True] * 4)
    run(answers(executor, [[0, 1, 2], [3]], pause_s=0.01))
    assert executor.more == [True, True, False, False]


@pytest.mark.parametrize(
    ("batch_us", "together", "apart"),
    [(0, 20, 1), (60, 9, 1), (300, 2, 1), (600, 1, 1), (4_000, 1, 5)],
    ids=["all in one", "until it is over", "what has begun is ended", "a batch at least", "a breath after a long one"],
)
def test_a_backlog_of_quick_batches_leaves_turns_to_others(batch_us: int, together: int, apart: int) -> None:
    """The event loop reads, writes and keeps its deadlines whenever half a millisecond is over."""

    async def scene() -> list[int]:
        seen, clock = list[int](), VirtualClock()
        executor = Taking([True] * 20, batch_us)
        async with Replica(quick_worker(), executor, lambda _: seen.append(executor.turn), executor.now_s) as replica:
            others = asyncio.create_task(executor.give_turns())
            await asyncio.sleep(0)
            replica.read([asked(n, clock.now_us() + 1_000 * MS) for n in range(20)])
            for _ in range(500):
                await asyncio.sleep(0)
            others.cancel()
        return [turn - seen[0] for turn in seen]

    assert run(scene()) == [batch // together * apart for batch in range(20)]


class Taking(Fast):
    """A model whose batches take their time, beside others that take 110 us in each turn of the event loop."""

    turn = now_us = 0

    def now_s(self) -> float:
        """Return what time it is."""
        return self.now_us / 1e6

    def run_quick(self, rows: Sequence[Input], patience_s: float) -> Timed | None:
        """Answer when that time is over."""
        self.now_us += self._predict_us
        return super().run_quick(rows, patience_s)

    async def give_turns(self) -> None:
        """Let time pass in each turn."""
        while True:
            self.turn += 1
            self.now_us += 110
            await asyncio.sleep(0)


def test_in_a_breath_a_quick_batch_waits_for_another_turn() -> None:
    """A batch of 4 ms leaves half a millisecond to others, whoever brings the next rows."""

    async def scene() -> list[tuple[float, str]]:
        now_us, written, clock = [0], list[tuple[float, str]](), VirtualClock()

        def write(emit: Emit) -> None:
            written.extend((now_us[0], query_id) for query_id in ids(emit))

        executor = Fast([True] * 3, predict_us=4_000)
        async with Replica(quick_worker(), executor, write, lambda: now_us[0] / 1e6) as replica:
            for offset, at_us in enumerate((0, 499, 1_000)):
                now_us[0] = at_us
                replica.read([asked(offset, clock.now_us() + 1_000 * MS)])
                await asyncio.sleep(0)
        return written

    assert run(scene()) == [(0, "q0"), (1_000, "q1"), (1_000, "q2")]


def quick_worker() -> ModelWorker:
    """Make a kernel that asks row by row."""
    model = Model("m", "1", "function", "nowhere", "", "label", "float32", (2,))
    return ModelWorker(CODEC, model, "w", WorkerSettings(controller="fixed"))


def ids(emit: Emit) -> tuple[str, ...]:
    """Return which queries a record answers."""
    return tuple(CODEC.decode(ModelPredictions, emit.value).query_ids)


def test_patience_is_of_all_models_or_by_name() -> None:
    """A model of which nothing is said is given ten objectives, as ever."""
    assert WorkerSettings(patience_s=2.0).patience_of("digits") == 2.0
    by_name = WorkerSettings(patience_s={"digits": 3.0})
    assert (by_name.patience_of("digits"), by_name.patience_of("others")) == (3.0, None)


def test_patience_is_ten_objectives_and_five_seconds_at_least() -> None:
    """A pause of the machine is no hang."""
    assert (patience_us(20 * MS), patience_us(2_000 * MS)) == (5_000 * MS, 20_000 * MS)
