"""Which batches run on the event loop's own thread, and who notices one that hangs there."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.records import Outcome
from streams.operators.contract import Predicted
from workers.executors.hang_monitor import LOOKS, Sentinel
from workers.executors.loop_budget import (
    HAND_OVER_US,
    LOCKED_US,
    PROOFS,
    PROOFS_AGAIN,
    QUICK_US,
    SURPRISE_US,
    Quickness,
)
from workers.executors.thread import ThreadExecutor
from workers.kernel.model.service_times import ServiceTimes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input


def proven(cpu_us: int, rows: int = 1, wait_us: int = 0, *, keeps_lock: bool = False) -> Quickness:
    """Return what has been learnt from batches that are all alike."""
    quickness = Quickness(keeps_lock=keeps_lock)
    for _ in range(PROOFS):
        quickness.observe(rows, cpu_us + wait_us, cpu_us)
    return quickness


def test_a_model_is_quick_after_so_many_batches_and_no_sooner() -> None:
    """Whatever the first ones took."""
    quickness = Quickness()
    for _ in range(PROOFS):
        assert not quickness.expects(1)
        quickness.observe(1, 50, 50)
    assert quickness.expects(1)


def test_a_slow_model_is_never_quick() -> None:
    """The bound itself is still quick, a microsecond more is not, whether it computes or waits."""
    assert proven(QUICK_US).expects(1)
    assert not proven(QUICK_US + 1).expects(1)
    assert proven(50, wait_us=QUICK_US - 50).expects(1)
    assert not proven(50, wait_us=QUICK_US - 49).expects(1)


def test_where_more_rows_wait_only_what_costs_less_than_the_hand_over_is_quick() -> None:
    """Beside the thread the event loop gets on with them."""
    assert proven(HAND_OVER_US).expects(1, more=True)
    assert not proven(HAND_OVER_US + 1).expects(1, more=True)


def test_more_rows_than_were_ever_seen_are_taken_to_cost_as_much_more() -> None:
    """Four rows in 100 us: 40 are expected within a millisecond, 48 are not; fewer cost no more."""
    quickness = proven(100, rows=4)
    assert [quickness.expects(rows) for rows in (1, 4, 40, 48)] == [True, True, True, False]


def test_a_size_that_was_seen_is_judged_by_its_own_times() -> None:
    """Large batches that turn out slow, at work or waiting, go to the thread; small ones do not."""
    quickness = proven(100)
    for _ in range(PROOFS):
        quickness.observe(64, 3_000, 3_000)
        quickness.observe(256, 3_000, 100)
    assert [quickness.expects(rows) for rows in (1, 16, 64, 256)] == [True, False, False, False]


def test_a_busy_machine_does_not_make_a_model_slow() -> None:
    """Most of its batches wait for a core or for Python's lock, but not all: it is the same model."""
    quickness = proven(100)
    for batch in range(100):
        quickness.observe(1, 120 if batch % 5 == 0 else 15_000, 110)
        assert quickness.expects(1)
        quickness.observe_expected(1, 120 if batch % 5 == 0 else 15_000, 110)
    assert quickness.expects(1)


@pytest.mark.parametrize("cpu_us", [100, SURPRISE_US])
def test_a_surprise_sends_the_model_back_to_the_thread_for_a_good_while(cpu_us: int) -> None:
    """Whether it was at work or waited; then it may prove itself again."""
    quickness = proven(100)
    quickness.observe_expected(1, SURPRISE_US + 1, cpu_us)
    for _ in range(PROOFS_AGAIN):
        assert not quickness.expects(1)
        quickness.observe(1, 100, 100)
    assert quickness.expects(1)


@pytest.mark.parametrize(("every", "is_quick"), [(20, False), (200, True)])
def test_what_keeps_the_loop_too_often_is_as_bad_as_one_surprise(every: int, is_quick: bool) -> None:
    """30 ms of work once in twenty batches are the model's way; once in two hundred they may be forgotten."""
    quickness = proven(100)
    for batch in range(1_000):
        if quickness.expects(1):
            cpu_us = 30_000 if batch % every == 0 else 700
            quickness.observe_expected(1, cpu_us, cpu_us)
    assert quickness.expects(1) == is_quick


@pytest.mark.parametrize("more", [False, True])
def test_a_model_that_keeps_the_lock_needs_no_thread(more: bool) -> None:
    """Beside it the event loop gets nothing done: whether or not more rows are there, up to what it may be kept."""
    assert proven(LOCKED_US, keeps_lock=True).expects(1, more=more)
    assert not proven(LOCKED_US + 1, keeps_lock=True).expects(1, more=more)


