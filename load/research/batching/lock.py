"""`lock`: how a model that predicts in a thread delays the event loop beside it, and the event loop the model.

Python runs one thread at a time. The scenario measures how late the loop wakes up beside a model, and how much longer
the model takes beside the loop. This tells models that release the lock while they compute from those that keep it.
`workers/executors/loop_budget.py` decides by this where batches run. Kafka is not used.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from load.figures import SHOWN, SHOWN_MS, Figures, quantiles_ms
from load.models.training import digits, forest
from load.results.results import Result
from load.scenario import Scenario
from workers.packages.loading import load_package
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from load.harness.system import Stage
    from load.models.training import Digits

NAME = "lock"
TREES, ROWS = 100, 4
RUNTIMES: Mapping[str, str] = {"sklearn": "none", "trees": "trees", "onnx": "onnx"}  # as `convert` calls them
_MODEL = "forest"
_SAMPLE_ROWS = 256
# A worker's loop at some hundred requests a second, each of a part of a millisecond (docs/account.md).
_WAIT_S, _WORK_S = 1e-3, 2e-4
_SECONDS = 5.0  # at most, for each figure


FIGURES = Figures(
    quantiles_ms("loop_", "p50", "p99", "max"),
    quantiles_ms("*_loop_", "p50", "p99", "max"),
    SHOWN_MS("*_alone_ms", "*_beside_ms"),
    SHOWN("*_longer"),
)


async def run(stage: Stage) -> Result:
    """Measure the loop alone, each model alone, and both together."""
    seconds, data = min(_SECONDS, stage.seconds), digits()
    figures = {f"loop_{point}_ms": value for point, value in late_ms(await ticks(seconds)).items()}
    for runtime, convert in RUNTIMES.items():
        measured = await _together(_predictor(stage.folder / runtime, data, convert), seconds)
        figures |= {f"{runtime}_{name}": value for name, value in measured.items()}
    return Result(
        NAME,
        figures=figures,
        parameters={"trees": TREES, "rows": ROWS, "seconds": seconds},
        notes=("loop: how late it wakes up after a wait of 1 ms; longer: the model beside the loop, over alone",),
    )


def _predictor(folder: Path, data: Digits, convert: str) -> Callable[[], object]:
    """Return what predicts the same rows with the same forest, as scikit-learn or converted."""
    package_sklearn(
        forest(data, TREES), folder, _MODEL, "1", data.test_x[:_SAMPLE_ROWS], output="label", convert=convert
    )
    model, rows = load_package(folder).runtime, data.test_x[:ROWS]
    return lambda: model.predict_batch(rows)


async def _together(predict: Callable[[], object], seconds: float) -> dict[str, float]:
    alone_s, _ = await beside(predict, ticks(0, wait_s=seconds))
    beside_s, late_s = await beside(predict, ticks(seconds))
    alone_ms, beside_ms = (float(np.median(taken)) * 1e3 for taken in (alone_s, beside_s))
    return {
        "alone_ms": alone_ms,
        "beside_ms": beside_ms,
        "longer": beside_ms / alone_ms,
        **{f"loop_{point}_ms": value for point, value in late_ms(late_s).items()},
    }


async def beside(
    predict: Callable[[], object], loop: Coroutine[None, None, list[float]]
) -> tuple[list[float], list[float]]:
    """Predict in a thread, over and over, while the loop does something; returns how long each took, and the latter."""
    over = threading.Event()
    predicting = asyncio.create_task(asyncio.to_thread(_again, predict, over))
    try:
        found = await loop
    finally:
        over.set()
    return await predicting, found


def _again(predict: Callable[[], object], over: threading.Event) -> list[float]:
    taken: list[float] = []
    while not taken or not over.is_set():
        started = time.perf_counter()
        predict()
        taken.append(time.perf_counter() - started)
    return taken


async def ticks(seconds: float, wait_s: float = _WAIT_S) -> list[float]:
    """Wait and work in turns, at least once; returns how late (s) each wait was over."""
    end = time.perf_counter() + seconds
    late: list[float] = []
    while not late or time.perf_counter() < end:
        due = time.perf_counter() + wait_s
        await asyncio.sleep(wait_s)
        now = time.perf_counter()
        late.append(now - due)
        while time.perf_counter() < now + _WORK_S:
            pass
    return late


def late_ms(late_s: Sequence[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the largest of times in seconds, in ms."""
    p50, p99, most = (np.percentile(late_s, (50, 99, 100)) * 1e3).tolist()
    return {"p50": p50, "p99": p99, "max": most}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a forest in a thread beside the event loop, in each runtime: how late the loop is, how slow the forest",
)
