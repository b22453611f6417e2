"""A worker's queue and executor without Kafka: rows always wait, and batches follow each other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from workers.executors.factory import executor_of
from workers.kernel.model.batcher import Batcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.batching import Controller
    from schemas.records import Input, Model
    from workers.executors.thread import Executor, Timed
    from workers.settings import WorkerSettings

_PATIENCE_S = 60.0
_NEVER_US = 600_000_000
_QUEUE_ROWS = 1 << 16


class Stretch(NamedTuple):
    """What was done in a stretch.

    Attributes:
        batches: rows of each, and how long the model took for it (us).
        elapsed_s: of the clock on the wall, with everything between the batches.
    """

    batches: Sequence[tuple[int, int]]
    elapsed_s: float

    def per_s(self, objective_us: float = float("inf")) -> float:
        """Return the rows a second of batches that took no longer."""
        return sum(rows for rows, took_us in self.batches if took_us <= objective_us) / self.elapsed_s


def now_us() -> int:
    """Return the clock that batches are timed by."""
    return time.perf_counter_ns() // 1000


class BusyWorker:
    """One queue before an executor, which other queues may share in turn."""

    def __init__(
        self,
        executor: Executor,
        stock: Sequence[Input],
        controller: Controller,
        objective_us: int | None = None,
        now_us: Callable[[], int] = now_us,
    ) -> None:
        """Queue nothing yet.

        Args:
            executor: has been started.
            stock: the rows, which are asked round and round.
            controller: of the batches.
            objective_us: how long a batch may take.
            now_us: the clock.
        """
        self._executor = executor
        self._stock = stock
        self._batcher: Batcher[int] = Batcher(controller, limit=_QUEUE_ROWS, objective_us=objective_us)
        self._asked = 0
        self._now_us = now_us

    async def work(self, seconds: float) -> Stretch:
        """Predict for so long, one batch at least."""
        batches: list[tuple[int, int]] = []
        started_us = self._now_us()
        while not batches or self._now_us() - started_us < seconds * 1e6:
            self._fill()
            take = self._batcher.take(self._now_us())
            timed = await self._predict([self._stock[row.item % len(self._stock)] for row in take.rows])
            self._batcher.done(len(take.rows), timed.predict_us, self._now_us())
            batches.append((len(take.rows), timed.predict_us))
        return Stretch(batches, (self._now_us() - started_us) / 1e6)

    def _fill(self) -> None:
        missing = max(0, 2 * self._batcher.cap - len(self._batcher))
        at_us = self._now_us()
        self._batcher.offer([(at_us + _NEVER_US, self._asked + place) for place in range(missing)], at_us)
        self._asked += missing

    async def _predict(self, rows: Sequence[Input]) -> Timed:
        """Predict where a role would."""
        if self._executor.is_quick(len(rows), more=True):
            timed = self._executor.run_quick(rows, _PATIENCE_S)
            if timed is not None:
                return timed
        return await self._executor.run(rows, _PATIENCE_S)


async def started(model: Model, settings: WorkerSettings) -> Executor:
    """Return what runs a version as a worker does, loaded."""
    executor = executor_of(model, settings, now_us, lambda _: None)
    await executor.start()
    return executor
