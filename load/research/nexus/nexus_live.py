"""The part of `nexus` on Kafka: two real hosts on this machine, whose twenty models are asked as companies were named.

    planned  the control role plans, from nothing; what it moves is moved while answers are measured
    spread   without a control role: models are spread evenly, as many on each host

Models sleep eight times as long as Clockwork has published of a V100, and are asked an eighth as often: then it is the
hosts that are busy, and not the machine. The trace is the beginning of the simulated day, as fast.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.figures import SHOWN, SHOWN_MS, WITHIN_SLO, Figures, Kind
from load.harness.driving import deployed
from load.harness.probes import written
from load.harness.progress import say
from load.harness.system import Deployment
from load.harness.topics import new_prefix
from load.research.clockwork.live_host import GOOD, POOL, Asking, Fleet, HostWorkload, copies
from load.research.models.published import published
from load.research.nexus.pool_traffic import day
from schemas import topics
from schemas.records import Application, Plan, Tensor
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.driving import Driver
    from load.harness.system import Stage

HOSTS, SLOWER, SLO_MS = 2, 8, 800.0
LANES: Mapping[str, Sequence[str]] = {"planned": ("selection", "worker", "control"), "spread": ("selection", "worker")}
# Of the simulated day: so many hosts would be kept busy by full batches of all thirty models.
_BUSY_HOSTS: Final = 0.9
_COUNTS, _SHORT_COUNTS = 6, 2  # of the day, 15 s each
_MEMORY_MIB: Final = 64  # all models fit
# For so long after a change of the plan what is late is put down to it.
_AFTER_US: Final = 2_000_000

FIGURES = Figures(
    *(WITHIN_SLO(f"measured_{lane}_goodput") for lane in LANES),
    *(SHOWN_MS(f"measured_{lane}_p50_ms", f"measured_{lane}_p99_ms") for lane in LANES),
    SHOWN("measured_changes", "measured_moves", "measured_late_by_changes", "measured_queries", "measured_models"),
    Kind("1/s")("measured_per_s"),
)


class Found(NamedTuple):
    """What became of queries, when they were meant to be sent (us), and the plans meanwhile."""

    outcomes: NDArray[np.uint8]
    sent_us: NDArray[np.int64]
    p50_ms: float
    p99_ms: float
    plans: Sequence[Plan]


async def run(stage: Stage, speed: float) -> dict[str, float]:
    """Play the beginning of the day on two hosts, planned and spread; return the figures."""
    trace = _trace(stage.seed, speed, _SHORT_COUNTS if stage.short else _COUNTS)
    fleet = _fleet(sorted({*trace.models}), stage.folder)
    figures: dict[str, float] = {
        "measured_queries": len(trace.models),
        "measured_models": len(fleet.packages),
        "measured_per_s": len(trace.models) * 1e6 / float(trace.offsets_us[-1]),
    }
    for lane, roles in LANES.items():
        say("nexus", f"{figures['measured_per_s']:,.0f} queries a second on {HOSTS} hosts, {lane}")
        async with deployed(stage, _deployment(fleet, roles)) as driver:
            for name in fleet.packages:
                await driver.greet(name, fleet.rows[0])
            found = await _ask(driver, fleet, trace, stage.seed)
        figures |= {
            f"measured_{lane}_goodput": float((found.outcomes == GOOD).mean()),
            f"measured_{lane}_p50_ms": found.p50_ms,
            f"measured_{lane}_p99_ms": found.p99_ms,
        }
        if lane == "planned":
            figures |= changes(found)
    return figures


def _deployment(fleet: Fleet, roles: Sequence[str]) -> Deployment:
    """Return what is to run: an application for each model, and hosts that share them."""
    applications = tuple(Application(name, (name,), "single", slo_ms=SLO_MS) for name in fleet.packages)
    hosts = {POOL: {"controller": "clockwork", "memory_mib": _MEMORY_MIB, "replicas": HOSTS}}
    settings = {"hosts": hosts, "log_level": "warning"}
    return Deployment(new_prefix("nexus"), applications, fleet.packages, 1, tuple(roles), settings)


async def _ask(driver: Driver, fleet: Fleet, trace: Asking, seed: int) -> Found:
    workload = HostWorkload(trace, fleet.rows, seed)
    stretch = await driver.drive(trace.offsets_us.tolist(), workload, int(SLO_MS * 1e3), workload.take)
    plans = await asyncio.to_thread(written, driver.stage, driver.prefix, topics.PLAN, Plan)
    latency = stretch.recorder.latency_ms()
    sent_us = trace.offsets_us + stretch.recorder.start_us
    return Found(workload.outcomes, sent_us, latency["p50"], latency["p99"], plans)


def changes(found: Found) -> dict[str, float]:
    """Return how often the plan changed while queries were sent, what moved, and what was late because of that."""
    is_late, moves, count = np.zeros(len(found.sent_us), bool), 0, 0
    for before, plan in zip(found.plans, found.plans[1:], strict=False):
        at_us = max(plan.time_us, plan.from_us)
        if not found.sent_us[0] <= at_us <= found.sent_us[-1] or plan.changed_us != plan.time_us:
            continue
        homes = {place.model: place.host for place in before.places}
        moves += sum(1 for place in plan.places if homes.get(place.model, place.host) != place.host)
        count += 1
        is_late |= (found.sent_us >= at_us - int(SLO_MS * 1e3)) & (found.sent_us < at_us + _AFTER_US)
    is_late &= found.outcomes != GOOD
    late = float(is_late.mean())
    return {"measured_changes": count, "measured_moves": moves, "measured_late_by_changes": late}


def _trace(seed: int, speed: float, counts: int) -> Asking:
    """Return the queries of the models that are published whole, in the order in which they are sent."""
    its, known = day(seed, _BUSY_HOSTS / SLOWER, speed, counts), published()
    asked = {
        name: np.concatenate(parts)
        for name, parts in its.traffic.arrivals_us.items()
        if _kind(name) in known and any(len(times) for times in parts)
    }
    times_us = np.concatenate([*asked.values()])
    order = np.argsort(times_us, kind="stable")
    names = np.repeat([*asked], [len(times) for times in asked.values()])[order]
    return Asking(times_us[order] - times_us[order[0]], names.tolist(), SLO_MS, np.ones(len(names), bool))


def _fleet(names: Sequence[str], folder: Path) -> Fleet:
    """Package the models that sleep as long as theirs take."""
    packages: dict[str, Path] = {}
    sample = np.zeros((1, 1), np.float32)
    for kind in sorted({*map(_kind, names)}):
        made = folder / "kinds" / kind
        package_function(f"load.research.models.published:{kind}_{SLOWER}", made, kind, "1", sample)
        packages |= copies(made, [name for name in names if _kind(name) == kind], folder / "sleeping")
    return Fleet(packages, [Tensor.of(sample[0])])


def _kind(name: str) -> str:
    return name.partition("-")[2]
