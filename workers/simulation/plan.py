"""What is simulated, as values. `deploy.config.plan` reads them from a file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from policies.batching import create_controller
from policies.contract import is_contextual
from policies.registry import create
from schemas.topics import MODEL_PARTITIONS
from workers.kernel.model.batcher import Batcher
from workers.simulation.errors import PlanError
from workers.simulation.legs import Legs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from policies.contract import Policy
    from schemas.records import Stage
    from workers.simulation.service import SimulatedService

# As in selection: what is left for the way back to the client where nothing else is said.
_MARGIN_US, _MARGIN_PART = 5_000, 10
_ROUNDED = 1e-6
_NO_PARAMETERS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """One model and its workers.

    Attributes:
        name: of the model.
        service: how long its batches take.
        replicas: workers.
        controller: that sizes their batches, by name.
        parameters: of the controller.
        objective_us: how long a batch may take; None = what the deadlines leave.
        queue_rows: that may wait in a worker; what comes then is left unread.
        shared: all replicas take from one queue. Kafka has none such: each partition belongs to one worker.
        partitions: of its topic; None = 4 as in every deployment, or one for each replica where these are more.
    """

    name: str
    service: SimulatedService
    replicas: int = 1
    controller: str = "aimd"
    parameters: Mapping[str, float] = field(default_factory=dict)
    objective_us: int | None = None
    queue_rows: int = 4_096
    shared: bool = False
    partitions: int | None = None

    def batcher(self) -> Batcher[int]:
        """Return a worker's queue, as a worker makes it; its rows are numbers of queries.

        Raises:
            PolicyError: there is no such controller, or no such parameter.
        """
        controller = create_controller(self.controller, self.parameters)
        return Batcher(controller, limit=1 << 40, objective_us=self.objective_us)

    @property
    def topic_partitions(self) -> int:
        """Partitions of its topic."""
        return self.partitions or max(MODEL_PARTITIONS, self.replicas)

    def owners(self) -> tuple[int, ...]:
        """Return which worker reads each partition, as Kafka's range assignor has it."""
        if self.shared:
            return (0,) * self.topic_partitions
        each, more = divmod(self.topic_partitions, self.replicas)
        return tuple(worker for worker in range(self.replicas) for _ in range(each + (worker < more)))


@dataclass(frozen=True, slots=True)
class SimulatedApplication:
    """Who asks, and by when answers are wanted.

    Attributes:
        policy: that chooses among the models, by name.
        parameters: of the policy.
        slo_us: after which an answer is late.
        margin_us: before the deadline, when the answer leaves; None = 5 ms, of a short objective a tenth.
        wanted: the share of queries that are to be answered by models in time.
    """

    policy: str = "single"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    slo_us: int = 100_000
    margin_us: int | None = None
    wanted: float = 0.99

    @property
    def limit_us(self) -> int:
        """How long after a query was sent its answer leaves at the latest."""
        margin_us = min(self.slo_us // _MARGIN_PART, _MARGIN_US) if self.margin_us is None else self.margin_us
        return self.slo_us - margin_us


@dataclass(frozen=True, slots=True)
class HostedModels:
    """Models that share a process, as in the settings: `hosts`."""

    pool: str
    models: tuple[str, ...]
    memory_bytes: int
    controller: str = "aimd"
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class RolePlan:
    """What only the roles' own kernels know; a plan that has it is simulated by them.

    Attributes:
        inline: models inside selection.
        hosts: that models share.
        stages: of the application's graph.
        asked: models among which the policy chooses; () = all.
        hedge: share of the questions that may be put twice.
        cache_bytes: of outputs that selection keeps by input.
        admission: whether selection refuses what would be late.
        inputs: how many different inputs there are, drawn alike; 0 = each query has its own.
        loads: how long a model loads (us), and what it takes in memory (bytes), by name.
        answers: texts that a model answers, drawn alike, by name. Others answer one of two classes.
    """

    inline: frozenset[str] = frozenset()
    hosts: tuple[HostedModels, ...] = ()
    stages: tuple[Stage, ...] = ()
    asked: tuple[str, ...] = ()
    hedge: float = 0.0
    cache_bytes: int = 0
    admission: bool = False
    inputs: int = 0
    loads: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    answers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """One simulation.

    Attributes:
        arrivals_us: when queries are sent, from 0, rising.
        seconds: for which they come.
        models: that can be asked, in the order of the application's arms.
        application: that asks.
        legs: between the processes.
        selections: processes of the role `selection`.
        poll_us: the least time between two polls of one of them.
        warm_up_us: queries sent before this are simulated and not counted.
        left_out: queries of the trace that come too late to be sent.
        roles: what only the roles' own kernels know; None = nothing of it.
    """

    arrivals_us: NDArray[np.int64]
    seconds: float
    models: tuple[SimulatedModel, ...]
    application: SimulatedApplication = field(default_factory=SimulatedApplication)
    legs: Legs = field(default_factory=Legs)
    selections: int = 1
    poll_us: int = 0
    warm_up_us: int = 0
    left_out: int = 0
    roles: RolePlan | None = None

    def with_workers(self, replicas: int, model: str = "") -> SimulationPlan:
        """Return the plan with so many workers of a model, or of each.

        Raises:
            PlanError: there is no such model.
        """
        if model and model not in {each.name for each in self.models}:
            raise PlanError(f"there is no model {model!r}; there are: {', '.join(each.name for each in self.models)}")
        changed = (replace(m, replicas=replicas) if model in {"", m.name} else m for m in self.models)
        return replace(self, models=tuple(changed))

    def policy(self) -> Policy:
        """Return the application's policy, if its choices can be simulated.

        Raises:
            PolicyError: there is no such policy, or no such parameter.
            PlanError: it goes by what is not simulated.
        """
        policy = create(self.application.policy, self.application.parameters)
        if self.roles is not None:
            self._check(self.roles)
            return policy
        if is_contextual(policy):
            raise PlanError(f"policy {policy.name} goes by {policy.uses} of queries or models, which are not simulated")
        models = len(self.models)
        if not policy.full_information and sum(policy.propensities(policy.init(models), models)) > 1.0 + _ROUNDED:
            raise PlanError(f"policy {policy.name} asks several models, but not all, which is not simulated")
        return policy

    def _check(self, roles: RolePlan) -> None:
        """Refuse what the roles do not have."""
        names = {model.name for model in self.models}
        named = {*roles.inline, *roles.asked, *(name for host in roles.hosts for name in host.models)}
        named |= {stage.model for stage in roles.stages if stage.model}
        if unknown := named - names:
            raise PlanError(f"there is no model {', '.join(sorted(unknown))}; there are: {', '.join(sorted(names))}")
        if self.selections > 1 or any(model.shared for model in self.models):
            raise PlanError("the roles' own kernels are simulated with one selection process, and no shared_queue")
