"""`replayed`: a live deployment is recorded while much goes wrong, and replayed offline: nothing may differ.

    queries, some twice ─▶ roles, each killed once; a model's next version ─▶ feedback: at once, late, never
                                      │
                              recorded ─▶ replayed: decisions, answers, observations, states; how fast
                                       └▶ what if another policy had chosen: how fast, the whole command

Two applications: one asks one model by `exp3`, with a state for each of its contexts, the other all of them by `exp4`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from load.figures import FAULTS, IN_FULL, NONE, SHOWN, Better, Figures, Kind, at_least
from load.harness import topics as names
from load.harness.driving import deployed
from load.harness.openloop import Asked, key_of
from load.harness.system import Deployment
from load.harness.wire import Wire
from load.harness.workload import query_id
from load.models.training import Digits, digits, forest, linear_models
from load.results.results import Result
from load.scenario import Scenario
from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Feedback, Query
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.recorder.recorder import FETCHING, Recorder
from streams.recorder.span import RecordedSpan
from streams.replay import as_it_was
from streams.replay.report import KINDS, MISSING
from streams.runtime.clock import SystemClock
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.log_reader import KafkaLogs
from streams.runtime.stores.redis import RedisSettings, RedisStore
from streams.topology import RECORDED
from streams.trace.manifest import TraceManifest
from streams.trace.reader import Trace
from streams.trace.writer import TraceWriter
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from load.harness.driving import Driver
    from load.harness.system import Stage, System
    from schemas.records import Prediction
    from streams.replay.report import ReplayReport

NAME = "replayed"
RATE, SHORT_RATE = 500.0, 150.0
QUERIES, SHORT_QUERIES = 100_000, 3_000
# Long, so that a busy machine decides, too: what is answered by default for want of time shows little.
_SLO_MS, _HURRIED_MS = 30_000.0, 40.0
_WINDOW_S, _EARLY_S = 6.0, 5.0
_PARTITIONS = 4
# Which share of the stretch is over when each role is killed, and when the next version comes.
_KILLED: Final = {"worker.forest": 0.2, "selection": 0.4, "joiner": 0.55, "learner": 0.7}
_SWITCHED = 0.8
# Of twenty queries: asked twice, told after the window, never told, in a hurry.
_TWICE, _LATE, _NEVER, _HURRIED = (3,), (7,), (11, 13), (5, 6, 15)
_DRAIN_S = 60.0
_LEARN_S = 60.0


def _name(what: str, kind: str) -> str:
    return f"{what}_{kind.replace('-', '_')}"


FIGURES = Figures(
    SHOWN(
        "queries", "predictions", "observations", "records", "unchecked", "waiting", "inferred", "killed", "duplicates"
    ),
    FAULTS(*(_name("different", kind) for kind in KINDS), *(_name("missing", kind) for kind in MISSING), must=NONE),
    SHOWN(*(_name("checked", kind) for kind in KINDS)),
    Kind("1/s", Better.HIGHER, 0.25)("queries_per_s"),
    Kind("1/s", Better.HIGHER, 0.25)("queries_per_core_s", must=at_least(10_000, IN_FULL)),
    Kind("", Better.HIGHER, 0.25)("times_real_time", must=at_least(20, IN_FULL)),
    SHOWN("what_if_queries", "what_if_left_out", "what_if_difference", "what_if_low", "what_if_high"),
    Kind("1/s", Better.HIGHER, 0.25)("what_if_per_s", "what_if_per_core_s"),
    Kind("", Better.HIGHER, 0.25)("what_if_times_real_time", must=at_least(20, IN_FULL)),
)


class Changed(NamedTuple):
    """What the command has said of another policy, and how long it took (s), all in all."""

    said: Mapping[str, Any]
    took: Took


class Took(NamedTuple):
    """How long a replay took: by the clock, and of one core."""

    wall_s: float
    cpu_s: float


@dataclass(slots=True)
class Troubled:
    """A workload in the course of which roles are killed.

    Attributes:
        data: the rows and their labels.
        seed: of the ids.
        count: queries.
        system: whose roles they are.
        told_late: feedback that is to be sent after its window.
        killed: how many roles.
        twice: queries that were asked twice.
    """

    data: Digits
    seed: int
    count: int
    system: System
    told_late: list[tuple[bytes, Feedback]] = field(default_factory=list)
    killed: int = 0
    twice: int = 0

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`; one of twenty is the one before it again."""
        for role, share in _KILLED.items():
            if index == int(share * self.count):
                os.kill(self.system.pids[self.system.process_of(role)], signal.SIGKILL)
                self.killed += 1
        kind = index % 20
        if kind in _TWICE:
            index, self.twice = index - 1, self.twice + 1
        row = index % len(self.data.test_y)
        context = f"user-{index % 7}" if index % 2 else None
        application = "alone" if index % 4 < 2 else "together"
        slo_ms = _HURRIED_MS if index % 20 in _HURRIED else None
        query = Query(query_id(self.seed, index), application, self.data.inputs[row], context, intended_us, slo_ms)
        label = int(self.data.test_y[row])
        if kind in _LATE:
            self.told_late.append((key_of(query), Feedback(query.query_id, label)))
        return Asked(query, None if kind in (*_LATE, *_NEVER) else label)


