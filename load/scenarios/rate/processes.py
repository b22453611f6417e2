"""`processes`: the whole loop as a process for each role, as one process, and with its models inside that one.

    each     selection │ joiner │ learner │ two workers
    roles    selection, joiner, learner │ two workers
    inside   selection, joiner, learner, both models

Exp3 over two linear models of 64 features, with feedback for every answer. All three run at the same time on one
broker, and get each rate by turns; who waits costs a few per cent of a core. `others_cores` tells what else the machine
did in the worst stretch: with more than a tenth of a core, measure again.
"""

from __future__ import annotations

import os
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from load.figures import CPU_US, RATIO, SHOWN, Figures, Kind
from load.harness import topics
from load.harness.aggregates import over_rounds, turned
from load.harness.driving import deployed
from load.harness.processes import listening, machine_cpu_s, total_cpu_s
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from schemas.records import Application

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from load.harness.driving import Driver
    from load.harness.system import Stage
    from load.models.training import Digits

NAME = "processes"
RATES: Final = (500, 3_000, 10_000)
LANES: Final = ("each", "roles", "inside")
TURNS, SHORT_TURNS = 2, 1
_APPLICATION = "digits"
_WARM_UP_RATE, _WARM_UP_S = 1_000, 3.0

FIGURES = Figures(
    tuple(
        figure
        for lane in LANES
        for rate in RATES
        for figure in (
            *recorded(f"{lane}_at_{rate}_", "p50_ms", "p99_ms", "defaults", "lost"),
            *CPU_US(f"{lane}_at_{rate}_cpu_us", f"{lane}_at_{rate}_broker_cpu_us"),
        )
    ),
    RATIO(*(f"at_{rate}_ratio_{point}" for rate in RATES for point in ("p50", "p99", "cpu"))),
    SHOWN("*_processes"),
    Kind("cores")("others_cores"),
)


class _Spent(NamedTuple):
    """CPU so far (s): of all roles, broker, store and this process; of the machine; and the time (s)."""

    ours_s: float
    machine_s: float
    now_s: float

    @classmethod
    def of(cls, stage: Stage, drivers: Mapping[str, Driver]) -> _Spent:
        """Look now."""
        pids = {f"{lane} {name}": pid for lane, its in drivers.items() for name, pid in its.system.pids.items()}
        for address in (*stage.bootstrap.split(","), urlsplit(stage.redis_url).netloc.rpartition("@")[2]):
            pids |= listening(address)
        times = os.times()
        return cls(total_cpu_s(pids) + times.user + times.system, machine_cpu_s(), time.monotonic())

    def others(self, before: _Spent) -> float:
        """Return how many cores others have used since."""
        return ((self.machine_s - before.machine_s) - (self.ours_s - before.ours_s)) / (self.now_s - before.now_s)


async def run(stage: Stage) -> Result:
    """Start all, then send each rate to one after the other."""
    data = digits()
    packages = package_all(linear_models(data), data.test_x, stage.folder, LINEAR_RUNTIME)
    turns = SHORT_TURNS if stage.short else TURNS
    async with AsyncExitStack() as stack:
        drivers = {}
        for lane in LANES:
            drivers[lane] = await stack.enter_async_context(
                deployed(stage, _deployment(lane, packages), data.inputs[0])
            )
            warm = Rows(_APPLICATION, data.inputs, data.labels, seed=stage.seed + 1)
            await drivers[lane].at(_WARM_UP_RATE, warm, _WARM_UP_S)
        rounds = [await _turn(drivers, data, turn) for turn in range(turns)]
        figures = {f"{lane}_processes": float(len(driver.system.pids)) for lane, driver in drivers.items()}
    figures["others_cores"] = max(value for each in rounds for name, value in each.items() if name.endswith("_others"))
    merged = over_rounds(rounds)
    return Result(
        NAME,
        figures={
            **figures,
            **{name: value for name, value in merged.items() if not name.endswith("_others")},
            **_ratios(merged),
        },
        parameters={"form": stage.form, "seconds": stage.seconds, "turns": turns, "seed": stage.seed},
        series={"turns": [dict(each) for each in rounds]},
    )


def _deployment(lane: str, packages: Mapping[str, Path]) -> Deployment:
    """Return a lane; models are named, so that none depends on what was measured at its start."""
    inline = sorted(packages) if lane == "inside" else []
    settings: dict[str, Any] = {"selection": {"inline": inline}, "log_level": "warning"}
    processes = "each" if lane == "each" else "shared"
    application = Application(_APPLICATION, tuple(packages), "exp3")
    return Deployment(topics.new_prefix(NAME), (application,), packages, settings=settings, processes=processes)


async def _turn(drivers: Mapping[str, Driver], data: Digits, turn: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for rate in RATES:
        for lane in turned(LANES, turn):
            before = _Spent.of(drivers[lane].stage, drivers)
            measured = await _stretch(drivers[lane], data, rate, turn)
            found |= {f"{lane}_at_{rate}_{name}": value for name, value in measured.items()}
            found[f"{lane}_at_{rate}_others"] = _Spent.of(drivers[lane].stage, drivers).others(before)
    return found


async def _stretch(driver: Driver, data: Digits, rate: int, turn: int) -> dict[str, float]:
    """Send one stretch; the broker's work for the sender and the reader counts, too."""
    workload = Rows(_APPLICATION, data.inputs, data.labels, seed=driver.stage.seed + rate + turn)
    broker = {name: pid for address in driver.stage.bootstrap.split(",") for name, pid in listening(address).items()}
    before_s = total_cpu_s(broker)
    stretch = await driver.at(rate, workload, driver.stage.seconds, turn=turn)
    broker_us = (total_cpu_s(broker) - before_s) / max(1, stretch.recorder.total.answered) * 1e6
    kept = {name: stretch.recorder.figures()[name] for name in ("p50_ms", "p99_ms", "defaults", "lost")}
    return {**kept, "cpu_us": stretch.cpu_us_per_query, "broker_cpu_us": broker_us}


def _ratios(figures: Mapping[str, float]) -> dict[str, float]:
    """Set the one process with its models beside a process for each; CPU is of roles and broker."""
    found: dict[str, float] = {}
    for rate in RATES:
        one, each = ({name: figures[f"{lane}_at_{rate}_{name}"] for name in _COMPARED} for lane in ("inside", "each"))
        found |= {f"at_{rate}_ratio_{point}": one[f"{point}_ms"] / each[f"{point}_ms"] for point in ("p50", "p99")}
        found[f"at_{rate}_ratio_cpu"] = sum(map(one.get, _CPU)) / sum(map(each.get, _CPU))  # type: ignore[arg-type]
    return found


_CPU = ("cpu_us", "broker_cpu_us")
_COMPARED = ("p50_ms", "p99_ms", *_CPU)


def tables(result: Result) -> Sequence[Table]:
    """Return a line for each rate and lane."""
    heads = ("queries/s", "lane", "p50 ms", "p99 ms", "defaults", "roles us", "broker us")
    rows = []
    for rate in RATES:
        for lane in LANES:
            at = {name.removeprefix(f"{lane}_at_{rate}_"): value for name, value in result.figures.items()}
            cells = (f"{at[name]:.1f}" for name in ("p50_ms", "p99_ms"))
            cpu = (f"{at[name]:.0f}" for name in ("defaults", *_CPU))
            rows.append((f"{rate:,}", lane, *cells, *cpu))
    return (Table("The loop as several processes and as one", heads, tuple(rows)),)


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "the loop as a process for each role, as one, and with its models inside: latency, CPU of roles and broker",
    tables=tables,
    seconds=8.0,
    short=True,
)
