"""`account`: where a query's CPU time goes, by role and by step, and where its latency does, leg by leg.

It runs the whole loop, four legs: Exp3 over two scikit-learn models of 64 features, feedback for every answer. It does
so once draining a backlog, once at 500/s, and says how much of it went by columns. Every process samples itself
(`streams.runtime.process.cpu_profiler`). The same load without sampling gives the latencies, and the cost of sampling.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from load.figures import Better, Figures, Kind
from load.harness import topics
from load.harness.arrivals import POISSON, until
from load.harness.driving import Driver
from load.harness.probes import await_learnt, latest_gauge, length
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.research.account import traffic
from load.research.account.measured import Measured, accounted, declared, declared_legs, with_legs
from load.research.account.profile import Profile, Window, model_share, spent_by
from load.results.results import Result
from schemas.records import Application
from schemas.topics import FEEDBACK, PREDICTIONS, QUERIES
from streams.operators.statistics import BY_COLUMNS, render
from streams.runtime.clock import SystemClock
from streams.runtime.process.gc_schedule import FREEZE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from load.harness.driving import Stretch
    from load.harness.system import Stage
    from load.models.training import Digits
    from load.research.account.traffic import Traffic
    from schemas.records import Prediction

    Note: TypeAlias = Callable[[Sequence[Prediction]], None]

NAME = "account"
BACKLOG = 60_000
RATE = 500
BACKLOG_STRETCH, RATE_STRETCH = "backlog", f"at_{RATE}"
_APPLICATION = "digits"
_WARM_UP_RATE = 300.0
_WARM_UP_S = FREEZE_S + 1.0  # what a process does once, soon after its start, belongs to no query
_BACKLOG_SLO_MS = 600_000.0
_BACKLOG_DRAIN_S = 120.0
_SLO_US = 100_000
_LEARNT_S, _REPORT_S = 120.0, 30.0
# What roles report of columns.
COLUMNAR = {"selection": BY_COLUMNS, "joiner": "columns_total", "learner": "columns_total"}
_WORKER = "worker."


@dataclass(frozen=True, slots=True)
class _Ran:
    """The measurements of one deployment, by stretch.

    Attributes:
        measured: by stretch.
        traffic: by stretch.
        pids: of its processes, by instance.
        by_columns: by role, the share of the records that it read which went by columns.
    """

    measured: Mapping[str, Measured]
    traffic: Mapping[str, Traffic]
    pids: Mapping[str, int]
    by_columns: Mapping[str, float]


FIGURES = Figures(
    declared(BACKLOG_STRETCH),
    declared(RATE_STRETCH),
    declared_legs(RATE_STRETCH),
    Kind("", Better.HIGHER, 0.0, 0.05)(*(f"by_columns_{role}" for role in COLUMNAR)),
)


async def run(stage: Stage) -> Result:
    """Measure a system that samples itself, then one that does not."""
    data = digits()
    packages = package_all(linear_models(data), data.test_x, stage.folder, LINEAR_RUNTIME)
    folder = stage.folder / "profiles"
    sampled = await _run(stage, data, packages, {"profile": str(folder)})
    plain = await _run(stage, data, packages, {})
    profiles = {instance: Profile.read(folder / f"{pid}.json") for instance, pid in sampled.pids.items()}
    given = {"backlog": BACKLOG, "rate": RATE, "seconds": stage.seconds, "seed": stage.seed}
    figures = {f"by_columns_{role}": share for role, share in plain.by_columns.items()}
    result = Result(NAME, figures, {**given, "runtime": LINEAR_RUNTIME}, {})
    for name, measured in sampled.measured.items():
        written = sampled.traffic[name]
        shares = {f"{_WORKER}{model}": _model_share(packages[model], data, written, model) for model in packages}
        spent = {
            instance: spent_by(profile, measured.window, shares.get(instance)) for instance, profile in profiles.items()
        }
        result = accounted(result, name, measured, plain.measured[name], spent, written)
    return with_legs(result, RATE_STRETCH, plain.measured[RATE_STRETCH], plain.traffic[RATE_STRETCH])


async def _run(stage: Stage, data: Digits, packages: Mapping[str, Path], settings: Mapping[str, str]) -> _Ran:
    deployment = Deployment(
        prefix=topics.new_prefix(NAME),
        applications=(Application(_APPLICATION, tuple(packages), "exp3", max_slo_ms=_BACKLOG_SLO_MS),),
        models=packages,
        settings=settings,
    )

    def rows(seed: int, slo_ms: float | None = None) -> Rows:
        return Rows(_APPLICATION, data.inputs, data.labels, seed=stage.seed + seed, slo_ms=slo_ms)

    offsets_us = until(POISSON.at(RATE, stage.seed), stage.seconds)
    async with stage.launch(deployment) as system:
        driver, pids = Driver(stage, deployment.prefix, system), dict(system.pids)
        await driver.at(_WARM_UP_RATE, rows(1), _WARM_UP_S)
        measured = {
            BACKLOG_STRETCH: await _noted(
                lambda note: driver.backlog(BACKLOG, rows(2, _BACKLOG_SLO_MS), _BACKLOG_DRAIN_S, note)
            ),
            RATE_STRETCH: await _noted(lambda note: driver.drive(offsets_us, rows(3), _SLO_US, note)),
        }
        by_columns = await asyncio.to_thread(_by_columns, stage, deployment.prefix)
    windows = {name: each.window for name, each in measured.items()}
    written = await asyncio.to_thread(traffic.read, stage, deployment.prefix, packages, windows)
    topics.delete(stage.bootstrap, deployment.prefix)
    return _Ran(measured, written, pids, by_columns)


def _by_columns(stage: Stage, prefix: str) -> dict[str, float]:
    """Return by role the share of what it has read so far that went by columns; all feedback is learnt before.

    The learner's is of observations, of which a record may hold many.

    Raises:
        TimeoutError: a role has not learnt or reported in time.
    """
    lengths = {topic: length(stage, prefix, topic) for topic in (QUERIES, PREDICTIONS, FEEDBACK)}
    await_learnt(stage, prefix, lengths[FEEDBACK], _LEARNT_S)
    read = {
        "selection": lengths[QUERIES],
        "joiner": lengths[PREDICTIONS] + lengths[FEEDBACK],
        "learner": latest_gauge(stage, prefix, "learner", _labelled("applied_total"), _REPORT_S),
    }
    taken = {role: latest_gauge(stage, prefix, role, _labelled(name), _REPORT_S) for role, name in COLUMNAR.items()}
    return {role: taken[role] / max(1.0, read[role]) for role in COLUMNAR}


def _labelled(name: str) -> str:
    return render((name, "application", _APPLICATION))


async def _noted(drive: Callable[[Note], Awaitable[Stretch]]) -> Measured:
    """Drive a stretch, noting when each answer is there."""
    now_us = SystemClock().now_us
    read_us: dict[str, int] = {}

    def note(predictions: Sequence[Prediction]) -> None:
        read_us.update(dict.fromkeys([prediction.query_id for prediction in predictions], now_us()))

    stretch = await drive(note)
    # A backlog's answers are decoded when all have come.
    read_us |= dict(zip(read_us, stretch.read_us, strict=False))
    return Measured(stretch, Window(stretch.recorder.start_us, now_us()), read_us)


def _model_share(folder: Path, data: Digits, written: Traffic, model: str) -> float:
    rows = written.rows[model] / max(1.0, written.batches[model])
    return model_share(folder, data.inputs, max(1, round(rows)))
