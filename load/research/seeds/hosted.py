"""The process with the models of a host, in virtual time: models take their time, fail, hang, and end it for all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from load.research.seeds.models import SimulatedModel
from streams.operators.contract import Loaded, Predicted, Ran
from workers.errors import HungError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from random import Random

    from schemas.records import Tensor
    from streams.operators.contract import Load, Predict, Unload
    from streams.runtime.ports import ExecutorEvents

MODEL_BYTES = 1 << 20
_LOAD_S = (0.01, 1.0)
_ENDS = 0.1  # of faulty batches and loads, the share that ends the process


class HostMemory:
    """The copies that are in memory, or being loaded, and what was wrong with loading one.

    Args:
        host: its name.
        models: so many have room.
        wrong: is told.
    """

    def __init__(self, host: str, models: int, wrong: list[str]) -> None:
        self._host = host
        self._models = models
        self._wrong = wrong
        self._loading: list[tuple[str, int]] = []
        self._held: set[tuple[str, int]] = set()

    def __contains__(self, copy: object) -> bool:
        """Tell whether a copy is loaded."""
        return copy in self._held

    def begin(self, copy: tuple[str, int]) -> None:
        """Begin to load a copy."""
        if copy in self._held or copy[0] in [name for name, _ in self._loading]:
            self._wrong.append(f"{self._host} loads {copy[0]} ({copy[1]}), which is loaded already, or being loaded")
        self._loading.append(copy)
        taken = len(self._loading) + len(self._held)
        if taken > self._models:
            self._wrong.append(f"{self._host} has {taken} models in memory, where {self._models} have room")

    def end(self, copy: tuple[str, int], *, is_there: bool) -> None:
        """End to load a copy: it is there, unless somebody has let go of it meanwhile."""
        if copy in self._loading:
            self._loading.remove(copy)
            self._held.update([copy] * is_there)

    def let_go(self, copy: tuple[str, int]) -> None:
        """Let go of a copy."""
        self._held.discard(copy)
        if copy in self._loading:
            self._loading.remove(copy)

    def clear(self) -> None:
        """Lose all that was loaded."""
        self._held.clear()
        self._loading.clear()


class SimulatedModels:
    """Implements `streams.runtime.ports.Executors`, as `workers.executors.host` does.

    Args:
        random: draws how long all takes, and what goes wrong.
        faulty: the share of batches and loads on which something does.
        memory: of the process.
        slow_s: draws what a load takes; None = it is quick.
    """

    def __init__(
        self, random: Random, faulty: float, memory: HostMemory, slow_s: Callable[[], float] | None = None
    ) -> None:
        self._random = random
        self._faulty = faulty
        self._memory = memory
        self._slow_s = slow_s
        self._jobs: set[asyncio.Task[None]] = set()
        self._models: dict[str, SimulatedModel] = {}

    def connect(self, events: ExecutorEvents, tasks: asyncio.TaskGroup) -> None:
        """Set who hears of events, and who owns the tasks."""
        self._events, self._tasks = events, tasks
        self._over: asyncio.Future[tuple[tuple[str, int] | None, str]] = asyncio.get_running_loop().create_future()

    def load(self, load: Load) -> None:
        """Load a copy."""
        self._memory.begin((load.model.name, load.copy))
        self._do(self._load(load))

    def unload(self, unload: Unload) -> None:
        """Let go of a copy."""
        self._memory.let_go((unload.model, unload.copy))

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
        took_s = took_s if self._slow_s is None else self._slow_s()
        lost = await self._within(copy, asyncio.ensure_future(asyncio.sleep(took_s)))
        if lost is not None:
            self._events.loaded(Loaded.of(load, lost or None, is_lost=True))
            return
        is_bad = self._random.random() < self._faulty
        self._memory.end(copy, is_there=not is_bad)
        fault = "it cannot be read, as the seed says" if is_bad else None
        self._events.loaded(Loaded.of(load, fault, int(took_s * 1e6), MODEL_BYTES))

    async def _predict(self, predict: Predict) -> None:
        copy, rows = (predict.model, predict.copy), len(predict.rows)
        if copy not in self._memory:  # the process that had it has ended, and the kernel does not know yet
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
            self._memory.clear()
            self._over = asyncio.get_running_loop().create_future()


def _innocent(rows: int) -> Predicted:
    """Return failed rows for which nobody here is to blame."""
    failed = Predicted.failed(rows, "the process ended")
    return Predicted(failed.outcomes, failed.answers)
