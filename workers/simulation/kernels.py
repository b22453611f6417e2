"""A plan on the roles' own kernels, on the broker-free driver: what they decide is decided here.

    client ─ask─▶ Selection, and models inside it ─dispatch─▶ workers and hosts ─reply─▶ Selection ─answer─▶ client

So hosts, inline models, graphs, hedges, cascades, the cache and admission need no model of their own. It costs some
hundred us of CPU a query: `simulator` is for plans that need none of these.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Query, Tensor
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.role.local import Local, LocalCodec
from streams.testing import START_US, Driver, Pace
from streams.topology import build, host_role, worker_role
from workers.kernel.host.kernel import Host
from workers.kernel.model.worker import ModelWorker
from workers.kernel.schedule.profiles import Profiles
from workers.kernel.schedule.registry import SCHEDULES
from workers.kernel.schedule.residency import Residency
from workers.settings import WorkerSettings
from workers.simulation.kernel_outcome import KernelOutcome
from workers.simulation.replicas import Replicas
from workers.simulation.role_models import RoleModels, worker_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.operators.contract import Operator, Record
    from workers.simulation.plan import HostedModels, RolePlan, SimulatedModel, SimulationPlan
    from workers.simulation.run import Run

_APPLICATION: Final = "simulated"
_WHOLE_ROWS: Final = 4_096  # of a host's batches that its schedule sizes
_MORE_S: Final = 5.0  # after the objective of the last query
_INPUTS: Final = 1 << 62
_CONFIGURED: Final = frozenset({topics.MODELS, topics.APPLICATIONS})


def simulate_kernels(plan: SimulationPlan, random: np.random.Generator) -> Run:
    """Return what becomes of a plan's queries; the same plan and seed give the same to the last bit."""
    assert plan.roles is not None, "the plan says what only kernels know"
    return _Roles(plan, plan.roles, random).run()


class _Roles:
    """One run: the roles of a deployment, and what has come of each query."""

    def __init__(self, plan: SimulationPlan, roles: RolePlan, random: np.random.Generator) -> None:
        self._plan, self._roles = plan, roles
        of_legs, of_inputs, *of_models = random.spawn(2 + len(plan.models))
        span_us = plan.legs.span_us
        self._legs = plan.legs.shifted(int(of_legs.integers(span_us)) if span_us else 0)
        self._codec = LocalCodec(Codec())
        self._inputs: list[int] = of_inputs.integers(roles.inputs or _INPUTS, size=len(plan.arrivals_us)).tolist()
        self._models = RoleModels(roles, plan.legs.call_us + plan.legs.turnaround_us)
        self._outcome = KernelOutcome(plan, self._codec)
        self._driver = self._made(of_models)

    def run(self) -> Run:
        """Let everything happen."""
        plan, driver = self._plan, self._driver
        self._configure()
        for number, at_us in enumerate(plan.arrivals_us.tolist()):
            driver.run_until(START_US + at_us)
            row = Tensor.of(np.array([self._inputs[number]]))
            query = Query(f"q{number}", _APPLICATION, row, None, START_US + at_us)
            driver.produce(topics.QUERIES, 0, self._codec.encode(query))
        driver.run(plan.application.slo_us / 1e6 + _MORE_S)
        return self._outcome.run(driver.now_us - START_US)

    def _made(self, of_models: list[np.random.Generator]) -> Driver:
        roles, models = self._roles, self._plan.models
        hosted = {name for host in roles.hosts for name in host.models}
        alone = [model for model in models if model.name not in hosted | roles.inline]
        operators: dict[str, Callable[[], Operator]] = {"selection": self._selection}
        operators |= {worker_role(model.name): partial(self._workers, model) for model in alone}
        operators |= {host_role(host.pool): partial(self._host, host) for host in roles.hosts}
        return Driver(
            build(
                [model.name for model in models],
                1,
                {model.name: model.topic_partitions for model in models},
                hosts={host.pool: host.models for host in roles.hosts},
            ),
            operators,
            models={
                model.name: self._models.behaviour(model, its) for model, its in zip(models, of_models, strict=True)
            },
            pace=Pace(polls_us={"selection": self._plan.poll_us}, keeps=False),
            hears={topics.PREDICTIONS: self._on_answer, topics.MODEL_PREDICTIONS: self._outcome.on_batch},
            leg=self._leg,
        )

    def _leg(self, topic: str, sent_us: int) -> int:
        if topic in _CONFIGURED:
            return 0
        legs = self._legs
        leg = {topics.QUERIES: legs.ask, topics.MODEL_PREDICTIONS: legs.reply, topics.PREDICTIONS: legs.answer}
        return leg.get(topic, legs.dispatch).delay_us(sent_us - START_US)

    def _selection(self) -> Operator:
        roles, inline = self._roles, [model for model in self._plan.models if model.name in self._roles.inline]
        settings = SelectionSettings(
            1,
            margin_us=self._plan.application.margin_us,
            cache_bytes=roles.cache_bytes,
            admission=roles.admission,
            inside=frozenset(topics.model_queries(model.name) for model in inline),
        )
        kernel = Selection(self._codec, settings)
        if not inline:
            return kernel
        workers = {
            model.name: ModelWorker(
                self._codec, self._models.record(model), "selection", worker_settings(model, is_inside=True)
            )
            for model in inline
        }
        return Local(kernel, workers, self._codec, writes_behind=True)

    def _workers(self, model: SimulatedModel) -> Operator:
        return Replicas(
            partial(ModelWorker, self._codec, self._models.record(model), settings=worker_settings(model)),
            model.owners(),
        )

    def _host(self, host: HostedModels) -> Host:
        is_sized = host.controller == "clockwork"
        schedule = SCHEDULES.get(host.controller, SCHEDULES["fifo"])(Profiles(), host.lanes)
        settings = WorkerSettings(
            1,
            "fixed" if is_sized else host.controller,
            {"rows": float(_WHOLE_ROWS)} if is_sized else None,
        )
        residency = Residency(host.memory_bytes, demand=schedule.demand)
        belongs = frozenset(host.models).__contains__
        return Host(self._codec, host.pool, settings, belongs, schedule, residency, host.lanes, host.pool)

    def _configure(self) -> None:
        plan, roles = self._plan, self._roles
        for model in plan.models:
            record = self._codec.encode(self._models.record(model))
            for key in (topics.model_version(model.name, "1"), model.name):
                self._driver.produce(topics.MODELS, 0, record, key.encode())
        application = Application(
            _APPLICATION,
            roles.asked or tuple(model.name for model in plan.models),
            plan.application.policy,
            plan.application.parameters,
            slo_ms=plan.application.slo_us / 1e3,
            hedge=roles.hedge,
            stages=roles.stages,
        )
        self._driver.produce(topics.APPLICATIONS, 0, self._codec.encode(application), _APPLICATION.encode())
        self._driver.run(0)

    def _on_answer(self, record: Record) -> None:
        self._outcome.on_answer(record, self._driver.now_us)
