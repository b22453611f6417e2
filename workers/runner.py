"""Runs one replica of one model: the role's loop reads and writes, and beside it one task predicts.

    loop: queries ─▶ kernel (queue) ─▶ wake ─┐                   ┌─▶ loop.perform ─▶ model-predictions
    predicting:                              └▶ take ─▶ predict ─┤
                                                 ▲               └─▶ the next take, while the last one is written
                                                 └───────────────────┘

The model is loaded before the group is joined, so that no query waits for a model that is not there; where it cannot be
loaded its rows fail, which says more than silence, until another version or a mended one can be. When topic
`models` names another version, that is loaded beside it and takes over between two batches (`versions`). While the
consumer holds `queue_rows` unfinished queries it reads no more: Kafka keeps them.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from schemas import topics
from streams.runtime.errors import StreamError
from streams.runtime.role.definition import Ports, Role
from streams.runtime.role.loop import RoleLoop
from streams.topology import worker_role
from workers.predict_loop import Predicting
from workers.rollout.warm_up import asked_in

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from schemas.codec import Codec
    from schemas.records import Input, Model
    from streams.runtime.ports import RecentRecords
    from workers.executors.thread import Executor
    from workers.settings import WorkerSettings

_log = logging.getLogger(__name__)

# At a stop, how long queued queries may still be answered here before another replica reads them.
DRAIN_S = 1.0


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
        make: Callable[[Model], Executor] | None = None,
    ) -> None:
        """Nothing runs before `run`.

        Args:
            model: which; its package must lie where the record says.
            instance: unique in the deployment.
            settings: how it is run.
            ports: the outside; of the consumer, the model's topic and group are expected. With a broadcast of topic
                `models` the worker follows which version is wanted, and with a reader of recent records it tries one on
                what was asked before this start.
            codec: of all records.
            executor: runs the model; None = as the settings say.
            make: returns what runs a later version; None = as the settings say.
        """
        recent = ports.recent
        rows = settings.warm_up_rows
        recall = None if recent is None else partial(_recalled, recent, topics.model_queries(model.name), codec, rows)
        self._predicting = Predicting(
            model, instance, settings, codec, ports.clock.now_us, executor, make, recall=recall
        )
        role = Role(
            name=worker_role(model.name),
            instance=instance,
            topics=(topics.model_queries(model.name),),
            follows=(topics.MODELS,) if ports.broadcast is not None else (),
            outstanding=settings.queue_rows,
            drain_s=DRAIN_S,
        )
        self._loop = RoleLoop(
            role, self._predicting.kernel, ports, companions=(lambda loop: self._predicting.run(loop.perform),)
        )

    @property
    def ready(self) -> asyncio.Event:
        """Set when the model is loaded and partitions are assigned."""
        return self._loop.ready

    async def run(self, stop: asyncio.Event) -> None:
        """Load the model, then serve until `stop` is set.

        Raises:
            HungError: loading the model does not end.
            ExceptionGroup: of the one cause that ended the role, e.g. a HungError.
        """
        try:
            await self._predicting.start()
            await self._loop.run(stop)
        finally:
            await self._predicting.stop()


async def _recalled(recent: RecentRecords, topic: str, codec: Codec, rows: int) -> Sequence[Input]:
    """Return the last rows of the model's own topic; where it cannot be read, none: no version waits for it."""
    try:
        return asked_in(await recent.last(topic, rows), codec, rows)
    except StreamError as fault:
        _log.warning("a version is not warmed up by the last queries of %s: %s", topic, fault)
        return ()
