"""A host in simulated time: the real schedules and residency, and models whose batches and loading take drawn times.

One batch runs at a time, and one model is loaded at a time, beside it or instead of it. Queries of one run have one
objective, so each model's queue is in the order in which they came.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from policies.batching import create_controller
from streams.testing.events import Events
from workers.kernel.model.batcher import Batcher
from workers.kernel.schedule.contract import Queue
from workers.kernel.schedule.fifo import Fifo
from workers.kernel.schedule.profiles import Profiles
from workers.kernel.schedule.registry import SCHEDULES
from workers.kernel.schedule.residency import Residency

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from schemas.records import Profile
    from workers.kernel.schedule.contract import Start
    from workers.kernel.schedule.profiles import Errors
    from workers.simulation.service import Draw, SimulatedService

_NEVER: Final = 1 << 62
# What became of a query.
WAITS, PREDICTED, REFUSED, EXPIRED, NO_MODEL = range(5)


class HostModel(NamedTuple):
    """One model.

    Attributes:
        service: how long its batches take.
        load_us: how long loading takes.
        bytes: in memory.
        profile: what is known of it before; None = nothing.
    """

    service: SimulatedService
    load_us: int
    bytes: int
    profile: Profile | None = None


@dataclass(frozen=True, slots=True)
class HostPlan:
    """One simulation.

    Attributes:
        arrivals_us: when queries come, rising.
        asked: the model of each, by its place in `models`.
        models: all that there are.
        due_us: how long after it came an answer is due.
        budget_bytes: that resident models take at most.
        schedule: by name.
        controller: that caps batches under `fifo`, by name.
        cap: of a batch.
        apart: models that have a process each, always resident; those not named have none. None = all share a host.
        loads_beside: whether a model is loaded while another runs.
    """

    arrivals_us: NDArray[np.int64]
    asked: NDArray[np.int64]
    models: tuple[HostModel, ...]
    due_us: int
    budget_bytes: int
    schedule: str = "clockwork"
    controller: str = "aimd"
    cap: int = 16
    apart: frozenset[int] | None = None
    loads_beside: bool = True


class HostRun(NamedTuple):
    """What became of it; columns have one entry a query.

    Attributes:
        outcome: of each query.
        done_us: when its batch was over.
        is_cold: its model was not in memory when it came.
        batches, loads: how many there were.
        busy_us: how long batches ran together.
        errors: predicted beside actual times of batches.
    """

    outcome: bytes
    done_us: array[int]
    is_cold: bytes
    batches: int
    loads: int
    busy_us: int
    errors: Errors


def simulate_host(plan: HostPlan, random: np.random.Generator) -> HostRun:
    """Return what becomes of a plan's queries; the same plan and seed give the same to the last bit."""
    return _HostSimulation(plan, random).run()


