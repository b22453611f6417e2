"""`recall`: feedback learnt a second, four models asked each time, with the prediction cache and without.

Clipper (NSDI 2017, section 4.2) needs every model's prediction of a row again when its feedback comes. Its cache holds
them: 6,000 observations a second become 11,000. Here an answer carries the outputs of all models, so feedback asks no
model. The cache saves the first asking instead. A backlog of queries about the same few hundred rows goes the whole
way, and each answer gets feedback. The clock stops when joiner and learner have committed the last one.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import numpy as np

from load.figures import CPU_US, GAIN, NONE, PER_S, Figures
from load.harness import topics
from load.harness.aggregates import ROUNDS, over_rounds
from load.harness.driving import Driver
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.training import digits, trees
from load.research.models import recorded as replayed
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from load.harness.system import Stage

NAME = "recall"
MODELS = ("tree-0", "tree-1", "tree-2", "tree-3")
_APPLICATION = Application("digits", MODELS, "exp4", slo_ms=120_000.0)
CACHE_BYTES = {"without": 0, "with": 16 * 2**20}
_COUNT, _SHORT_COUNT = 20_000, 4_000  # a round
_FITTED_ON = 150
_TIMEOUT_S = 120.0


FIGURES = Figures(
    *(
        (
            *PER_S(f"{how}_observations_per_s"),
            *CPU_US(f"{how}_cpu_us_per_observation"),
            *recorded(f"{how}_", "lost", "defaults", lost=NONE, defaults=NONE),
        )
        for how in CACHE_BYTES
    ),
    GAIN("gain", "cpu_gain"),
)


async def run(stage: Stage) -> Result:
    """Drain the same backlogs with the cache and without, in turns, so that a busy moment meets both."""
    data = digits()
    rows = np.hstack([trees(data, len(MODELS), _FITTED_ON), np.arange(len(data.test_y))[:, None] % 251])
    rows = rows.astype(np.uint8)
    packages = replayed.package(stage.folder, MODELS, rows)
    inputs, count = [Tensor.of(row) for row in rows], _SHORT_COUNT if stage.short else _COUNT
    found: dict[str, list[dict[str, float]]] = {how: [] for how in CACHE_BYTES}
    async with AsyncExitStack() as stack:
        drivers = {}
        for how, cache_bytes in CACHE_BYTES.items():
            deployment = _deployment(packages, cache_bytes)
            stack.callback(topics.delete, stage.bootstrap, deployment.prefix)
            system = await stack.enter_async_context(stage.launch(deployment))
            drivers[how] = Driver(stage, deployment.prefix, system)
            await drivers[how].greet(_APPLICATION.name, inputs[0])
        for number in range(ROUNDS):
            workload = Rows(_APPLICATION.name, inputs, data.labels, seed=stage.seed * 100 + number)
            for how, driver in drivers.items():
                found[how].append(await _learnt(driver, workload, count))
    figures = {f"{how}_{name}": value for how, rounds in found.items() for name, value in over_rounds(rounds).items()}
    figures["gain"] = figures["with_observations_per_s"] / figures["without_observations_per_s"]
    figures["cpu_gain"] = figures["without_cpu_us_per_observation"] / figures["with_cpu_us_per_observation"]
    return Result(
        NAME,
        figures=figures,
        parameters={
            "form": stage.form,
            "queries": count,
            "rounds": ROUNDS,
            "models": len(MODELS),
            "rows": len(inputs),
        },
    )


def _deployment(packages: Mapping[str, Path], cache_bytes: int) -> Deployment:
    settings = {"log_level": "warning", "selection": {"cache_bytes": cache_bytes}}
    return Deployment(topics.new_prefix(NAME), (_APPLICATION,), packages, settings=settings)


async def _learnt(driver: Driver, workload: Rows, count: int) -> dict[str, float]:
    """Return the rate from the first query until the last observation is learnt and committed."""
    stretch = await driver.backlog(count, workload, _TIMEOUT_S)
    return {
        "observations_per_s": stretch.learnt_per_s,
        "cpu_us_per_observation": sum(stretch.cpu_s.values()) / count * 1e6,
        "lost": stretch.recorder.open,
        "defaults": stretch.recorder.total.defaults,
    }


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "feedback learnt a second, four models asked each time, with the prediction cache and without",
    short=True,
)