async def run(stage: Stage) -> Result:
    """Drive, break, record, replay."""
    data = digits()
    _package(stage, data)
    deployment = Deployment(
        names.new_prefix(NAME),
        (
            _application("alone", "exp3", per_context=True),
            _application("together", "exp4"),
        ),
        {"forest": stage.folder / "forest-1", "linear": stage.folder / "linear-1"},
        settings={
            "log_level": "error",
            "joiner": {"window_s": 2 * _WINDOW_S, "early_s": _EARLY_S},
            "record": {"calls": True},
        },
        partitions=_PARTITIONS,
        processes=stage.processes,
    )
    async with deployed(stage, deployment, data.inputs[0]) as driver:
        workload = await _driven(stage, driver, data)
        folder, report, took = await _replayed(stage, deployment)
    return _result(stage, workload, report, took, await _what_if(folder))


def _application(name: str, policy: str, *, per_context: bool = False) -> Application:
    return Application(
        name,
        ("forest", "linear"),
        policy,
        per_context=per_context,
        slo_ms=_SLO_MS,
        default_output=-1,
        window_s=_WINDOW_S,
        default_loss=1.0,
    )


def _package(stage: Stage, data: Digits) -> None:
    linear = next(iter(linear_models(data).values()))
    estimators = {("forest", "1"): forest(data, 5), ("forest", "2"): forest(data, 10), ("linear", "1"): linear}
    for (model, version), estimator in estimators.items():
        package_sklearn(estimator, stage.folder / f"{model}-{version}", model, version, data.test_x[:5], output="label")


async def _driven(stage: Stage, driver: Driver, data: Digits) -> Troubled:
    """Ask at a rate while roles are killed and a version comes; tell late what is to be told late."""
    rate, count = (SHORT_RATE, SHORT_QUERIES) if stage.short else (RATE, QUERIES)
    workload = Troubled(data, stage.seed, count, driver.system)
    switching = asyncio.create_task(_switch(stage, driver.system, _SWITCHED * count / rate))
    offsets_us = [int(i * 1e6 / rate) for i in range(count)]
    await driver.drive(offsets_us, workload, int(_SLO_MS * 1e3), _ignored, _DRAIN_S)
    await switching
    await asyncio.sleep(_WINDOW_S + 2.0)  # the deployment's own time: its windows end
    with closing(Wire(stage.bootstrap, driver.prefix, stage.properties)) as wire:
        for key, feedback in workload.told_late:
            wire.produce(topics.FEEDBACK, key, Codec().encode(feedback), patient=True)
        wire.flush()
    return workload


def _ignored(_: Sequence[Prediction]) -> None:
    """Leave the answers to the recording."""


