"""Runs one replica of one model: a role's loop around the worker's kernel, and what runs its versions.

The model is loaded before the group is joined, so that no query waits for it. If it cannot be loaded, its rows fail
with a reason until another version, or a repaired one, can be loaded. When topic `models` names another version, that
is loaded beside it and takes over between two batches (`kernel.rollout`). While the consumer holds `queue_rows`
unfinished queries, it reads no more, and Kafka keeps the rest.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas import topics
from streams.runtime.errors import StreamError
from streams.runtime.role.definition import Ports, Role
from streams.runtime.role.loop import RoleLoop
from streams.topology import worker_role
from workers.executors.factory import executors_of
from workers.kernel.model.warm_up import asked_in
from workers.kernel.model.worker import ModelWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.codec import Codec
    from schemas.records import Model
    from streams.operators.contract import Record
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
        make: Callable[[Model], Executor] | None = None,
        *,
        tells_process: bool = True,
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
            make: returns what runs a version; None = as the settings say.
            tells_process: whether its reports tell what the process costs.
        """
        self._topic = topics.model_queries(model.name)
        self._rows = settings.warm_up_rows
        self._codec = codec
        self._recent = ports.recent
        self._kernel = ModelWorker(codec, model, instance, settings, recalls=ports.recent is not None)
        executors = executors_of(settings, ports.clock.now_us, make)
        role = Role(
            name=worker_role(model.name),
            instance=instance,
            topics=(self._topic,),
            follows=(topics.MODELS,) if ports.broadcast is not None else (),
            outstanding=settings.queue_rows,
            drain_s=DRAIN_S,
            tells_process=tells_process,
        )
        self._loop = RoleLoop(role, self._kernel, replace(ports, executors=executors))

    @property
    def ready(self) -> asyncio.Event:
        """Set when the model is loaded and partitions are assigned."""
        return self._loop.ready

    async def run(self, stop: asyncio.Event) -> None:
        """Load the model, then serve until `stop` is set.

        Raises:
            ExceptionGroup: of the one cause that ended the role, e.g. a HungError.
        """
        recalling = asyncio.create_task(self._recall())
        try:
            await self._loop.run(stop)
        finally:
            recalling.cancel()

    async def _recall(self) -> None:
        """Give the kernel the rows asked last, or none if they cannot be read: no version waits for them."""
        if self._recent is None:
            return
        records: Sequence[Record] = ()
        try:
            records = await self._recent.last(self._topic, self._rows)
        except StreamError as fault:
            _log.warning("no version is warmed up by the last queries of %s: %s", self._topic, fault)
        self._kernel.recall(asked_in(records, self._codec, self._rows))