class _HostSimulation:
    """One run."""

    def __init__(self, plan: HostPlan, random: np.random.Generator) -> None:
        self._plan = plan
        count, models = len(plan.arrivals_us), len(plan.models)
        self._names = [f"m{index}" for index in range(models)]
        self._index = {name: index for index, name in enumerate(self._names)}
        self._draws: list[Draw] = [
            model.service.sampler(its) for model, its in zip(plan.models, random.spawn(models), strict=True)
        ]
        profiles = Profiles()
        for name, model in zip(self._names, plan.models, strict=True):
            if model.profile is not None:
                profiles.restore(model.profile._replace(model=name))
        self._schedule = SCHEDULES[plan.schedule](profiles)
        self._residency = Residency(plan.budget_bytes, demand=self._schedule.demand)
        self._is_fifo = plan.schedule == Fifo.name
        self._waiting: list[list[int]] = [[] for _ in range(models)]  # numbers of queries
        self._batchers = [self._batcher() for _ in range(models)] if self._is_fifo else []
        self._due = (plan.arrivals_us + plan.due_us).tolist()
        self._came: list[int] = plan.arrivals_us.tolist()
        self._outcome, self._is_cold = bytearray(count), bytearray(count)
        self._done_us = array("q", [-1]) * count
        self._asked: Sequence[int] = plan.asked.tolist()
        self._events = Events()
        self._wake_us = _NEVER
        self._is_running = False
        self._loading: str | None = None
        self._loaded_us = 0
        self._batches = self._loads = self._busy_us = 0

    def run(self) -> HostRun:
        """Let everything happen."""
        if self._plan.apart is not None:
            self._keep(self._plan.apart)
        self._events.run(self._came, self._arrive)
        return HostRun(
            bytes(self._outcome),
            self._done_us,
            bytes(self._is_cold),
            self._batches,
            self._loads,
            self._busy_us,
            self._schedule.profiles.errors(),
        )

    def _batcher(self) -> Batcher[int]:
        parameters = {"max_rows": float(self._plan.cap)} if self._plan.controller != "fixed" else {}
        return Batcher(create_controller(self._plan.controller, parameters), limit=1 << 40)

    def _keep(self, resident: frozenset[int]) -> None:
        """Have these models in memory from the beginning."""
        for model in sorted(resident):
            self._residency.want(self._names[model], self._plan.models[model].bytes)
            for change in self._residency.changes(0):
                self._residency.loaded(change.load, 0, 0)

    def _arrive(self, now_us: int, query: int) -> None:
        plan, model = self._plan, self._asked[query]
        name = self._names[model]
        if plan.apart is not None and model not in plan.apart:
            self._outcome[query] = NO_MODEL
            return
        if name not in self._residency:
            self._is_cold[query] = 1
            self._residency.want(name, plan.models[model].bytes)
        if self._is_fifo:
            self._batchers[model].offer([(self._due[query], query)], now_us)
        self._waiting[model].append(query)
        self._tell(model, now_us)
        self._advance(now_us)

    def _tell(self, model: int, now_us: int) -> None:
        name, waiting, its = self._names[model], self._waiting[model], self._plan.models[model]
        is_resident = name in self._residency
        load_us = 0 if is_resident else self._schedule.profiles.load_us(name)
        if self._loading == name:
            load_us = max(0, self._loaded_us - now_us)
        cap = self._batchers[model].cap if self._is_fifo else self._plan.cap
        since_us = self._came[waiting[0]] if waiting else now_us
        dues_us = [self._due[query] for query in waiting]
        self._schedule.changed(Queue(name, dues_us, since_us, is_resident, load_us, its.bytes, cap), now_us)

    def _advance(self, now_us: int) -> None:
        """Do everything that can be done now."""
        for refusal in self._schedule.refused(now_us):
            model = self._index[refusal.model]
            self._drop(model, refusal.rows, REFUSED)
            self._tell(model, now_us)
        is_free = self._plan.loads_beside or self._loading is None
        while is_free and not self._is_running and (start := self._schedule.next(now_us)) is not None:
            self._start(start, now_us)
        if self._loading is None and (self._plan.loads_beside or not self._is_running):
            self._load(now_us)
            self._wake_by(self._residency.due_us)
        self._wake_by(self._schedule.due_us())

    def _wake_by(self, due_us: int | None) -> None:
        """See to it that everything is looked at again by then."""
        if due_us is not None and due_us < self._wake_us:
            self._wake_us = due_us
            self._events.add(due_us, self._wake)

    def _wake(self, now_us: int, _about: object) -> None:
        if now_us == self._wake_us:  # else it was to be looked at earlier, and has been
            self._wake_us = _NEVER
            self._advance(now_us)

    def _drop(self, model: int, rows: int, outcome: int) -> list[int]:
        dropped = self._waiting[model][:rows]
        del self._waiting[model][:rows]
        for query in dropped:
            self._outcome[query] = outcome
        return dropped

    def _start(self, start: Start, now_us: int) -> None:
        model, rows = self._index[start.model], start.rows
        if self._is_fifo:
            take = self._batchers[model].take(now_us)
            self._drop(model, len(take.expired), EXPIRED)
            rows = len(take.rows)
        queries = self._drop(model, rows, PREDICTED)
        self._tell(model, now_us)
        if not rows:
            self._schedule.done(start.model, 0, 0, now_us)
            return
        took_us = self._draws[model](rows)
        self._is_running = True
        self._batches += 1
        self._busy_us += took_us
        self._residency.use(start.model, now_us, is_busy=True)
        for query in queries:
            self._done_us[query] = now_us + took_us
        self._events.add(now_us + took_us, self._done, (model, rows, took_us))

    def _done(self, now_us: int, about: tuple[int, int, int]) -> None:
        model, rows, took_us = about
        self._is_running = False
        self._residency.use(self._names[model], now_us, is_busy=False)
        if self._is_fifo:
            self._batchers[model].done(rows, took_us, now_us)
        self._schedule.done(self._names[model], rows, took_us, now_us)
        self._advance(now_us)

    def _load(self, now_us: int) -> None:
        for load, evictions in self._residency.changes(now_us):
            for eviction in evictions:
                self._tell(self._index[eviction.unit], now_us)
                if self._waiting[self._index[eviction.unit]]:
                    self._residency.want(eviction.unit, self._plan.models[self._index[eviction.unit]].bytes)
            self._loads += 1
            self._loading = load
            self._loaded_us = now_us + self._plan.models[self._index[load]].load_us
            self._events.add(self._loaded_us, self._loaded, load)

    def _loaded(self, now_us: int, name: str) -> None:
        model = self._index[name]
        its = self._plan.models[model]
        self._loading = None
        self._residency.loaded(name, 0, now_us)
        self._schedule.profiles.loaded(name, its.load_us, its.bytes)
        self._tell(model, now_us)
        self._advance(now_us)
