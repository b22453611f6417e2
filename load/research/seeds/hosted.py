"""The process with the models of a host, in virtual time: models take their time, fail, hang, and end it for all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from load.research.seeds.models import SimulatedModel
from streams.operators.contract import Loaded, Predicted, Ran
from workers.errors import HungError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from random import Random

    from schemas.records import Tensor
    from streams.operators.contract import Load, Predict, Unload
    from streams.runtime.ports import ExecutorEvents

MODEL_BYTES = 1 << 20
_LOAD_S = (0.01, 1.0)
_ENDS = 0.1  # of faulty batches and loads, the share that ends the process


class SimulatedModels:
    """Implements `streams.runtime.ports.Executors`, as `workers.executors.host` does.

    Args:
        random: draws how long all takes, and what goes wrong.
        faulty: the share of batches and loads on which something does.
    """

    def __init__(self, random: Random, faulty: float) -> None:
        self._random = random
        self._faulty = faulty
        self._held: set[tuple[str, int]] = set()
        self._jobs: set[asyncio.Task[None]] = set()
        self._models: dict[str, SimulatedModel] = {}

    def connect(self, events: ExecutorEvents, tasks: asyncio.TaskGroup) -> None:
        """Set who hears of events, and who owns the tasks."""
        self._events, self._tasks = events, tasks
        self._over: asyncio.Future[tuple[tuple[str, int] | None, str]] = asyncio.get_running_loop().create_future()

    def load(self, load: Load) -> None:
        """Load a copy."""
        self._do(self._load(load))

    def unload(self, unload: Unload) -> None:
        """Let go of a copy."""
        self._held.discard((unload.model, unload.copy))

    def predict(self, predict: Predict) -> None:
        """Predict a batch, of a copy that is there."""
        self._do(self._predict(predict))

    def go_on(self) -> None:
        """Do nothing: no model runs on the event loop."""

    def ask_now(self, model: str, copy: int, rows: Tensor, patience_us: int) -> None:
        """Return None: nothing is predicted on the caller's thread."""

    async def loaded(self) -> None:
        """Return at once."""

    async def stop(self) -> None:
        """End the process."""
        for job in tuple(self._jobs):
            job.cancel()

    def statistics(self) -> Mapping[str, float]:
        """Return nothing."""
        return {}

    def _do(self, job: Coroutine[object, object, None]) -> None:
        task = self._tasks.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _load(self, load: Load) -> None:
        copy, took_s = (load.model.name, load.copy), self._random.uniform(*_LOAD_S)
        lost = await self._within(copy, asyncio.ensure_future(asyncio.sleep(took_s)))
        if lost is not None:
            self._events.loaded(Loaded.of(load, lost or None, is_lost=True))
            return
        is_bad = self._random.random() < self._faulty
        if not is_bad:
            self._held.add(copy)
        fault = "it cannot be read, as the seed says" if is_bad else None
        self._events.loaded(Loaded.of(load, fault, int(took_s * 1e6), MODEL_BYTES))

    async def _predict(self, predict: Predict) -> None:
        copy, rows = (predict.model, predict.copy), len(predict.rows)
        if copy not in self._held:  # the process that had it has ended, and the kernel does not know yet
            self._events.predicted(predict, Ran(_innocent(rows), 0, is_lost=True))
            return
        model = self._models.setdefault(predict.model, SimulatedModel(predict.model, self._random, self._faulty))
        asked = asyncio.ensure_future(model.run(predict.rows, predict.patience_us / 1e6))
        lost = await self._within(copy, asked)
        if lost is None:
            timed = asked.result()
            self._events.predicted(predict, Ran(timed.predicted, timed.predict_us))
        else:
            results = Predicted.failed(rows, lost) if lost else _innocent(rows)
            self._events.predicted(predict, Ran(results, 0, is_lost=True))

    async def _within(self, copy: tuple[str, int], work: asyncio.Future[Any]) -> str | None:
        """Return None when work is done, else why it is lost; "" = through another copy."""
        over = self._over
        if self._random.random() < self._faulty * _ENDS:
            asyncio.get_running_loop().call_later(self._random.uniform(0.0, 0.01), self._end, over, None, "it ended")
        either: set[asyncio.Future[Any]] = {work, over}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not over.done() and isinstance(work.exception(), HungError):
            self._end(over, copy, "it hangs")
        if not over.done():
            return None
        work.cancel()
        guilty, fault = over.result()
        return fault if guilty in (None, copy) else ""

    def _end(
        self, over: asyncio.Future[tuple[tuple[str, int] | None, str]], guilty: tuple[str, int] | None, fault: str
    ) -> None:
        """End the process, if it has not ended: all copies are lost."""
        if not over.done():
            over.set_result((guilty, fault))
            self._held.clear()
            self._over = asyncio.get_running_loop().create_future()


def _innocent(rows: int) -> Predicted:
    """Return failed rows for which nobody here is to blame."""
    failed = Predicted.failed(rows, "the process ended")
    return Predicted(failed.outcomes, failed.answers)
