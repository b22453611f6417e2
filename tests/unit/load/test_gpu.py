"""What `gpu` computes from what it measures, and the busy worker without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from load.research.batching import gpu
from load.research.batching.busy_worker import BusyWorker
from load.research.batching.large_networks import Found, goodput_of, hidden
from policies.aimd import Aimd
from policies.fixed import Fixed
from streams.operators.contract import Predicted
from workers.executors.thread import OffLoopExecutor, Timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input


class Timing(OffLoopExecutor):
    """An executor in virtual time: 5 ms a batch and 0.1 ms a row, and 1 ms to hand it over."""

    ready = True

    def __init__(self) -> None:
        self.now_us = 0
        self.asked: list[Sequence[Input]] = []

    def clock(self) -> int:
        """Return the virtual time."""
        return self.now_us

    async def start(self) -> None:
        """Load nothing."""

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Let the time pass."""
        self.asked.append(inputs)
        took_us = 5_000 + 100 * len(inputs)
        self.now_us += took_us + 1_000
        return Timed(Predicted.failed(len(inputs), f"within {patience_s:g} s"), took_us)

    async def stop(self) -> None:
        """Let go of nothing."""


async def test_rows_always_wait_so_that_every_batch_is_full() -> None:
    """They come round and round, and the time between batches counts."""
    executor = Timing()
    stretch = await BusyWorker(executor, ["a", "b", "c"], Fixed(4), now_us=executor.clock).work(0.064)
    assert stretch.batches == [(4, 5_400)] * 10
    assert "".join(map(str, executor.asked[0])) + "".join(map(str, executor.asked[1])) == "abcabcab"
    assert stretch.per_s() == pytest.approx(40 / 0.064)


async def test_batches_beyond_the_objective_count_nothing() -> None:
    """The time that they took counts all the same."""
    executor = Timing()
    stretch = await BusyWorker(executor, ["a"], Fixed(4), now_us=executor.clock).work(0.064)
    assert stretch.per_s(5_400) == stretch.per_s()
    assert stretch.per_s(5_399) == 0


async def test_a_controller_goes_on_where_it_was() -> None:
    """150 rows take the 20 ms of the objective; the controller has found them, near enough, after three seconds."""
    executor = Timing()
    worker = BusyWorker(executor, ["a"], Aimd(), 20_000, executor.clock)
    await worker.work(3)
    rows = [rows for rows, _ in (await worker.work(0.5)).batches]
    assert min(rows) > 120
    assert max(rows) <= 151


@pytest.mark.parametrize(("took_s", "share"), [(5.0, 0.0), (4.0, 0.5), (3.0, 1.0), (2.5, 1.0), (9.0, 0.0)])
def test_what_is_hidden_is_a_share_of_the_shorter(took_s: float, share: float) -> None:
    """Copies of 2 s and arithmetic of 3 s take 5 s one after the other, and 3 s at best."""
    assert hidden(2.0, 3.0, took_s) == share


def test_the_worst_of_each_kind_is_judged() -> None:
    """Single rows are left out of the share of the bare loop: handing them over is much of their time."""
    series = [
        {"model": "wide", "way": way, "rows": rows, "per_s": rate}
        for way, rows, rate in (
            *(("bare", 1, 100.0), ("worker", 1, 50.0), ("bare", 8, 400.0), ("worker", 8, 380.0)),
            *(("bare", 32, 800.0), ("worker", 32, 720.0)),
        )
    ]
    figures = {"wide_20ms_aimd_share_of_best": 0.97, "wide_50ms_aimd_share_of_best": 0.96}
    assert gpu.least(figures, series) == {"least_share_of_bare": 0.9, "aimd_least_share": 0.96}
    overlaps = {**figures, "wide_overlap": 0.7, "image_overlap": 0.6}
    assert gpu.least(overlaps, series)["least_overlap"] == 0.6


def test_the_controller_is_held_to_the_size_that_was_best_in_other_rounds() -> None:
    """In the second round 8 rows were luckiest, but in the others 4 were best."""
    found = Found(
        good={
            **{(of, 0): [90.0, 90.0, 90.0] for of in (20, 50)},
            **{(of, 4): [100.0, 100.0, 100.0] for of in (20, 50)},
            **{(of, 8): [80.0, 110.0, 80.0] for of in (20, 50)},
        },
        rows={20: 4.0, 50: 4.0},
    )
    figures = goodput_of("wide", found)
    assert figures["wide_20ms_best_fixed_good_per_s"] == 100
    assert figures["wide_20ms_best_fixed_rows"] == 4
    assert figures["wide_50ms_aimd_share_of_best"] == pytest.approx(0.9)
