"""The roles of a deployment, built as the composition root builds them, on connections in memory."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from random import Random
from sys import maxsize
from typing import TYPE_CHECKING, Protocol

from load.research.seeds.askers import GATEWAY, Door
from load.research.seeds.features import SimulatedFeatures
from load.research.seeds.hosted import MODEL_BYTES, HostMemory, SimulatedModels
from load.research.seeds.models import InstantModel, SimulatedModel, model
from load.research.seeds.plan import HOST, POOL
from schemas import topics
from streams.columns.fronts import Fronted, before_joiner, before_learner, before_selection
from streams.mapping.kernel import TopicMapper
from streams.operators.join.kernel import Joiner
from streams.operators.learn.kernel import Learner
from streams.operators.selection.kernel import Selection
from streams.runtime.kafka.fast.whole_batches import records_of
from streams.runtime.mapped_topics import counting
from streams.runtime.role.definition import Ports, Rhythm, Role
from streams.runtime.role.local import Local, LocalCodec
from streams.runtime.role.loop import RoleLoop
from streams.tape.about import about_inside, about_joiner, about_learner, about_selection
from streams.tape.taped import HeardAsking, Taped
from streams.testing.connections import SimulatedBroadcast, SimulatedPositions, SimulatedTransport
from streams.testing.consumers import SimulatedConsumer
from streams.testing.packing import Packing
from streams.testing.stores import SimulatedStore
from workers.executors.factory import executors_of
from workers.kernel.host.kernel import Host
from workers.kernel.model.worker import ModelWorker
from workers.kernel.schedule.registry import scheduled
from workers.runner import host, worker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    import asyncio

    from load.research.seeds.plan import HostPlan, Plan
    from schemas.codec import Codec
    from schemas.records import Model, Report
    from streams.runtime.metrics import MetricsHook
    from streams.testing.connections import Process
    from streams.testing.stores import SharedStore
    from streams.topology import Node, Topology

# As small as they are for a large deployment, so that they are met here.
_SELECTION_DRAIN_S = 1.0
_LINGER_S = 0.05
_PATIENT = frozenset({topics.CALLS})
_KEPT = 20, maxsize  # states of the learner, and bytes of them
# What roles take in whole batches where they go by columns, and the share of them that do.
COLUMNAR = {
    "selection": frozenset({topics.QUERIES}),
    "joiner": frozenset({topics.PREDICTIONS, topics.FEEDBACK}),
    "learner": frozenset({topics.OBSERVATIONS}),
}
_COLUMNAR = 0.5
# Where models answer at once: the share of selection that goes by columns, and of what is read that comes in batches. A
# record by itself keeps its model busy, so that those behind it are not answered at once.
_AT_ONCE, _WHOLE = 0.8, 0.95


# A process that parks polls again when something has happened, or after so long.
_PARKED_S = 30.0
# Nobody reads the reports but the law of what is left in memory.
_REPORT_S = 60.0


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

    Attributes:
        doors: processes of the gateway that can be asked.
        overfull: what hosts have loaded that they should not have.
    """

    def __init__(
        self, plan: Plan, topology: Topology, codec: Codec, store: SharedStore, joiner: type[Joiner] = Joiner
    ) -> None:
        self.overfull: list[str] = []
        self._plan = plan
        self._topology = topology
        self._codec = codec
        self._store = store
        self._joiner = joiner
        self._rhythm = Rhythm(plan.commit_s, _REPORT_S)
        self.doors: dict[str, Door] = {}

    def parks_s(self, name: str) -> float:
        """Draw how long polls of a process wait where nothing happens."""
        return _PARKED_S if Random(f"parks {name} {self._plan.seed}").random() < self._plan.parked else 0.0  # noqa: S311

    def build(self, role: str, process: Process, hook: MetricsHook) -> Runnable:
        """Return a role for a process that has just begun."""
        if role == GATEWAY:
            return Door(process, self._codec, self.doors)
        node = self._topology.node(role)
        ports = self._ports(node, process, hook)
        if role.startswith("worker."):
            return self._worker(role.removeprefix("worker."), process, ports)
        if self._plan.host is not None and role == HOST:
            return self._hosting(self._plan.host, process, ports)
        return self._loop(node, process, ports)

    def _hosting(self, plan: HostPlan, process: Process, ports: Ports) -> Runnable:
        random = Random(f"models {process.name} {self._plan.seed}")  # noqa: S311
        how, chosen = self._how(), scheduled(plan.schedule, plan.lanes, plan.models * MODEL_BYTES)
        kernel = Host(self._codec, process.name, how, lambda _: True, *chosen, plan.lanes, POOL)
        loads = Random(f"loads {process.name} {self._plan.seed}") if plan.load_s else None  # noqa: S311
        slow_s = partial(loads.uniform, 0.0, plan.load_s) if loads is not None else None
        memory = HostMemory(process.name, plan.models, self.overfull)
        return host(kernel, POOL, how, ports, SimulatedModels(random, self._plan.faulty, memory, slow_s))

    def _loop(self, node: Node, process: Process, ports: Ports) -> Runnable:
        settings, codec = self._plan.joiner, self._codec
        is_columnar = self._is_columnar(node.role, process)
        replies = frozenset(node.consumes[-1:]) if node.role != "learner" else frozenset()
        place = (node.group, process.name, node.consumes, node.follows, replies, node.states == "writes")
        match node.role:
            case "selection":
                return self._selection(Role(*place, drain_s=_SELECTION_DRAIN_S, patient=_PATIENT), process, ports)
            case "mapping":
                return self._mapping(Role(*place), process, ports)
            case "joiner":
                joiner = self._joiner(codec, settings)
                fronted = before_joiner(joiner, codec, records_of) if is_columnar else Fronted(joiner)
                taped = Taped(fronted.kernel, codec, process.name, about_joiner(settings))
                return RoleLoop(Role(*place, linger_s=_LINGER_S, patient=_PATIENT), taped, ports)
            case _:
                learner = Learner(codec, settings.memory_us, *_KEPT)
                fronted = before_learner(learner, codec, records_of) if is_columnar else Fronted(learner)
                taped = Taped(fronted.kernel, codec, process.name, about_learner(settings.memory_us, *_KEPT))
                return RoleLoop(Role(*place, linger_s=_LINGER_S, at_once=64, patient=_PATIENT), taped, ports)

    def _mapping(self, role: Role, process: Process, ports: Ports) -> RoleLoop:
        """Return what makes queries of others' records, which looks their topics up as it starts."""
        counts: dict[str, int] = {}
        prepare = counting(self._codec, SimulatedTransport(process).partitions, counts)
        mapper = TopicMapper(self._codec, self._plan.selection.partitions, counts)
        return RoleLoop(role, mapper, replace(ports, prepare=prepare))

    def _is_columnar(self, role: str, process: Process) -> bool:
        """Draw whether a role of a process goes by columns: every deployment has both ways."""
        random = Random(f"columns {role} {process.name} {self._plan.seed}")  # noqa: S311
        share = _AT_ONCE if role == "selection" and self._plan.is_at_once else _COLUMNAR
        return role in COLUMNAR and random.random() < share

    def _packing(self, role: str, process: Process) -> Packing | None:
        """Return what is handed out in whole batches."""
        if not self._is_columnar(role, process):
            return None
        random = Random(f"batches {role} {process.name} {self._plan.seed}")  # noqa: S311
        packing = Packing(COLUMNAR[role], random, self._plan.flipped)
        return replace(packing, whole=_WHOLE) if self._plan.is_at_once else packing

    def _selection(self, role: Role, process: Process, ports: Ports) -> RoleLoop:
        """Return selection, with the models that run inside it."""
        names, given = self._plan.inside, self._plan.selection
        is_columnar = self._is_columnar("selection", process)
        if not names:
            alone = Selection(self._codec, given)
            fronted = Fronted(alone)
            if is_columnar:
                fronted = before_selection(alone, alone, {}, self._codec, records_of, given.margin_us)
            return RoleLoop(role, Taped(fronted.kernel, self._codec, process.name, about_selection(given)), ports)
        codec, how = LocalCodec(self._codec), self._how()
        given = replace(given, inside=frozenset(map(topics.model_queries, names)))
        models = {name: ModelWorker(codec, model(name), process.name, how) for name in names}
        executors = executors_of(how, process.clock.now_us, lambda asked: self._model(asked, process))
        own, places = Selection(codec, given), role.outstanding / how.queue_rows
        asked_now = HeardAsking(executors.ask_now)
        fronted = Fronted(Local(own, models, codec, places, writes_behind=not is_columnar))
        if is_columnar:
            fronted = before_selection(fronted.kernel, own, models, self._codec, records_of, given.margin_us, asked_now)
        about = about_selection(given)
        about["inside"] = about_inside(
            map(model, names),
            self._codec,
            process.name,
            asdict(how),
            places=places,
            writes_behind=not is_columnar,
            is_columnar=bool(fronted.batched),
        )
        taped = Taped(fronted.kernel, self._codec, process.name, about, asked_now)
        return RoleLoop(role, taped, replace(ports, executors=executors))

    def _worker(self, name: str, process: Process, ports: Ports) -> Runnable:
        return worker(
            model(name), process.name, self._how(), ports, self._codec, lambda asked: self._model(asked, process)
        )

    def _model(self, asked: Model, process: Process) -> SimulatedModel:
        is_first = asked.version == "1"
        random = Random(f"model {process.name} {self._plan.seed}{'' if is_first else asked.version}")  # noqa: S311
        is_instant = self._plan.is_at_once and asked.name in self._plan.inside
        return (InstantModel if is_instant else SimulatedModel)(
            asked.name, random, self._plan.faulty, asked.version, 0.0 if is_first else self._plan.slow
        )

    def _how(self) -> WorkerSettings:
        return WorkerSettings(partitions=self._plan.selection.partitions)

    def _ports(self, node: Node, process: Process, hook: MetricsHook) -> Ports:
        store = SimulatedStore(self._store, process.random, lambda: process.dead) if node.states else None
        return Ports(
            consumer=SimulatedConsumer(process, node.consumes, node.group, self._packing(node.role, process)),
            transport=SimulatedTransport(process),
            clock=process.clock,
            encode=_nothing,
            version="1",
            broadcast=SimulatedBroadcast(process, node.follows) if node.follows else None,
            store=store,
            positions=SimulatedPositions(process),
            written=partial(SimulatedBroadcast, process, (topics.OBSERVATIONS,)) if node.role == "joiner" else None,
            hooks=(hook,),
            features=self._features(process) if node.role == "selection" else None,
            rhythm=self._rhythm,
        )

    def _features(self, process: Process) -> SimulatedFeatures:
        random = Random(f"features {process.name} {self._plan.seed}")  # noqa: S311
        return SimulatedFeatures(self._plan.sources, self._codec, self._store.weather, random, lambda: process.dead)


def _nothing(_: Report) -> bytes:
    """Return what a report is written as: nobody reads it."""
    return b""