def test_a_model_that_waits_for_most_of_its_time_keeps_its_thread() -> None:
    """As a function that asks another service: meanwhile the lock is free."""
    assert proven(10_000, wait_us=10_000, keeps_lock=True).expects(1)
    assert not proven(10_000, wait_us=10_001, keeps_lock=True).expects(1)


def test_a_batch_that_keeps_the_loop_for_too_long_goes_back_to_the_thread() -> None:
    """Twice what is allowed to a model that keeps the lock is too long."""
    quickness = proven(6_000, keeps_lock=True)
    quickness.observe_expected(1, 2 * LOCKED_US, 6_000)
    assert quickness.expects(1)
    quickness.observe_expected(1, 2 * LOCKED_US + 1, 6_000)
    assert not quickness.expects(1)


def test_times_are_guessed_from_the_nearest_size() -> None:
    """Scaled up from a smaller one, as they are from a larger one; 0 before the first batch."""
    times = ServiceTimes()
    assert times.usual(3) == 0
    times.observe(8, 400)
    assert [times.usual(rows) for rows in (1, 8, 15, 16, 64)] == [400, 400, 400, 800, 3_200]


def test_a_call_that_every_look_finds_hangs() -> None:
    """It is told once, with its rows and its patience."""
    told: list[str] = []
    sentinel = Sentinel(told.append)
    assert sentinel.look_s is None
    sentinel.begin(3, 2.0)
    assert sentinel.look_s == 2.0 / LOOKS
    for _ in range(LOOKS):
        sentinel.look()
        assert told == []
    sentinel.look()
    sentinel.look()
    assert len(told) == 1
    assert "did not answer 3 rows within 2.0 s" in told[0]


def test_calls_that_come_back_never_hang() -> None:
    """However often a look finds one running: it is another one, or none."""
    told: list[str] = []
    sentinel = Sentinel(told.append)
    for _ in range(10):
        sentinel.begin(1, 2.0)
        for _ in range(LOOKS):
            sentinel.look()
        sentinel.over()
    for _ in range(2 * LOOKS):
        sentinel.look()
    assert told == []


async def test_a_long_row_counts_as_many_and_goes_to_the_thread() -> None:
    """A model that is quick on rows like its sample's is not on one that is as long as a million of them."""

    def predict(rows: Sequence[Input]) -> Predicted:
        return Predicted((Outcome.OK,) * len(rows), np.ones(len(rows)))

    times_us = iter(range(0, 1_000_000, 50))
    executor = ThreadExecutor(lambda: predict, lambda: next(times_us), cpu_ns=lambda: 0)
    executor.weigh(10)
    await executor.start()
    for _ in range(PROOFS):
        await executor.run(["a" * 10], 5)
    assert executor.is_quick(1, more=False)
    assert executor.run_quick(["a" * 10], 5) is not None
    assert executor.run_quick(["a" * 10_000_000], 5) is None
    await executor.stop()


def test_no_row_is_asked_at_once_before_the_model_is_known() -> None:
    """However few there are."""
    assert Quickness().instant(1) == 0


def test_as_many_rows_are_asked_at_once_as_take_a_millisecond() -> None:
    """All of a size that is known, or follows from it; part of what was never asked, where there is room to try."""
    quickness = proven(QUICK_US // 8)
    assert quickness.instant(1) == 1
    assert quickness.instant(8) == 8
    assert quickness.instant(500) == 8
    quickness.observe_expected(8, QUICK_US // 8, QUICK_US // 8)
    assert quickness.instant(500) == 64


def test_a_slow_model_is_not_asked_at_once_again_and_again() -> None:
    """Where the largest size takes its time, more rows are not tried."""
    quickness = proven(QUICK_US // 2, rows=16)
    assert quickness.instant(16) == 16
    assert quickness.instant(500) == 0


async def test_a_model_that_its_thread_asks_is_not_asked_at_once() -> None:
    """It need not bear two at a time; afterwards it is."""
    is_asked, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def predict(rows: Sequence[Input]) -> Predicted:
        if len(rows) == 2:
            loop.call_soon_threadsafe(is_asked.set)
            goes_on.wait()
        return Predicted((Outcome.OK,) * len(rows), np.ones(len(rows)))

    times_us = iter(range(0, 1_000_000, 50))
    executor = ThreadExecutor(lambda: predict, lambda: next(times_us), cpu_ns=lambda: 0)
    await executor.start()
    for _ in range(PROOFS):
        await executor.run(["a"], 5)
    assert executor.instant(1) == 1
    running = asyncio.create_task(executor.run(["a", "b"], 5))
    await is_asked.wait()
    assert executor.instant(1) == 0
    goes_on.set()
    await running
    assert executor.instant(1) == 1
    await executor.stop()
