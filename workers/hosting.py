"""Runs the models of one pool: a role's loop around the host's kernel, and the process that holds the models.

It reads the topics of the models that topic `models` has and that belong to the pool. Models come and go without a
restart. It joins its group once what fits into memory is loaded, or a while has passed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from schemas import topics
from streams.runtime.role.definition import Ports, Role
from streams.runtime.role.loop import RoleLoop
from streams.topology import host_role
from workers.executors.factory import hosted_by
from workers.kernel.host.kernel import Host
from workers.kernel.schedule.profiles import Profiles
from workers.kernel.schedule.registry import SCHEDULES
from workers.kernel.schedule.residency import Residency
from workers.kernel.schedule.trunks import ByTrunk

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from schemas.codec import Codec
    from schemas.records import Plan
    from streams.runtime.ports import Executors
    from workers.packages.disk_cache import DiskCache
    from workers.settings import WorkerSettings

# At a stop, how long queued queries may still be answered here before another host reads them.
DRAIN_S = 1.0
FIFO = "fifo"


class Hosting:
    """One host; one object, one run."""

    def __init__(
        self,
        pool: str,
        instance: str,
        settings: WorkerSettings,
        ports: Ports,
        codec: Codec,
        belongs: Callable[[str], bool],
        *,
        memory_bytes: int,
        schedule: str = FIFO,
        lanes: int = 1,
        tells_process: bool = True,
        executors: Executors | None = None,
        cache: DiskCache | None = None,
    ) -> None:
        """Nothing runs before `run`.

        Args:
            pool: whose models.
            instance: unique in the deployment.
            settings: how each model is batched.
            ports: the outside; of the consumer the pool's group is expected, of the broadcast the followed topics.
            codec: of all records.
            belongs: tells whether a model, by its name, runs here.
            memory_bytes: that the models in memory may take together.
            schedule: name of what chooses the next batch; anything unknown is `fifo`.
            lanes: batches that run at a time.
            tells_process: whether its reports tell what the process costs.
            executors: run the models; None = a child process.
            cache: of packages' files, on a disk of this machine; None = there is none.
        """
        chosen = ByTrunk(SCHEDULES.get(schedule, SCHEDULES[FIFO])(Profiles(), lanes))
        kernel = self._kernel = Host(
            codec,
            instance,
            settings,
            belongs,
            chosen,
            Residency(memory_bytes, demand=chosen.demand),
            lanes,
            pool,
        )
        role = Role(
            name=host_role(pool),
            instance=instance,
            topics=(),
            follows=(topics.MODELS, topics.PROFILES, topics.PLAN),
            patient=frozenset({topics.PROFILES}),
            outstanding=settings.queue_rows,
            drain_s=DRAIN_S,
            tells_process=tells_process,
        )
        executors = executors or hosted_by(settings, ports.clock.now_us, lanes, memory_bytes, cache)
        self._loop = RoleLoop(role, kernel, replace(ports, executors=executors))

    @property
    def ready(self) -> asyncio.Event:
        """Set when partitions are assigned."""
        return self._loop.ready

    @property
    def plan(self) -> Plan | None:
        """The plan of its pool that it follows; None = there is none."""
        return self._kernel.plan

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Raises:
            ExceptionGroup: of the one cause that ended the role.
        """
        await self._loop.run(stop)
