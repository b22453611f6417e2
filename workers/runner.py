"""Runs one replica of one model: the role's loop reads and writes, and beside it one task predicts.

    loop: queries ─▶ kernel (queue) ─▶ wake ─┐                   ┌─▶ loop.perform ─▶ model-predictions
    predictor:                               └▶ take ─▶ predict ─┤
                                                 ▲               └─▶ the next take, while the last one is written
                                                 └───────────────────┘

The model is loaded before the group is joined, so that no query waits for a model that is not there. While the consumer
holds `queue_rows` unfinished queries it reads no more: Kafka keeps them.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from policies.batching import create_controller
from schemas import topics
from streams.runtime.loop import RoleLoop
from streams.runtime.roles import Ports, Role
from streams.topology import worker_role
from workers.batcher import Batcher, Take
from workers.executor import Executor, ProcessExecutor, ThreadExecutor, Timed, patience_s
from workers.operator import Asked, Identity, ModelWorker
from workers.packaging import load_package
from workers.predictor import predictor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Input, Model
    from streams.operators.contract import Effects, Record
    from workers.rows import Predicted

_log = logging.getLogger(__name__)

# The poll after which no more is read may bring this much more than the queue should hold, and it is kept: 4 partitions
# of 1 MiB each hold 40,000 of the smallest model queries (100 B). Beyond that memory comes first.
OVERSHOOT_ROWS = 50_000
# At a stop, how long queued queries may still be answered here before another replica reads them.
DRAIN_S = 1.0
# How often the same complaint about a model is logged.
COMPLAINT_US = 10_000_000


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker batches and runs its model.

    Attributes:
        partitions: of `model-predictions`.
        controller: name of the batch controller.
        parameters: of the controller.
        objective_us: how long a batch may take; None = half of what the deadlines leave.
        queue_rows: unfinished queries from which on no more are read.
        threads: for the arithmetic of one batch.
        process: run the model in a process of its own, which can be killed when it hangs.
        patience_s: how long a batch may take before the model counts as hung; None = 10 objectives, at least 5 s.
        allow_pickle: load a pickled model whose digest is the deployed one.
    """

    partitions: int = 4
    controller: str = "aimd"
    parameters: Mapping[str, float] | None = None
    objective_us: int | None = None
    queue_rows: int = 4_096
    threads: int = 1
    process: bool = False
    patience_s: float | None = None
    allow_pickle: bool = False


class Worker:
    """One replica of one model; one object, one run."""

    def __init__(
        self,
        model: Model,
        instance: str,
        settings: WorkerSettings,
        ports: Ports,
        codec: Codec,
        executor: Executor | None = None,
    ) -> None:
        """Nothing runs before `run`.

        Args:
            model: which; its package must lie where the record says.
            instance: unique in the deployment.
            settings: how it is run.
            ports: the outside; of the consumer, the model's topic and group are expected.
            codec: of all records.
            executor: runs the model; None = as the settings say.
        """
        controller = create_controller(settings.controller, settings.parameters)
        limit = settings.queue_rows + OVERSHOOT_ROWS
        self._batcher: Batcher[Asked] = Batcher(controller, limit=limit, objective_us=settings.objective_us)
        identity = Identity(model.name, model.version, instance)
        self._kernel = _Waking(codec, identity, self._batcher, settings.partitions)
        self._executor = executor or _executor(model, settings, ports.clock.now_us)
        self._patience_s = settings.patience_s
        self._now_us = ports.clock.now_us
        self._complained_us = -COMPLAINT_US
        role = Role(
            name=worker_role(model.name),
            instance=instance,
            topics=(topics.model_queries(model.name),),
            outstanding=settings.queue_rows,
            drain_s=DRAIN_S,
        )
        self._loop = RoleLoop(role, self._kernel, ports, companions=(self._predict,))

    @property
    def ready(self) -> asyncio.Event:
        """Set when the model is loaded and partitions are assigned."""
        return self._loop.ready

    async def run(self, stop: asyncio.Event) -> None:
        """Load the model, then serve until `stop` is set.

        Raises:
            PackageError: the model cannot be loaded.
            ExceptionGroup: of the one cause that ended the role, e.g. a HungError.
        """
        try:
            await self._executor.start()
            await self._loop.run(stop)
        finally:
            await self._executor.stop()

    async def _predict(self, loop: RoleLoop) -> None:
        """Predict batch after batch, and write each while the next one is predicted."""
        last: _Done | None = None
        while True:
            await self._executor.start()
            take = self._kernel.take(self._now_us())
            if take.rows:
                last = await self._batch(loop, take, last)
                continue
            if last is not None:
                loop.perform(self._finish(last))
            if take.expired:
                loop.perform(self._kernel.expire(take, self._now_us()))
            if last is None:
                await self._kernel.wait_records()
            last = None

    async def _batch(self, loop: RoleLoop, take: Take[Asked], last: _Done | None) -> _Done:
        started_us = self._now_us()
        inputs = [waiting.item.input for waiting in take.rows]
        patience = self._patience_s or patience_s(self._batcher.objective(started_us))
        running = asyncio.create_task(self._executor.run(inputs, patience))
        try:
            if last is not None:
                await asyncio.sleep(0)  # lets the model start first
                loop.perform(self._finish(last))
            timed = await running
        finally:
            running.cancel()
        self._kernel.done(take, timed.predict_us, self._now_us())
        return _Done(take, timed, started_us)

    def _finish(self, done: _Done) -> Effects:
        fault = done.timed.predicted.fault
        if fault is not None and done.started_us - self._complained_us >= COMPLAINT_US:
            self._complained_us = done.started_us
            _log.warning("the model failed on rows of a batch of %d: %s", len(done.take.rows), fault)
        return self._kernel.answer(done.take, done.timed.predicted, done.started_us, done.timed.predict_us)


class _Done(NamedTuple):
    """A predicted batch that has not been written yet."""

    take: Take[Asked]
    timed: Timed
    started_us: int


class _Waking(ModelWorker):
    """The kernel, with a bell for the predictor."""

    def __init__(self, codec: Codec, identity: Identity, batcher: Batcher[Asked], partitions: int) -> None:
        super().__init__(codec, identity, batcher, partitions)
        self._bell = asyncio.Event()

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        effects = super().on_records(records, now_us)
        self._bell.set()
        return effects

    async def wait_records(self) -> None:
        await self._bell.wait()
        self._bell.clear()


def _executor(model: Model, settings: WorkerSettings, now_us: Callable[[], int]) -> Executor:
    options: dict[str, Any] = {
        "digest": model.digest,
        "threads": settings.threads,
        "allow_pickle": settings.allow_pickle,
    }
    if settings.process:
        return ProcessExecutor(model.path, now_us, **options)

    def load() -> Callable[[Sequence[Input]], Predicted]:
        return predictor(load_package(model.path, **options))

    return ThreadExecutor(load, now_us)
