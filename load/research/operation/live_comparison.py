"""Predicts deployments and measures them: latency and throughput of both, side by side.

One deployment is watched first. What its queries cost beside the model is all that is fitted: the four legs as they
were recorded, the time between batches, and by how much a sleeping model oversleeps. The others have other
models, rates, controllers and replicas, and arrivals of their own, which the simulator is given as they were meant.
The models sleep a + b * n ms, so a and b are known.

Beside that, each is predicted with legs of its own. That error is what the queues and batches are wrong by, whatever
else the machine has done meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from load.figures import FAULTS, IN_FULL, NONE, PER_S, SHOWN, SHOWN_MS, Better, Figures, Kind, at_most
from load.harness import arrivals, topics
from load.harness.driving import deployed
from load.harness.gc_off import frozen
from load.harness.openloop import OpenLoop
from load.harness.recorder import Recorder
from load.harness.system import Deployment
from load.harness.wire import Wire
from load.harness.workload import Rows
from schemas import topics as names
from schemas.codec import Codec
from schemas.records import Application, ModelPredictions, Status, Tensor
from streams.runtime.clock import SystemClock
from workers.packages.packaging import package_function
from workers.simulation import plan as plans
from workers.simulation.calibration import Answer, Stamped, calibrate, whole
from workers.simulation.service import Delayed, Line
from workers.simulation.simulator import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from load.harness.system import Stage
    from load.harness.wire import Arrival
    from schemas.records import Prediction
    from workers.simulation.calibration import Calibration
    from workers.simulation.run import Run

_MODEL = "line"
_WARM_UP_S = 3.0  # batch sizes are still being found; neither side counts it
_PREDICTED = ("p50_ms", "p99_ms", "per_s")
_ERRORS = ("p50", "p99", "per_s")


@dataclass(frozen=True, slots=True)
class Case:
    """One deployment and its load.

    Attributes:
        name: of its figures.
        a_ms, b_ms: a batch of n rows sleeps a + b * n.
        rate: queries a second.
        replicas: workers.
        controller: that sizes their batches.
        parameters: of the controller.
        slo_ms: the application's objective.
    """

    name: str
    a_ms: float
    b_ms: float
    rate: float
    replicas: int = 1
    controller: str = "aimd"
    parameters: Mapping[str, float] = field(default_factory=dict)
    slo_ms: float = 100.0

    @property
    def row(self) -> Tensor:
        """What each query carries: the model's cost."""
        return Tensor.of(np.array([self.a_ms, self.b_ms], np.float32))


# From models that are done in milliseconds to those that take tens of them.
FITTED = Case("fitted", 16, 2, 120, slo_ms=200.0)
CASES = (
    Case("light", 5, 1, 120),
    Case("busy", 5, 1, 420),
    Case("fixed", 20, 4, 110, controller="fixed", parameters={"rows": 8.0}, slo_ms=200.0),
    Case("deferred", 40, 1, 200, controller="deferred", slo_ms=300.0),
    Case("replicas", 40, 2, 170, replicas=2, slo_ms=300.0),
    Case("overload", 20, 4, 300, controller="fixed", parameters={"rows": 16.0}, slo_ms=300.0),
)

