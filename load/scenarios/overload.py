"""`overload`: goodput of a slow model at its capacity and at three times that, with and without admission.

The model takes 5 ms a batch and 1 ms a row in batches of at most 40, so it does 889 rows a second. Goodput is what a
model has answered within the objective; a default output does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from load import topics
from load.driving import Driver
from load.models import BATCH_S, ROW_S
from load.results import Result
from load.system import Deployment
from load.workload import Rows
from schemas.records import Application, Tensor
from workers.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path

    from load.driving import Stretch
    from load.system import Stage

NAME = "overload"
TIMES = (1, 3)
_MODEL = "slow"
_ROWS = 40
CAPACITY = _ROWS / (BATCH_S + _ROWS * 10 * ROW_S)  # rows/s
_APPLICATION = Application("slow", (_MODEL,), "single", slo_ms=150.0, default_output=-1)
_INPUT = Tensor.of(np.ones(1, np.float32))


async def run(stage: Stage) -> Result:
    """Ask at both rates, with admission and without."""
    package = stage.folder / _MODEL
    package_function("load.models:slow", package, _MODEL, "1", np.ones((2, 1), np.float32))
    figures: dict[str, float] = {}
    for how, admission in (("admission", True), ("without", False)):
        for times, stretch in zip(TIMES, await _stretches(stage, package, is_admitting=admission), strict=True):
            counted = stretch.recorder.figures()
            figures |= {f"{how}_at_{times}_{name}": counted[name] for name in ("lost", "defaults", "late", "p99_ms")}
            figures[f"{how}_at_{times}_goodput"] = counted["in_time"] / stage.seconds
    figures["kept"] = figures["admission_at_3_goodput"] / max(1.0, figures["without_at_1_goodput"])
    figures["kept_without"] = figures["without_at_3_goodput"] / max(1.0, figures["without_at_1_goodput"])
    return Result(NAME, figures=figures, parameters={"capacity_per_s": CAPACITY, "slo_ms": _APPLICATION.slo_ms})


async def _stretches(stage: Stage, package: Path, *, is_admitting: bool) -> list[Stretch]:
    deployment = Deployment(
        topics.new_prefix(NAME),
        (_APPLICATION,),
        {_MODEL: package},
        roles=("selection", "worker"),
        settings={
            "selection": {"admission": is_admitting},
            "worker": {"controller": "fixed", "parameters": {"rows": float(_ROWS)}},
        },
    )
    workload = Rows(_APPLICATION.name, (_INPUT,), seed=stage.seed)
    stretches = []
    async with stage.launch(deployment) as system:
        driver = Driver(stage, deployment.prefix, system)
        await driver.greet(_APPLICATION.name, _INPUT)
        for times in TIMES:
            workload.seed = stage.seed + times
            slo_us = int(_APPLICATION.slo_ms * 1e3)
            stretches.append(await driver.at(times * CAPACITY, workload, stage.seconds, slo_us))
    topics.delete(stage.bootstrap, deployment.prefix)
    return stretches
