"""A host on Kafka, beside workers of one model each: what became of every query, and what the host reports of it.

Each model has an application of its own, as a customer has, and so each query asks one model. The sender is an open
loop: a query goes out when the trace says, and its time runs from then.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import psutil

from load.harness import topics as harness
from load.harness.driving import deployed
from load.harness.openloop import Asked
from load.harness.probes import written
from load.harness.processes import listening, total_cpu_s, usage
from load.harness.system import Deployment
from load.harness.workload import query_id
from schemas import topics
from schemas.records import Application, Query, Report, Status
from streams.client import Client
from streams.runtime.clock import SystemClock
from workers import manifest as manifests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.driving import Driver
    from load.harness.system import Stage
    from schemas.records import Prediction, Tensor

POOL: Final = "small"
ROLES: Final = ("selection", "worker")
_ROOM_MIB: Final = 24  # less than all models take: they are measured where others have made room, as later
_GREETINGS: Final = 10
_GREETING_MS: Final = 1_000.0  # the longest that applications allow
_REPORT_US: Final = 10_000_000  # a role reports every second
# Any version of a host says this of rows that it gives up at once (`workers.kernel.schedule.clockwork`).
NOT_LOADED: Final = "the model is not loaded"
GOOD, LATE, REFUSED, UNLOADED, EXPIRED, NO_ANSWER = range(6)


class Fleet(NamedTuple):
    """Models, and the row that each is asked."""

    packages: Mapping[str, Path]
    rows: Sequence[Tensor]

    def first(self, names: Sequence[str]) -> Fleet:
        """Return it with these models alone."""
        return self._replace(packages={name: self.packages[name] for name in names})


class Asking(NamedTuple):
    """Queries: when each is sent, after the first, which model it asks, and whether it comes within the load."""

    offsets_us: NDArray[np.int64]
    models: Sequence[str]
    slo_ms: float
    is_within: NDArray[np.bool_]


class Told(NamedTuple):
    """What a host has counted, and what it says at the end."""

    counters: Mapping[str, float]
    gauges: Mapping[str, float]


class Found(NamedTuple):
    """What became of queries.

    Attributes:
        outcomes: of each query, `GOOD` to `NO_ANSWER`.
        p50_ms, p99_ms: of all answers, from the time that each query was meant to be sent.
        cores: that everything used together, the broker and the sender included.
        told: of the host, what it counted meanwhile; None = there was none.
        models_mib: that the processes of models take.
    """

    outcomes: NDArray[np.uint8]
    p50_ms: float
    p99_ms: float
    cores: float
    told: Told | None
    models_mib: float

    def share(self, *outcomes: int) -> float:
        """Return the share of queries with one of these outcomes."""
        return float(np.isin(self.outcomes, outcomes).mean()) if len(self.outcomes) else 0.0


def copies(package: Path, names: Sequence[str], folder: Path) -> dict[str, Path]:
    """Copy a package under each of these names; a host takes them for different models."""
    found = {}
    for name in names:
        found[name] = folder / name
        shutil.copytree(package, found[name])
        manifests.write(found[name], replace(manifests.read(found[name]), name=name))
    return found


def hosting(controller: str, memory_mib: int) -> dict[str, object]:
    """Return the settings of a deployment whose models all share one host."""
    return {"hosts": {POOL: {"controller": controller, "memory_mib": memory_mib}}, "log_level": "warning"}


def deployment(fleet: Fleet, settings: Mapping[str, object]) -> Deployment:
    """Return what is to run: an application for each model, and as few partitions as there can be."""
    applications = tuple(Application(name, (name,), "single") for name in fleet.packages)
    return Deployment(harness.new_prefix("clockwork"), applications, fleet.packages, 1, ROLES, settings)


@dataclass(slots=True)
class HostWorkload:
    """Makes the queries of an `Asking`, and takes their answers."""

    asking: Asking
    rows: Sequence[Tensor]
    seed: int
    numbers: dict[str, int] = field(default_factory=dict)
    outcomes: NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        """No query has an answer yet."""
        self.outcomes = np.full(len(self.asking.models), NO_ANSWER, np.uint8)

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return the query with this number."""
        its = query_id(self.seed, index)
        self.numbers[its] = index
        row, model = self.rows[index % len(self.rows)], self.asking.models[index]
        return Asked(Query(its, model, row, None, intended_us, self.asking.slo_ms))

    def take(self, predictions: Sequence[Prediction]) -> None:
        """Note what became of queries, when their answers are read."""
        now_us, slo_us = SystemClock().now_us(), int(self.asking.slo_ms * 1e3)
        for prediction in predictions:
            self.outcomes[self.numbers[prediction.query_id]] = outcome(prediction, now_us, slo_us)