_ERROR = Kind("", Better.LOWER, 0.0, 0.05)
COMPARED = Figures(
    *(
        (
            *SHOWN_MS(*(f"{case.name}_{side}_{what}" for side in ("live", "simulated") for what in _PREDICTED[:2])),
            *PER_S(*(f"{case.name}_{side}_per_s" for side in ("live", "simulated"))),
            *SHOWN(*(f"{case.name}_{side}_rows_a_batch" for side in ("live", "simulated"))),
            *_ERROR(*(f"{case.name}_{what}_error" for what in _ERRORS)),
            *SHOWN(*(f"{case.name}_own_legs_{what}_error" for what in _ERRORS)),
            *FAULTS(f"{case.name}_lost", must=NONE if case is FITTED else ()),
        )
        for case in (FITTED, *CASES)
    ),
    SHOWN(*(f"own_legs_{what}_error" for what in _ERRORS)),
    _ERROR("p50_error", must=at_most(0.05, IN_FULL)),
    _ERROR("p99_error", must=at_most(0.1, IN_FULL)),
    _ERROR("per_s_error", must=at_most(0.05, IN_FULL)),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """Figures, rows for plots, and lines for people."""

    figures: Mapping[str, float]
    series: Mapping[str, Sequence[Mapping[str, Any]]]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Seen:
    """What was seen of one stretch."""

    offsets_us: Sequence[int]
    start_us: int = 0
    lost: int = 0
    codec: Codec = field(default_factory=Codec)
    answers: list[Answer] = field(default_factory=list)
    batches: list[Stamped] = field(default_factory=list)

    def read(self, predictions: Sequence[Prediction]) -> None:
        now_us = SystemClock().now_us()
        self.answers += [Answer(prediction, now_us) for prediction in predictions]

    def tap(self, records: Sequence[Arrival]) -> None:
        decode = self.codec.decode
        self.batches += [Stamped(decode(ModelPredictions, record.value), record.timestamp_us) for record in records]

    def counted(self) -> list[Answer]:
        """Return the answers to what was sent after the warm-up."""
        begin_us = self.start_us + int(_WARM_UP_S * 1e6)
        return [answer for answer in self.answers if answer.prediction.sent_us >= begin_us]


class _Learnt(NamedTuple):
    """What one deployment tells of others: legs, and how much longer than asked its model slept."""

    calibration: Calibration
    over_us: tuple[int, ...]


class _Outcome(NamedTuple):
    """Figures of one case: measured, predicted, and predicted with its own legs."""

    live: Mapping[str, float]
    simulated: Mapping[str, float]
    own: Mapping[str, float]


async def compare(stage: Stage) -> Compared:
    """Learn from one deployment, predict the others, and measure them."""
    package = stage.folder / _MODEL
    package_function("load.models.functions:line", package, _MODEL, "1", np.ones((2, 2), np.float32))
    learnt: _Learnt | None = None
    found: dict[str, _Outcome] = {}
    # Once for nothing: a broker that has just started is several times slower until its code is compiled.
    await _observe(stage, package, FITTED, turn=len(CASES) + 2)
    for turn, case in enumerate((FITTED, *CASES), start=1):
        seen = await _observe(stage, package, case, turn)
        own = _learnt(seen, case)
        learnt = learnt or own
        simulated = (_simulated(case, seen, legs, stage.seed) for legs in (learnt, own))
        found[case.name] = _Outcome(_measured(seen), *simulated)
    assert learnt is not None
    return _side_by_side(found, learnt.calibration)


def _learnt(seen: _Seen, case: Case) -> _Learnt:
    """Return what a deployment tells of all others."""
    found = calibrate(seen.counted(), seen.batches, f"deployment {case.name!r} of scenario simulated")
    over = (batch.took_us - 1e3 * (case.a_ms + case.b_ms * batch.rows) for batch in whole(seen.batches))
    return _Learnt(found, tuple(max(0, round(us)) for us in over))


async def _observe(stage: Stage, package: Path, case: Case, turn: int) -> _Seen:
    """Run a deployment under its load, with arrivals of its own."""
    application = Application(_MODEL, (_MODEL,), "single", slo_ms=case.slo_ms, default_output=-1)
    deployment = Deployment(
        topics.new_prefix("simulated"),
        (application,),
        {_MODEL: package},
        roles=("selection", "worker"),
        settings={"worker": {"controller": case.controller, "parameters": dict(case.parameters)}},
        replicas={_MODEL: case.replicas},
    )
    offsets_us = list(arrivals.until(arrivals.poisson(case.rate, stage.seed + turn), _WARM_UP_S + stage.seconds))
    # Without a greeting: its long objective would be taken for the slack of the first half minute.
    async with deployed(stage, deployment):
        return await asyncio.to_thread(_drive, stage, deployment.prefix, case, _Seen(offsets_us))


def _drive(stage: Stage, prefix: str, case: Case, seen: _Seen) -> _Seen:
    wire, clock = Wire(stage.bootstrap, prefix, stage.properties), SystemClock()
    try:
        wire.follow((names.PREDICTIONS, names.MODEL_PREDICTIONS))
        with frozen():
            recorder = Recorder(clock.now_us(), int(case.slo_ms * 1e3))
            workload = Rows(_MODEL, (case.row,), seed=stage.seed)
            taps: dict[str, Callable[[Sequence[Arrival]], None]] = {names.MODEL_PREDICTIONS: seen.tap}
            loop = OpenLoop(wire, seen.codec, workload, recorder, clock.now_us, on_predictions=seen.read, taps=taps)
            loop.run(seen.offsets_us)
    finally:
        wire.close()
    seen.start_us, seen.lost = recorder.start_us, recorder.open
    return seen


def _measured(seen: _Seen) -> dict[str, float]:
    """Return a live stretch's figures, without its warm-up."""
    begin_us = seen.start_us + int(_WARM_UP_S * 1e6)
    its = seen.counted()
    latencies_us = [read_us - prediction.sent_us for prediction, read_us in its if read_us is not None]
    p50_us, p99_us = np.quantile(latencies_us, (0.5, 0.99)).tolist()
    seconds = seen.offsets_us[-1] / 1e6 - _WARM_UP_S
    batches = whole([stamped for stamped in seen.batches if stamped.timestamp_us >= begin_us])
    return {
        "p50_ms": p50_us / 1e3,
        "p99_ms": p99_us / 1e3,
        "per_s": sum(prediction.status is not Status.DEFAULT for prediction, _ in its) / seconds,
        "rows_a_batch": float(np.mean([batch.rows for batch in batches])),
        "lost": seen.lost,
    }


def _simulated(case: Case, seen: _Seen, learnt: _Learnt, seed: int) -> dict[str, float]:
    """Return what the simulator says of the same arrivals."""
    service = Delayed(Line(case.a_ms * 1e3, case.b_ms * 1e3), learnt.over_us)
    model = plans.SimulatedModel(_MODEL, service, case.replicas, case.controller, case.parameters)
    plan = plans.SimulationPlan(
        np.array(seen.offsets_us, np.int64),
        seen.offsets_us[-1] / 1e6,
        (model,),
        plans.SimulatedApplication(slo_us=int(case.slo_ms * 1e3)),
        learnt.calibration.legs,
        warm_up_us=int(_WARM_UP_S * 1e6),
    )
    run: Run = simulate(plan, np.random.default_rng(seed))
    figures, its = run.figures(), run.model_figures(0)
    return {
        "p50_ms": figures["p50_ms"],
        "p99_ms": figures["p99_ms"],
        "per_s": figures["answered_per_s"],
        "rows_a_batch": its["rows_a_batch"],
    }


def _side_by_side(found: Mapping[str, _Outcome], learnt: Calibration) -> Compared:
    """Return all figures, and the median errors of what was not fitted to."""
    figures: dict[str, float] = {}
    notes = []
    for name, outcome in found.items():
        live, simulated, own = outcome
        for side, its in (("live", live), ("simulated", simulated)):
            figures |= {f"{name}_{side}_{what}": its[what] for what in (*_PREDICTED, "rows_a_batch")}
        for prefix, its in ((name, simulated), (f"{name}_own_legs", own)):
            errors = [abs(its[what] / live[what] - 1) for what in _PREDICTED]
            figures |= {f"{prefix}_{what}_error": error for what, error in zip(_ERRORS, errors, strict=True)}
        figures[f"{name}_lost"] = live["lost"]
        notes.append(_line(name, outcome))
    for prefix in ("", "own_legs_"):
        for what in _ERRORS:
            held_out = [figures[f"{case.name}_{prefix}{what}_error"] for case in CASES]
            figures[f"{prefix}{what}_error"] = float(np.median(held_out))
    return Compared(figures, {"calibration": [learnt.as_dict()]}, tuple(notes))


def _line(name: str, outcome: _Outcome) -> str:
    """Write what was measured, what was said before, and what would have been said with its own legs."""
    shown = (("p50_ms", "p50 ms"), ("p99_ms", "p99 ms"), ("per_s", "/s"), ("rows_a_batch", "rows a batch"))
    parts = [f"{word} {' '.join(f'{side[what]:.4g}' for side in outcome)}" for what, word in shown]
    return f"{name:<9} live, simulated, with its own legs: {'; '.join(parts)}"
