"""`controllers`: six models through real workers: time by batch size, and rows a second by each batch controller.

The models and the objective of 20 ms are Clipper's (NSDI 2017, figures 3 and 4), on the 64 features of scikit-learn's
digits. A small neural network stands in for the linear SVM on Spark. First each model gets one record of so many rows
at a time. Then every controller gets the same backlog, and so do batches of one (`none`).

In the end queries go the whole way to the linear SVM, with batches and without. The rate counts from the time when all
of them are written, and their answers are read afterwards. There each pixel travels as a byte, which leaves all roles
less to do for a query.
"""

from __future__ import annotations

import asyncio
import statistics
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import numpy as np

from load.figures import FAULTS, GAIN, NONE, P99_MS, PER_S, SHOWN, Figures, at_least
from load.harness import topics
from load.harness.backlog import Asker, settled
from load.harness.driving import Driver
from load.harness.workload import Rows
from load.models.training import clippers, digits, linear_svm, package_all, pixels
from load.results.results import Result
from load.scenarios.parts.controller_comparison import OBJECTIVE_MS, PATIENCE_S, workers_of
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.flood import Drained
    from load.harness.system import Stage
    from load.models.training import Digits

NAME = "controllers"
MODELS = ("no-op", "linear-svm", "logistic", "network", "forest", "kernel-svm")
CONTROLLERS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "aimd": ("aimd", {}),
    "quantile": ("quantile", {}),
    "deferred": ("deferred", {}),
    "none": ("fixed", {"rows": 1.0}),
}
LINEAR = "linear-svm"
_GRID = ("fixed", {"rows": 1024.0})
_SIZES = tuple(2**power for power in range(11))  # a record of more would be too large
_REPEATS, _SHORT_REPEATS = 30, 12
_SECONDS, _SHORT_SECONDS = 10.0, 3.0
# Queries of a round: one to two seconds' work. The rounds alternate, so that a busy moment meets both. The first ones
# do not count: over three of them the broker compiles what it does so often, and gets a fifth to a third faster.
_WHOLE_ROWS = {"aimd": 190_000, "none": 3_000}
_WHOLE_WARM_UP, _WHOLE_ROUNDS = 3, 9


FIGURES = Figures(
    *(
        (
            *PER_S(f"*_{name}_per_s", f"*_{name}_good_per_s", f"*_{name}_model_per_s"),
            *P99_MS(f"*_{name}_batch_p99_ms"),
            *SHOWN(f"*_{name}_rows_a_batch"),
        )
        for name in CONTROLLERS
    ),
    # Without conversion, as Clipper's models ran; a model that is converted gains less by batches.
    GAIN("linear-svm_gain", "linear-svm_model_gain", "whole_gain", must=at_least(26)),
    GAIN("*_gain"),
    *((*PER_S(f"whole_{how}_per_s"), *FAULTS(f"whole_{how}_lost", must=NONE)) for how in ("aimd", "none")),
)


async def run(stage: Stage) -> Result:
    """Measure the grid, each controller, and the whole way."""
    data = digits()
    packages = await asyncio.to_thread(_package, data, stage.folder)
    grid = await _each_size(stage, packages, data.test_x)
    figures: dict[str, float] = {}
    for name in CONTROLLERS:
        figures |= await _controlled(stage, packages, data.test_x, name)
    whole = await _whole(stage)
    return Result(
        NAME,
        figures={
            **figures,
            **gains(figures),
            **whole,
            "whole_gain": whole["whole_aimd_per_s"] / max(1.0, whole["whole_none_per_s"]),
        },
        parameters={
            "form": stage.form,
            "objective_ms": OBJECTIVE_MS,
            "seconds": _seconds(stage),
            "seed": stage.seed,
        },
        series={"sizes": grid},
    )


def _package(data: Digits, folder: Path) -> dict[str, Path]:
    package_function("load.models.functions:nothing", folder / "no-op", "no-op", "1", data.test_x[:5])
    return {"no-op": folder / "no-op", **package_all(clippers(data), data.test_x, folder)}


