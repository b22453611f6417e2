"""Models that are asked at once, on the thread of whoever asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from schemas.records import Model, Outcome, Tensor
from streams.operators.contract import Load, Predicted
from streams.runtime.ports import ExecutorEvents
from workers.executors.models import ModelExecutors
from workers.executors.thread import Timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input
    from workers.executors.thread import Executor


class Growing:
    """An executor that answers the first number of each row, and at once no more rows than it may."""

    ready = True

    def __init__(self, most: Sequence[int], fails: int = -1) -> None:
        self.most = [*most]  # rows, of each call
        self.fails = fails  # the call that has no answer
        self.asked: list[int] = []

    async def start(self) -> None:
        """There is nothing to load."""

    async def stop(self) -> None:
        """There is nothing to let go."""

    def instant(self, rows: int) -> int:
        """Return how many may be asked now."""
        return min(rows, self.most.pop(0)) if self.most else 0

    def run_quick(self, inputs: Sequence[Input], patience_s: float) -> Timed | None:
        """Answer them, in 5 us."""
        assert patience_s == 1.0
        self.asked.append(len(inputs))
        if len(self.asked) == self.fails:
            return None
        answers = np.array([cast("Tensor", row).numpy()[0] for row in inputs])
        return Timed(Predicted((Outcome.OK,) * len(inputs), answers), 5)


def asked(executor: Growing, rows: int, copy: int = 0) -> tuple[list[float], int] | None:
    """Ask so many rows at once; returns the answers, and how long they took (us)."""

    async def ask() -> Any:
        executors = ModelExecutors(lambda _, __: cast("Executor", executor))
        async with asyncio.TaskGroup() as tasks:
            executors.connect(ExecutorEvents(lambda *_: None, lambda *_: None), tasks)
            executors.load(Load(Model("m", "1", "function", "", "", "label", None, ()), 0))
            matrix = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
            return executors.ask_now("m", copy, Tensor.of(matrix), 1_000_000)

    found = asyncio.run(ask())
    return None if found is None else (found[0].answers.tolist(), found[1])


def test_rows_are_asked_in_parts_that_take_a_moment_each() -> None:
    """Each answer is that of its row, whatever part it was in."""
    executor = Growing([1, 4, 100])
    assert asked(executor, 8) == ([2.0 * row for row in range(8)], 15)
    assert executor.asked == [1, 4, 3]


def test_what_cannot_be_asked_at_once_is_left() -> None:
    """No part may be asked, or one has no answer, or there is no such copy."""
    assert asked(Growing([2]), 8) is None
    assert asked(Growing([4, 4], fails=2), 8) is None
    assert asked(Growing([8]), 8, copy=7) is None
