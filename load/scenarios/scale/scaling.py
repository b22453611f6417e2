"""One size of something that grows: a deployment, backlogs through it, and their cost in time and memory."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from load.figures import CPU_US, MIB, PER_S, SHOWN, SHOWN_S, Figures, Kind, quantiles_ms
from load.harness import topics
from load.harness.aggregates import cores
from load.harness.driving import Driver
from load.harness.openloop import Asked
from load.harness.probes import latest_gauge
from load.harness.processes import usage
from load.harness.recorder import recorded
from load.harness.workload import query_id
from schemas.records import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.harness.driving import Stretch
    from load.harness.system import Deployment, Stage
    from schemas.records import Tensor, Value

STATES = "states_cached"
SLO_MS = 600_000.0  # a backlog waits; with a shorter one it would be answered by defaults
_DRAIN_S = 300.0
_WARM_UP = 500  # queries
RATE = 200  # queries a second at which latency is measured
_LATENCY_S, _LATENCY_SLO_US = 5.0, 100_000
_GAUGE_S = 10.0


@dataclass(slots=True)
class Many:
    """Asks many applications about many contexts in turns; ids follow from the seed and the number of the query.

    Attributes:
        inputs: the rows, in turns.
        labels: of the rows; empty = no feedback is given.
        applications: how many; they are called as `application` says.
        contexts: how many; 0 = queries have none.
        seed: of the ids.
        asked: queries of earlier backlogs.
    """

    inputs: Sequence[Tensor]
    labels: Sequence[Value] = ()
    applications: int = 1
    contexts: int = 0
    seed: int = 0
    asked: int = 0

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index` of this backlog."""
        number = self.asked + index
        row = number % len(self.inputs)
        context = f"user-{number % self.contexts}" if self.contexts else None
        name = application(number % self.applications)
        query = Query(query_id(self.seed, number), name, self.inputs[row], context, intended_us, SLO_MS)
        return Asked(query, self.labels[row] if self.labels else None)


def application(number: int) -> str:
    """Return what an application is called."""
    return f"app-{number}"


class Chunk(NamedTuple):
    """The result of one backlog.

    Attributes:
        queries: answered.
        per_s: queries a second: until the broker had 95 % of the answers, or where feedback is given, until all of it
            was learnt and committed.
        cpu_us: CPU time for each query, by instance.
        mib: resident memory afterwards, by instance.
        lost: queries without an answer.
        defaults: answers without a model's.
    """

    queries: int
    per_s: float
    cpu_us: dict[str, float]
    mib: dict[str, float]
    lost: int
    defaults: int
    broker_cpu_us: float = 0.0


class Size(NamedTuple):
    """The result of one size.

    Attributes:
        start_s: how long it took to start.
        chunks: its backlogs in order.
        states: policy states held by selection.
        calm: `RATE` queries a second, after the backlogs.
    """

    start_s: float
    chunks: tuple[Chunk, ...]
    states: float
    calm: Stretch

    def figures(self) -> dict[str, float]:
        """Return start, rate and CPU time of all backlogs together, then latency, and memory by role and in all."""
        queries = sum(chunk.queries for chunk in self.chunks)
        calm = self.calm.recorder
        cpu_us = sum(chunk.queries * sum(chunk.cpu_us.values()) for chunk in self.chunks) / max(1, queries)
        broker_us = sum(chunk.queries * chunk.broker_cpu_us for chunk in self.chunks) / max(1, queries)
        took_s = sum(chunk.queries / chunk.per_s if chunk.per_s else math.inf for chunk in self.chunks)
        per_s = queries / took_s
        return {
            "start_s": self.start_s,
            "drained_per_s": per_s,
            "cpu_us_per_query": cpu_us,
            "broker_cpu_us_per_query": broker_us,
            "used_cores": cores(per_s, cpu_us, broker_us),
            **{f"at_{RATE}_{point}_ms": calm.latency_ms()[point] for point in ("p50", "p99")},
            f"at_{RATE}_within_slo": calm.total.in_time / max(1, calm.total.sent),
            **{f"{role}_mib": mib for role, mib in by_role(self.chunks[-1].mib).items()},
            "all_mib": sum(self.chunks[-1].mib.values()),
            "lost": sum(chunk.lost for chunk in self.chunks) + calm.open,
            "defaults": sum(chunk.defaults for chunk in self.chunks) + calm.total.defaults,
        }


def declared(prefix: str) -> Figures:
    """Declare the figures of a size."""
    return Figures(
        SHOWN_S(f"{prefix}start_s"),
        PER_S(f"{prefix}drained_per_s"),
        CPU_US(f"{prefix}cpu_us_per_query", f"{prefix}broker_cpu_us_per_query"),
        Kind("cores")(f"{prefix}used_cores"),
        quantiles_ms(f"{prefix}at_{RATE}_", "p50", "p99"),
        recorded(f"{prefix}at_{RATE}_", "within_slo"),
        MIB(f"{prefix}mib"),
        recorded(prefix, "lost", "defaults"),
        SHOWN(f"{prefix}states"),
    )


def by_role(values: dict[str, float]) -> dict[str, float]:
    """Add up what instances of a role have."""
    found: dict[str, float] = {}
    for instance, value in values.items():
        role = instance.partition(".")[0]
        found[role] = found.get(role, 0.0) + value
    return found


async def measure(stage: Stage, deployment: Deployment, workload: Many, backlogs: Sequence[int]) -> Size:
    """Start a deployment and have it answer backlogs, one after the other, and then single queries.

    Args:
        stage: where.
        deployment: what.
        workload: whom and what to ask.
        backlogs: queries of each.
    """
    started_s = time.monotonic()
    try:
        async with stage.launch(deployment) as system:
            start_s = time.monotonic() - started_s
            driver = Driver(stage, deployment.prefix, system)
            await driver.greet(application(0), workload.inputs[0])
            chunks = [await _chunk(driver, workload, count) for count in (_WARM_UP, *backlogs)]
            states = latest_gauge(stage, deployment.prefix, "selection", STATES, _GAUGE_S)
            calm = await driver.at(RATE, workload, _LATENCY_S, _LATENCY_SLO_US)
    finally:
        topics.delete(stage.bootstrap, deployment.prefix)
    return Size(start_s, tuple(chunks[1:]), states, calm)


async def _chunk(driver: Driver, workload: Many, count: int) -> Chunk:
    stretch = await driver.backlog(count, workload, _DRAIN_S)
    workload.asked += count
    total = stretch.recorder.total
    used = usage(driver.system.pids)
    return Chunk(
        queries=total.answered,
        per_s=stretch.learnt_per_s if workload.labels else stretch.answered_per_s,
        cpu_us={name: seconds / max(1, total.answered) * 1e6 for name, seconds in stretch.cpu_s.items()},
        mib={name: each.rss_bytes / 2**20 for name, each in used.items()},
        lost=stretch.recorder.open,
        defaults=total.defaults,
        broker_cpu_us=stretch.broker_cpu_us_per_query,
    )