def _package_whole(data: Digits, folder: Path) -> dict[str, Path]:
    return package_all({LINEAR: linear_svm(data)}, data.test_x, folder)


async def _each_size(
    stage: Stage, packages: Mapping[str, Path], rows: NDArray[np.float32]
) -> list[dict[str, str | float]]:
    """Return, per model and batch size, the middle and the 99th percentile of a batch's time (ms)."""
    found = []
    deployment = workers_of(NAME, packages, _GRID)
    async with stage.launch(deployment):
        for model in packages:
            with Asker(stage, deployment.prefix, model, rows) as asker:
                found += await asyncio.to_thread(_sizes_of, asker, _SHORT_REPEATS if stage.short else _REPEATS)
    topics.delete(stage.bootstrap, deployment.prefix)
    return found


def _sizes_of(asker: Asker, repeats: int) -> list[dict[str, str | float]]:
    rows: list[dict[str, str | float]] = []
    asker.once(1)  # the first is slower
    for size in _SIZES:
        taken = [batch.predict_us / 1e3 for _ in range(repeats) for batch in asker.once(size) if batch.rows == size]
        p50, p99 = np.percentile(taken, (50, 99)).tolist()
        rows.append({"model": asker.model, "rows": size, "batches": len(taken), "p50_ms": p50, "p99_ms": p99})
        if p50 > 2 * OBJECTIVE_MS:
            break
    return rows


async def _controlled(
    stage: Stage, packages: Mapping[str, Path], rows: NDArray[np.float32], name: str
) -> dict[str, float]:
    figures: dict[str, float] = {}
    deployment = workers_of(NAME, packages, CONTROLLERS[name])
    async with stage.launch(deployment):
        for model in packages:
            with Asker(stage, deployment.prefix, model, rows) as asker:
                batches = await asyncio.to_thread(asker.keep_busy, _seconds(stage))
            figures |= {f"{model}_{name}_{key}": value for key, value in settled(batches).items()}
    topics.delete(stage.bootstrap, deployment.prefix)
    return figures


def gains(figures: Mapping[str, float]) -> dict[str, float]:
    """Return each model's gain over batches of one: of the whole worker, and of the model's own time."""
    return {
        f"{model}_{kind}gain": figures[f"{model}_aimd_{kind}per_s"] / max(1.0, figures[f"{model}_none_{kind}per_s"])
        for model in MODELS
        for kind in ("", "model_")
    }


async def _whole(stage: Stage) -> dict[str, float]:
    """Return how many queries of a backlog are answered a second, with batches and without, in the middle round."""
    data = pixels()
    package = (await asyncio.to_thread(_package_whole, data, stage.folder / "whole"))[LINEAR]
    rounds: dict[str, list[Drained]] = {how: [] for how in _WHOLE_ROWS}
    async with AsyncExitStack() as stack:
        drivers = {}
        for how in _WHOLE_ROWS:
            deployment = workers_of(NAME, {LINEAR: package}, CONTROLLERS[how], "selection")
            stack.callback(topics.delete, stage.bootstrap, deployment.prefix)
            system = await stack.enter_async_context(stage.launch(deployment))
            drivers[how] = Driver(stage, deployment.prefix, system)
            await drivers[how].greet(LINEAR, data.inputs[0])
        for number in range(_WHOLE_WARM_UP + _WHOLE_ROUNDS):
            workload = Rows(LINEAR, data.inputs, seed=stage.seed * 100 + number)
            for how, count in _WHOLE_ROWS.items():
                rounds[how].append(await drivers[how].drain(count, workload, PATIENCE_S))
    rates = {how: [each.per_s for each in found[_WHOLE_WARM_UP:]] for how, found in rounds.items()}
    return {
        **{f"whole_{how}_per_s": statistics.median(found) for how, found in rates.items()},
        **{f"whole_{how}_lost": float(sum(each.lost for each in found)) for how, found in rounds.items()},
    }


def _seconds(stage: Stage) -> float:
    return _SHORT_SECONDS if stage.short else max(_SECONDS, stage.seconds)
