"""`controllers`: six models through real workers: time by batch size, and rows a second by each batch controller.

The models and the objective of 20 ms are Clipper's (NSDI 2017, figures 3 and 4), on the 64 features of scikit-learn's
digits. A small neural network stands in for the linear SVM on Spark. First each model gets one record of so many rows
at a time. Then every controller gets the same backlog, and so do batches of one (`none`).

In the end queries go the whole way to the linear SVM, and the gain by batches has three values. `rows`: the same
batches, but the model is called for each row, so that only the way is shared. `alone`: a record and a call for each
row, without any batch behind the query; most of that gain is requests to Kafka. `converted`: the same, and the model as
it is served by default, as arrays instead of scikit-learn. The rate counts from the time when all queries are written,
and their answers are read afterwards. There each pixel travels as a byte, which leaves all roles less to do.
"""

from __future__ import annotations

import asyncio
import statistics
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from load.figures import FAULTS, GAIN, NONE, P99_MS, PER_S, SHOWN, Figures, at_least
from load.harness import topics
from load.harness.driving import Driver
from load.harness.workload import Rows
from load.models.training import clippers, digits, linear_svm, package_all, pixels
from load.research.batching.controller_comparison import OBJECTIVE_MS, PATIENCE_S, workers_of
from load.research.harness.backlog import Asker, settled
from load.results.results import Result
from load.results.tables import Table, number
from load.scenario import Scenario
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
_WHOLE_WARM_UP, _WHOLE_ROUNDS = 3, 9


class _Way(NamedTuple):
    """One way to the linear SVM.

    Attributes:
        rows: queries of a round: one to two seconds' work. The rounds alternate, so that a busy moment meets all. The
            first ones do not count: over three of them the broker compiles what it does so often, and gets a fifth to a
            third faster.
        controller: of batches.
        package: which of the packages.
    """

    rows: int
    controller: str
    package: str


_WHOLE: Mapping[str, _Way] = {
    "batched": _Way(190_000, "aimd", "original"),
    "rows": _Way(9_000, "aimd", "row by row"),
    "alone": _Way(3_000, "none", "original"),
    "converted_batched": _Way(190_000, "aimd", "converted"),
    "converted_alone": _Way(9_000, "none", "converted"),
}


class _Gain(NamedTuple):
    """A gain by batches: whose rate over whose, and in words over what."""

    own: str
    base: str
    over: str


_GAINS: Mapping[str, _Gain] = {
    "rows": _Gain("batched", "rows", "rows predicted one by one and answered together"),
    "alone": _Gain("batched", "alone", "rows one by one altogether, under scikit-learn"),
    "converted": _Gain("converted_batched", "converted_alone", "rows one by one altogether, converted as by default"),
}


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
    GAIN("linear-svm_gain", "linear-svm_model_gain", must=at_least(26)),
    GAIN("*_gain"),
    *((*PER_S(f"whole_{way}_per_s"), *FAULTS(f"whole_{way}_lost", must=NONE)) for way in _WHOLE),
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
    """Return the packages of the linear SVM by how it is called; a worker converts as it does by default, or never."""
    svm, sample = {LINEAR: linear_svm(data)}, data.test_x
    package_function("load.research.models.alone:svm", folder / "alone", LINEAR, "1", sample[:5])
    return {
        "original": package_all(svm, sample, folder / "original")[LINEAR],
        "converted": package_all(svm, sample, folder / "converted", convert="load")[LINEAR],
        "row by row": folder / "alone",
    }


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
    """Return how many queries of a backlog are answered a second each way, in the middle round, and the gains."""
    data = pixels()
    packages = await asyncio.to_thread(_package_whole, data, stage.folder / "whole")
    rounds: dict[str, list[Drained]] = {name: [] for name in _WHOLE}
    async with AsyncExitStack() as stack:
        drivers = {}
        for name, way in _WHOLE.items():
            deployment = workers_of(NAME, {LINEAR: packages[way.package]}, CONTROLLERS[way.controller], "selection")
            stack.callback(topics.delete, stage.bootstrap, deployment.prefix)
            system = await stack.enter_async_context(stage.launch(deployment))
            drivers[name] = Driver(stage, deployment.prefix, system)
            await drivers[name].greet(LINEAR, data.inputs[0])
        for number in range(_WHOLE_WARM_UP + _WHOLE_ROUNDS):
            workload = Rows(LINEAR, data.inputs, seed=stage.seed * 100 + number)
            for name, way in _WHOLE.items():
                rounds[name].append(await drivers[name].drain(way.rows, workload, PATIENCE_S))
    rates = {name: statistics.median([each.per_s for each in found[_WHOLE_WARM_UP:]]) for name, found in rounds.items()}
    return {
        **{f"whole_{name}_per_s": rate for name, rate in rates.items()},
        **{f"whole_{name}_lost": float(sum(each.lost for each in found)) for name, found in rounds.items()},
        **gains_of(rates),
    }


def gains_of(rates: Mapping[str, float]) -> dict[str, float]:
    """Return the gains by batches of the whole way, from the rate (1/s) of each."""
    return {f"whole_{name}_gain": rates[gain.own] / max(1.0, rates[gain.base]) for name, gain in _GAINS.items()}


def tables(result: Result) -> list[Table]:
    """Return the gain by batches in three lines."""
    found = result.figures
    rows = tuple(
        (
            f"over {gain.over}",
            number(found[f"whole_{gain.own}_per_s"]),
            number(found[f"whole_{gain.base}_per_s"]),
            f"{found[f'whole_{name}_gain']:.1f}",
        )
        for name, gain in _GAINS.items()
    )
    return [Table("A linear SVM through the whole system", ("", "in batches, queries/s", "without", "gain"), rows)]


def _seconds(stage: Stage) -> float:
    return _SHORT_SECONDS if stage.short else max(_SECONDS, stage.seconds)


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "six models: time by batch size, rows a second by each batch controller and in batches of one",
    tables=tables,
    page="research/batching/controllers.md.j2",
    short=True,
)