def outcome(prediction: Prediction, now_us: int, slo_us: int) -> int:
    """Return what an answer is worth that was read now; its time runs from when the query was meant to be sent."""
    if prediction.status is not Status.DEFAULT:
        return GOOD if now_us - prediction.sent_us <= slo_us else LATE
    if prediction.message.startswith(NOT_LOADED):
        return UNLOADED
    return REFUSED if prediction.message else EXPIRED


@asynccontextmanager
async def greeted(stage: Stage, fleet: Fleet, settings: Mapping[str, object]) -> AsyncIterator[Driver]:
    """Run a deployment in which each model has answered once: all is imported, and a host has a profile of each.

    Raises:
        LookupError: one does not answer.
    """
    async with deployed(stage, deployment(fleet, settings)) as driver:
        async with Client(stage.bootstrap, driver.prefix, stage.properties) as client:
            for name in fleet.packages:
                await _greet(client, name, fleet.rows[0])
        yield driver


async def _greet(client: Client, name: str, row: Tensor) -> None:
    for _ in range(_GREETINGS):
        answer = await client.predict(name, row, slo_ms=_GREETING_MS, timeout_s=2 * _GREETING_MS / 1e3)
        if answer.status is not Status.DEFAULT:
            return
    raise LookupError(f"{name} answers its default output ({answer.reason}); see the logs of its roles")


async def ask(driver: Driver, fleet: Fleet, asking: Asking, seed: int, *, is_host: bool = True) -> Found:
    """Send queries at their times, and return what became of them."""
    workload = HostWorkload(asking, fleet.rows, seed)
    before = await asyncio.to_thread(told, driver) if is_host else None
    cpu_s, slo_us = _cpu_s(driver.stage), int(asking.slo_ms * 1e3)
    stretch = await driver.drive(asking.offsets_us.tolist(), workload, slo_us, workload.take)
    used_s = sum(stretch.cpu_s.values()) + _cpu_s(driver.stage) - cpu_s
    after = await asyncio.to_thread(told, driver) if is_host else None
    latency = stretch.recorder.latency_ms()
    return Found(
        workload.outcomes,
        latency["p50"],
        latency["p99"],
        used_s / max(1.0, float(asking.offsets_us[-1]) / 1e6),
        None if before is None or after is None else _since(before, after),
        models_mib(driver),
    )


def models_mib(driver: Driver) -> float:
    """Return what the processes take that run models (MiB, resident, those of their models included)."""
    used = usage(driver.system.pids)
    return sum(each.rss_bytes for name, each in used.items() if not name.startswith("selection")) / 2**20


def told(driver: Driver) -> Told:
    """Return what the host says from now on.

    Raises:
        TimeoutError: it says nothing.
    """
    now_us = SystemClock().now_us()
    while SystemClock().now_us() < now_us + _REPORT_US:
        reports = written(driver.stage, driver.prefix, topics.REPORTS, Report)
        its = [each for each in reports if each.role.startswith("host.") and each.time_us >= now_us]
        if its:
            return Told(its[0].counters, its[0].gauges)
    raise TimeoutError(f"the host has not reported within {_REPORT_US / 1e6:g} s")


def _cpu_s(stage: Stage) -> float:
    """Return the CPU time so far of the broker and of this process, which sends."""
    own = psutil.Process().cpu_times()
    return float(own.user + own.system) + total_cpu_s(listening(stage.bootstrap))


def _since(before: Told, after: Told) -> Told:
    """Return what was counted between two reports, and the later one's gauges."""
    counted = {name: value - before.counters.get(name, 0.0) for name, value in after.counters.items()}
    return Told(counted, after.gauges)


async def resident_bytes(stage: Stage, fleet: Fleet) -> float:
    """Return what all models together take, by what a host says of those that are in memory after all were asked."""
    async with greeted(stage, fleet, hosting("clockwork", _ROOM_MIB)) as driver:
        gauges = (await asyncio.to_thread(told, driver)).gauges
    return gauges["host_resident_bytes"] / gauges["host_resident_models"] * len(fleet.packages)
