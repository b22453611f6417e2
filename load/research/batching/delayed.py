"""`delayed`: a free model waits for more rows: rows a batch, the model's time a row, latency (Clipper's figure 5).

Clipper (NSDI 2017) waits up to some milliseconds for a batch to fill, which pays if a batch costs far more than a row.
The model here sleeps 5 ms a batch and 0.1 ms a row, so the result shows the waiting and not the machine. The same
Poisson queries go the whole way with each longest wait. The controller is `deferred`, set to wait at any load;
Symphony's rule also bounds the wait by the deadline. The model's time a row gives the rows a second that it could do in
such batches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from load.figures import FAULTS, GAIN, NONE, PER_S, SHOWN, Figures, at_least
from load.harness import topics
from load.harness.driving import deployed
from load.harness.probes import written
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.results.results import Result
from load.scenario import Scenario
from schemas import topics as names
from schemas.records import Application, ModelPredictions, Tensor
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from load.harness.system import Stage

NAME = "delayed"
WAITS_MS = (0, 2, 5, 10, 20, 40)
_FEW_MS = (0, 2, 10, 40)
RATE = 100.0  # at half of what the model could do in batches of one
SLO_MS = 150.0
_OBJECTIVE_MS = 40.0
_MODEL = "timed"
_SECONDS, _SHORT_SECONDS = 20.0, 8.0


FIGURES = Figures(
    *(
        (
            *SHOWN(f"wait_{wait_ms}_rows_a_batch"),
            *PER_S(f"wait_{wait_ms}_model_per_s"),
            *recorded(f"wait_{wait_ms}_", "within_slo", "p50_ms", "p99_ms"),
            *FAULTS(f"wait_{wait_ms}_lost", must=NONE if wait_ms in _FEW_MS else ()),
        )
        for wait_ms in WAITS_MS
    ),
    GAIN("gain", must=at_least(1.5)),
)


async def run(stage: Stage) -> Result:
    """Ask with each longest wait."""
    package = stage.folder / _MODEL
    package_function("load.models.functions:timed", package, _MODEL, "1", np.ones((2, 1), np.float32))
    waits_ms = _FEW_MS if stage.short else WAITS_MS
    figures: dict[str, float] = {}
    for wait_ms in waits_ms:
        figures |= {f"wait_{wait_ms}_{name}": v for name, v in (await _with(stage, package, float(wait_ms))).items()}
    longest = waits_ms[-1]
    figures["gain"] = figures[f"wait_{longest}_model_per_s"] / figures["wait_0_model_per_s"]
    return Result(
        NAME,
        figures=figures,
        parameters={
            "form": stage.form,
            "rate": RATE,
            "seconds": _seconds(stage),
            "slo_ms": SLO_MS,
            "objective_ms": _OBJECTIVE_MS,
            "seed": stage.seed,
        },
    )


async def _with(stage: Stage, package: Path, wait_ms: float) -> dict[str, float]:
    parameters = {"linger_ms": wait_ms, "eager_below": 0.0}
    deployment = Deployment(
        topics.new_prefix(NAME),
        (Application(_MODEL, (_MODEL,), "single", slo_ms=SLO_MS),),
        {_MODEL: package},
        roles=("selection", "worker"),
        settings={
            "worker": {"controller": "deferred", "parameters": parameters, "objective_ms": _OBJECTIVE_MS},
            "log_level": "warning",
        },
    )
    row = Tensor.of(np.ones(1, np.float32))
    async with deployed(stage, deployment, row) as driver:
        workload = Rows(_MODEL, (row,), seed=stage.seed)
        stretch = await driver.at(RATE, workload, _seconds(stage), int(SLO_MS * 1e3))
        batches = await asyncio.to_thread(written, stage, deployment.prefix, names.MODEL_PREDICTIONS, ModelPredictions)
    measured = stretch.recorder.figures()
    return {
        **per_batch(batch for batch in batches if batch.batch_rows),
        "within_slo": measured["within_slo"],
        "p50_ms": measured["p50_ms"],
        "p99_ms": measured["p99_ms"],
        "lost": measured["lost"],
    }


def per_batch(batches: Iterable[ModelPredictions]) -> dict[str, float]:
    """Return rows a batch, and rows a second of the model's time.

    Args:
        batches: the records of all batches; those of one batch count once each, by the share of its rows in them.
    """
    rows = count = busy_us = 0.0
    for batch in batches:
        share = len(batch.query_ids) / batch.batch_rows
        rows += len(batch.query_ids)
        count += share
        busy_us += share * batch.predict_us
    return {"rows_a_batch": rows / max(1.0, count), "model_per_s": rows / max(1.0, busy_us) * 1e6}


def _seconds(stage: Stage) -> float:
    return _SHORT_SECONDS if stage.short else max(_SECONDS, stage.seconds)


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a free model waits a moment for more rows: rows a batch, the model's time a row, latency",
    short=True,
)
