"""Helps tests of the worker's kernel: its model is loaded when they say so, and answers what they say."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Self

from policies.fixed import Fixed
from schemas.codec import Codec
from schemas.records import Model
from streams.operators.contract import NONE_UNREAD, Emit, Load, Loaded, Predict, Predicted, Ran
from streams.runtime.ports import ExecutorEvents
from streams.runtime.role.kernel_calls import Guard, Timer
from tests.virtual import VirtualClock
from workers.executors.models import ModelExecutors
from workers.kernel.model.batcher import Batcher
from workers.kernel.model.results import Asked, size_of
from workers.kernel.model.worker import ModelWorker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from streams.operators.contract import Effects, Record
    from workers.executors.thread import Executor

NOW = 1_700_000_000_000_000
MS = 1_000


def model(name: str, version: str = "7") -> Model:
    """Return the record of a version."""
    return Model(name, version, "function", f"/nowhere/{version}", f"digest {version}", "label", "float32", (2,))


def worker(
    name: str = "digits",
    cap: int = 8,
    limit: int = 100,
    codec: Codec | None = None,
    settings: WorkerSettings | None = None,
) -> ModelWorker:
    """Make a kernel with a fixed cap, whose model is being loaded; four reply partitions."""

    def queue() -> Batcher[Asked]:
        return Batcher(Fixed(rows=cap), limit=limit, objective_us=20 * MS, size=size_of)

    kernel = ModelWorker(codec or Codec(), model(name), "worker-1", settings or WorkerSettings(), queue)
    kernel.on_timer(NOW)
    return kernel


def load(kernel: ModelWorker, now_us: int = NOW) -> Effects:
    """Have the model be loaded."""
    return kernel.on_loaded(Loaded("", "7"), now_us)


def start(kernel: ModelWorker, now_us: int = NOW) -> Predict:
    """Have the model be loaded; returns its first batch."""
    return batch_of(load(kernel, now_us))


def batch_of(effects: Effects) -> Predict:
    """Return the one batch among effects."""
    (batch,) = [effect for effect in effects if isinstance(effect, Predict)]
    return batch


def answer(kernel: ModelWorker, batch: Predict, results: Predicted, took_us: int = MS, now_us: int = NOW) -> Effects:
    """Return what the kernel does about a batch's results, sooner or later."""
    return kernel.on_predicted(batch.batch_id, Ran(results, took_us), now_us) + kernel.on_timer(now_us)


def emits(effects: Effects) -> list[Emit]:
    """Return the records that are written."""
    return [effect for effect in effects if isinstance(effect, Emit)]


class Replica:
    """A kernel, its timer and what runs its model, without Kafka; to be used in a block.

    Args:
        kernel: decides.
        executor: runs the model.
        write: takes what is written.
        now_s: the clock that turns of the event loop are bounded by.
    """

    def __init__(
        self,
        kernel: ModelWorker,
        executor: Executor,
        write: Callable[[Emit], None],
        now_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._kernel = kernel
        self._write = write
        self._clock = VirtualClock()
        self._executors = ModelExecutors(lambda _model, _chose: executor, now_s=now_s)
        self._guard = Guard("worker", self._clock, self._perform)
        self._alarm = Timer(kernel, self._clock, self._guard, lambda: NONE_UNREAD)
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        """Load the model."""
        await self._tasks.__aenter__()
        self._executors.connect(ExecutorEvents(self._predicted, self._loaded), self._tasks)
        self._timer = self._tasks.create_task(self._alarm.run())
        self._guard.call("its start", lambda: self._kernel.on_timer(self._clock.now_us()))
        await self._executors.loaded()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._timer.cancel()
        await self._executors.stop()
        await self._tasks.__aexit__(kind, error, trace)

    def read(self, records: Sequence[Record]) -> None:
        """Give records to the kernel."""
        self._guard.call("records", lambda: self._kernel.on_records(records, self._clock.now_us()))

    def _predicted(self, batch: Predict, ran: Ran) -> None:
        self._guard.call("a batch", lambda: self._kernel.on_predicted(batch.batch_id, ran, self._clock.now_us()))

    def _loaded(self, loaded: Loaded) -> None:
        self._guard.call("a model", lambda: self._kernel.on_loaded(loaded, self._clock.now_us()))

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Emit():
                    self._write(effect)
                case Predict():
                    self._executors.predict(effect)
                case Load():
                    self._executors.load(effect)
                case _:
                    raise TypeError(f"no model of these tests asks for {effect}")
        self._alarm.set(self._kernel.needs().deadline_us)
        self._executors.go_on()