async def _switch(stage: Stage, system: System, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await system.add_model(stage.folder / "forest-2")


async def _what_if(folder: Path) -> Changed:
    """Ask what another policy would have done with the ensemble's queries: two plays, as a user asks for them."""
    begun_s, before_s = time.perf_counter(), _children_s()
    command = ("replay", str(folder), "--offline", "--app", "together", "--set", "policy=thompson", "--json")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.cli", *command, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"skysail {' '.join(command)} ended with status {process.returncode}")
    return Changed(json.loads(said), Took(time.perf_counter() - begun_s, _children_s() - before_s))


def _children_s() -> float:
    """Return the CPU time of processes that have ended (s)."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _replayed(stage: Stage, deployment: Deployment) -> tuple[Path, ReplayReport, Took]:
    """Record and replay until the last observation is learnt: states are held against Redis."""
    own = as_it_was.RecordedDeployment(
        SelectionSettings(_PARTITIONS),
        JoinerSettings(_PARTITIONS, int(2 * _WINDOW_S * 1e6), int(_EARLY_S * 1e6)),
    )
    end_s = time.monotonic() + _LEARN_S
    for attempt in range(int(_LEARN_S)):
        folder = stage.folder / f"trace-{attempt}"
        await _record(stage, deployment, folder)
        begun = Took(time.perf_counter(), time.process_time())
        report = await asyncio.to_thread(as_it_was.replay, Trace.open(folder), own, Codec())
        took = Took(time.perf_counter() - begun.wall_s, time.process_time() - begun.cpu_s)
        store = RedisStore(RedisSettings(stage.redis_url, deployment.prefix), Codec())
        try:
            stored = (await store.read([*report.states])).states
        finally:
            await store.close()
        is_learnt = {key: state and state.version for key, state in stored.items()} == {
            key: state.version for key, state in report.states.items()
        }
        if is_learnt or time.monotonic() > end_s:
            break
        await asyncio.sleep(1.0)
    report.compare_states({key: state for key, state in stored.items() if state is not None}, Codec())
    return folder, report, took


async def _record(stage: Stage, deployment: Deployment, folder: Path) -> None:
    logs = KafkaLogs(KafkaConnection(stage.bootstrap, deployment.prefix), RECORDED, FETCHING)
    with TraceWriter(folder, TraceManifest(deployment.prefix, NAME, {})) as writer:
        await Recorder(logs, writer, RecordedSpan(), SystemClock().now_us).run(asyncio.Event())


def _result(stage: Stage, workload: Troubled, report: ReplayReport, took: Took, changed: Changed) -> Result:
    queries, asked = report.records[topics.QUERIES], changed.said["queries"]
    difference = changed.said["difference"]
    return Result(
        NAME,
        figures={
            "queries": float(queries),
            "predictions": float(report.records[topics.PREDICTIONS]),
            "observations": float(report.checked["observations"]),
            "records": float(report.records.total()),
            "killed": float(workload.killed),
            "duplicates": float(workload.twice),
            **{_name("checked", kind): float(report.checked[kind]) for kind in KINDS},
            **{_name("different", kind): float(report.different[kind]) for kind in KINDS},
            **{_name("missing", kind): float(report.missing[kind]) for kind in MISSING},
            "unchecked": float(report.unchecked.total()),
            "waiting": float(report.waiting.total()),
            "inferred": float(report.inferred.total()),
            "queries_per_s": queries / took.wall_s,
            "queries_per_core_s": queries / took.cpu_s,
            "times_real_time": report.span_s / took.wall_s,
            "what_if_queries": float(asked),
            "what_if_left_out": float(changed.said["left_out"]),
            "what_if_difference": difference["mean"],
            "what_if_low": difference["low"],
            "what_if_high": difference["high"],
            "what_if_per_s": asked / changed.took.wall_s,
            "what_if_per_core_s": asked / changed.took.cpu_s,
            # As if all queries of the trace's rate were of this one application.
            "what_if_times_real_time": asked / changed.took.wall_s / RATE,
        },
        parameters={
            "form": stage.form,
            "rate": SHORT_RATE if stage.short else RATE,
            "seed": stage.seed,
            "slo_ms": _SLO_MS,
            "partitions": _PARTITIONS,
        },
        series={
            "differences": [each._asdict() for each in report.differences[:50]],
            "unchecked": [{"why": why, "count": count} for why, count in report.unchecked.items()],
            "waiting": [{"why": why, "count": count} for why, count in report.waiting.items()],
            "inferred": [{"how": how, "count": count} for how, count in report.inferred.items()],
        },
    )


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a deployment recorded while roles are killed, and replayed offline: decisions, observations, states, speed",
    short=True,
    any_processes=True,
)
