"""`simulated`: is the simulator fast, does it repeat itself, and is it right.

theory  mean waits of the cases that queueing theory solves, and one busy plan simulated twice
scale   1,000 workers asked 100,000 queries a second for a simulated minute
live    one deployment is watched to learn what a query costs beside its model; then six others, with other models,
        rates, replicas and controllers, are predicted and measured (`load.research.operation.live_comparison`)

The short form leaves `live` out.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import numpy as np

from load.figures import IN_FULL, PER_S, RIGHT, SHOWN, Better, Figures, Kind, at_most, exactly
from load.research.operation import theory
from load.research.operation.live_comparison import COMPARED, compare
from load.results.results import Result
from load.scenario import Scenario
from workers.simulation import arrivals
from workers.simulation.legs import Leg, Legs
from workers.simulation.plan import SimulatedApplication, SimulatedModel, SimulationPlan
from workers.simulation.service import Line
from workers.simulation.simulator import simulate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.harness.system import Stage
    from workers.simulation.run import Run

NAME = "simulated"
PARTS = ("theory", "scale", "live")
SECONDS = 20.0  # of each measured stretch: all of them and their starts take five minutes
_SHORT = PARTS[:2]
_CALL_US = 10_000
_NEVER_LATE = SimulatedApplication(slo_us=10**12, margin_us=0)
_QUERIES, _SHORT_QUERIES = 400_000, 100_000
_WORKERS, _SHORT_WORKERS = 1_000, 100
_EACH_PER_S, _SCALE_S, _SHORT_SCALE_S = 100, 60.0, 10.0
_SELECTIONS, _POLL_US, _LEG_US = 16, 1_000, 1_200

_ERROR = Kind("", Better.LOWER, 0.0, 0.05)
FIGURES = Figures(
    _ERROR("theory_*_error"),
    _ERROR("theory_worst_error", must=at_most(0.05)),
    RIGHT("identical", must=exactly(1)),
    PER_S("scale_simulated_per_s"),
    Kind("s", Better.LOWER, 0.5)("scale_s", must=at_most(600, IN_FULL)),
    Kind("s", Better.LOWER, 0.25)("scale_cpu_s"),
    SHOWN("scale_queries", "scale_workers", "scale_share_in_time", "scale_rows_a_batch"),
    COMPARED,
)


async def run(stage: Stage) -> Result:
    """Run the parts that are asked for."""
    parts = stage.only or (_SHORT if stage.short else PARTS)
    figures: dict[str, float] = {}
    if "theory" in parts:
        figures |= await asyncio.to_thread(_against_theory, stage)
        figures["identical"] = float(await asyncio.to_thread(_is_identical, stage.seed))
    if "scale" in parts:
        figures |= await asyncio.to_thread(_scaled, stage)
    compared = await compare(stage) if "live" in parts else None
    return Result(
        NAME,
        figures={**figures, **(compared.figures if compared else {})},
        parameters={"form": stage.form if not stage.only else ",".join(stage.only), "seed": float(stage.seed)},
        series=compared.series if compared else {},
        notes=compared.notes if compared else (),
    )


def _against_theory(stage: Stage) -> dict[str, float]:
    """Return how far mean waits are from what theory says, as shares of that."""
    queries = _SHORT_QUERIES if stage.short else _QUERIES
    exponential, rate = Line(_CALL_US, 0, noise=1.0), 70.0
    cases = {
        "md1": (_batches(1, Line(_CALL_US, 0)), rate, theory.md1_wait(rate / 1e6, _CALL_US)),
        "mm1": (_batches(1, exponential), rate, theory.mm1_wait(rate / 1e6, _CALL_US)),
        "mm4": (_batches(1, exponential, 4), 4 * rate, theory.mmk_wait(4 * rate / 1e6, _CALL_US, 4)),
        "batches_of_8": (_batches(8, exponential), 6 * rate, theory.batch_wait(6 * rate / 1e6, _CALL_US, 8)),
    }
    errors = {}
    for name, (model, per_s, expected_us) in cases.items():
        waits_us = _poisson(per_s, queries / per_s, model, _NEVER_LATE, stage.seed).waits_us(0)
        errors[f"theory_{name}_error"] = abs(float(waits_us.mean()) / expected_us - 1)
    return {**errors, "theory_worst_error": max(errors.values())}


def _batches(rows: int, service: Line, servers: int = 1) -> SimulatedModel:
    return SimulatedModel("m", service, servers, "fixed", {"rows": float(rows)}, queue_rows=1 << 30, shared=servers > 1)


def _poisson(rate: float, seconds: float, model: SimulatedModel, application: SimulatedApplication, seed: int) -> Run:
    of_arrivals, of_run = np.random.default_rng(seed).spawn(2)
    return simulate(
        SimulationPlan(arrivals.poisson(rate, seconds, of_arrivals), seconds, (model,), application), of_run
    )


def _is_identical(seed: int) -> bool:
    """Tell whether a plan with everything that draws gives the same bytes twice."""
    first, second = (json.dumps(_busy(seed).as_dict()) for _ in range(2))
    return first == second


def _busy(seed: int) -> Run:
    model = SimulatedModel("m", Line(5_000, 1_000, noise=0.3), replicas=3)
    return _poisson(1_200, 10, model, SimulatedApplication(slo_us=60_000), seed)


def _scaled(stage: Stage) -> Mapping[str, float]:
    """Simulate as many workers as a large site has."""
    workers, seconds = (_SHORT_WORKERS, _SHORT_SCALE_S) if stage.short else (_WORKERS, _SCALE_S)
    started_s, started_cpu_s = time.monotonic(), time.process_time()
    of_arrivals, of_run = np.random.default_rng(stage.seed).spawn(2)
    leg = Leg.constant(_LEG_US)
    plan = SimulationPlan(
        arrivals.poisson(workers * _EACH_PER_S, seconds, of_arrivals),
        seconds,
        (SimulatedModel("m", Line(5_000, 1_000, noise=0.1), workers),),
        SimulatedApplication(slo_us=50_000),
        Legs(leg, leg, leg, leg),
        selections=_SELECTIONS,
        poll_us=_POLL_US,
    )
    found = simulate(plan, of_run)
    figures, model = found.figures(), found.model_figures(0)
    took_s, cpu_s = time.monotonic() - started_s, time.process_time() - started_cpu_s
    return {
        "scale_s": took_s,
        "scale_cpu_s": cpu_s,
        "scale_queries": figures["queries"],
        "scale_workers": float(workers),
        "scale_simulated_per_s": figures["queries"] / took_s,
        "scale_share_in_time": figures["share_in_time"],
        "scale_rows_a_batch": model["rows_a_batch"],
    }


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "the simulator: queries a second, against theory, and its predictions against live deployments",
    parts=PARTS,
    seconds=SECONDS,
    short=True,
)
