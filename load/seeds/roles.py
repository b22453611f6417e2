"""The roles of a deployment, built as the composition root builds them, on connections in memory."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol

from load.seeds.models import SimulatedModel, model
from streams.operators.join.kernel import Joiner
from streams.operators.learn.kernel import Learner
from streams.operators.selection.kernel import Selection
from streams.runtime.role.definition import Ports, Role
from streams.runtime.role.loop import RoleLoop
from streams.testing.connections import SimulatedBroadcast, SimulatedPositions, SimulatedTransport
from streams.testing.consumers import SimulatedConsumer
from streams.testing.stores import SimulatedStore
from workers.runner import Worker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    import asyncio

    from load.seeds.plan import Plan
    from schemas.codec import Codec
    from schemas.records import Report
    from streams.runtime.metrics import MetricsHook
    from streams.testing.connections import Process
    from streams.testing.stores import SharedStore
    from streams.topology import Node, Topology

# As small as they are for a large deployment, so that they are met here.
_SELECTION_DRAIN_S = 1.0
_LINGER_S = 0.05


class Runnable(Protocol):
    """A role."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set."""
        ...


class Builder:
    """Makes a role's loop for a process.

    Args:
        plan: the settings.
        topology: of the deployment.
        codec: of all records.
        store: of the policy states.
        joiner: its kernel.
    """

    def __init__(
        self, plan: Plan, topology: Topology, codec: Codec, store: SharedStore, joiner: type[Joiner] = Joiner
    ) -> None:
        self._plan = plan
        self._topology = topology
        self._codec = codec
        self._store = store
        self._joiner = joiner

    def build(self, role: str, process: Process, hook: MetricsHook) -> Runnable:
        """Return a role for a process that has just begun."""
        node = self._topology.node(role)
        ports = self._ports(node, process, hook)
        if role.startswith("worker."):
            return self._worker(role.removeprefix("worker."), process, ports)
        return self._loop(node, process, ports)

    def _loop(self, node: Node, process: Process, ports: Ports) -> Runnable:
        settings, codec = self._plan.joiner, self._codec
        replies = frozenset(node.consumes[-1:]) if node.role != "learner" else frozenset()
        place = (node.group, process.name, node.consumes, node.follows, replies, node.states == "writes")
        match node.role:
            case "selection":
                return RoleLoop(Role(*place, drain_s=_SELECTION_DRAIN_S), Selection(codec, self._plan.selection), ports)
            case "joiner":
                return RoleLoop(Role(*place, linger_s=_LINGER_S), self._joiner(codec, settings), ports)
            case _:
                kernel = Learner(codec, settings.memory_us, capacity=20)
                return RoleLoop(Role(*place, linger_s=_LINGER_S, at_once=64), kernel, ports)

    def _worker(self, name: str, process: Process, ports: Ports) -> Runnable:
        def make(_: object = None) -> SimulatedModel:
            random = Random(f"model {process.name} {self._plan.seed}")  # noqa: S311
            return SimulatedModel(name, random, self._plan.faulty)

        settings = WorkerSettings(partitions=self._plan.selection.partitions)
        return Worker(model(name), process.name, settings, ports, self._codec, make)

    def _ports(self, node: Node, process: Process, hook: MetricsHook) -> Ports:
        store = SimulatedStore(self._store, process.random, lambda: process.dead) if node.states else None
        return Ports(
            consumer=SimulatedConsumer(process, node.consumes, node.group),
            transport=SimulatedTransport(process),
            clock=process.clock,
            encode=_nothing,
            version="1",
            broadcast=SimulatedBroadcast(process, node.follows) if node.follows else None,
            store=store,
            positions=SimulatedPositions(process),
            hooks=(hook,),
        )


def _nothing(_: Report) -> bytes:
    """Return what a report is written as: nobody reads it."""
    return b""
