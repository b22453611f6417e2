"""Runs models: a role's loop around the kernel of a worker or a host, and what runs the models.

A worker runs one replica of one model. That is loaded before the group is joined, so that no query waits for it. If it
cannot be loaded, its rows fail with a reason until another version, or a repaired one, can be loaded. When topic
`models` names another version, that is loaded beside it and takes over between two batches (`kernel.rollout`).

A host runs the models of one pool, in one process. It reads the topics of the models that topic `models` has and that
belong to the pool. Models come and go without a restart. It joins its group once what fits into memory is loaded, or a
while has passed.

While the consumer holds `queue_rows` unfinished queries, either reads no more, and Kafka keeps the rest.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from schemas import topics
from streams.runtime.errors import StreamError
from streams.runtime.role.definition import Ports, Role
from streams.runtime.role.loop import RoleLoop
from streams.topology import host_role, worker_role
from workers.executors.factory import executors_of
from workers.kernel.model.warm_up import asked_in
from workers.kernel.model.worker import ModelWorker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from schemas.codec import Codec
    from schemas.records import Model
    from streams.operators.contract import Operator, Record
    from streams.runtime.ports import Executors, RecentRecords
    from workers.executors.thread import Executor
    from workers.kernel.host.kernel import Host
    from workers.settings import WorkerSettings

_log = logging.getLogger(__name__)

# At a stop, how long queued queries may still be answered here before another replica reads them.
DRAIN_S: Final = 1.0


async def _nothing() -> None:
    """Do nothing."""


class Worker:
    """A worker, or a host; one object, one run."""

    def __init__(
        self, role: Role, kernel: Operator, ports: Ports, beside: Callable[[], Awaitable[None]] = _nothing
    ) -> None:
        """Nothing runs before `run`; `beside` is done meanwhile."""
        self._loop = RoleLoop(role, kernel, ports)
        self._beside = beside

    @property
    def ready(self) -> asyncio.Event:
        """Set when partitions are assigned; by then a worker has loaded its model."""
        return self._loop.ready

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Raises:
            ExceptionGroup: of the one cause that ended the role, e.g. a HungError.
        """
        beside = asyncio.ensure_future(self._beside())
        try:
            await self._loop.run(stop)
        finally:
            beside.cancel()


def worker(
    model: Model,
    instance: str,
    settings: WorkerSettings,
    ports: Ports,
    codec: Codec,
    make: Callable[[Model], Executor] | None = None,
    *,
    tells_process: bool = True,
) -> Worker:
    """Return a replica of a model.

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
    topic = topics.model_queries(model.name)
    kernel = ModelWorker(codec, model, instance, settings, recalls=ports.recent is not None)
    follows = (topics.MODELS,) if ports.broadcast is not None else ()
    role = _role(worker_role(model.name), instance, settings, (topic,), follows, tells_process=tells_process)
    ports = replace(ports, executors=executors_of(settings, ports.clock.now_us, make))
    if ports.recent is None:
        return Worker(role, kernel, ports)
    return Worker(role, kernel, ports, partial(_recall, kernel, ports.recent, topic, settings.warm_up_rows, codec))


def host(
    kernel: Host, pool: str, settings: WorkerSettings, ports: Ports, executors: Executors, *, tells_process: bool = True
) -> Worker:
    """Return a host of a pool.

    Args:
        kernel: decides.
        pool: whose models.
        settings: as the kernel's.
        ports: the outside; of the consumer the pool's group is expected, of the broadcast the followed topics.
        executors: run the models.
        tells_process: whether its reports tell what the process costs.
    """
    follows = (topics.MODELS, topics.PROFILES, topics.PLAN)
    role = _role(host_role(pool), kernel.instance, settings, (), follows, tells_process=tells_process)
    role = replace(role, patient=frozenset({topics.PROFILES}))
    return Worker(role, kernel, replace(ports, executors=executors))


def _role(
    name: str,
    instance: str,
    settings: WorkerSettings,
    consumes: tuple[str, ...],
    follows: tuple[str, ...],
    *,
    tells_process: bool,
) -> Role:
    return Role(
        name,
        instance,
        consumes,
        follows,
        outstanding=settings.queue_rows,
        drain_s=DRAIN_S,
        tells_process=tells_process,
    )


async def _recall(kernel: ModelWorker, recent: RecentRecords, topic: str, rows: int, codec: Codec) -> None:
    """Give a kernel the rows asked last, or none if they cannot be read: no version waits for them."""
    records: Sequence[Record] = ()
    try:
        records = await recent.last(topic, rows)
    except StreamError as fault:
        _log.warning("no version is warmed up by the last queries of %s: %s", topic, fault)
    kernel.recall(asked_in(records, codec, rows))
