"""`replicas`: one to four workers of a model share its queries (Clipper, NSDI 2017, figure 6).

The model sleeps 5 ms a batch and 1 ms a row, as if it waited for a GPU or a socket. In batches of 40 a worker does 889
rows a second. A backlog lies evenly in the four partitions of the model's topic. The rate counts while every worker has
work. Three workers cannot share four partitions evenly, so one of them drains two, which `drained` shows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from load.figures import PER_S, RIGHT, Better, Figures, Kind, exactly
from load.harness import topics
from load.harness.system import Deployment
from load.models.functions import BATCH_S, ROW_S
from load.research.harness.backlog import Asker
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from load.harness.system import Stage
    from load.research.harness.backlog import Answered

NAME = "replicas"
COUNTS = (1, 2, 3, 4)
ROWS = 40
CAPACITY = ROWS / (BATCH_S + ROWS * 10 * ROW_S)  # rows/s, of one worker
_MODEL = "slow"
_SECONDS, _SHORT_SECONDS = 20.0, 6.0


_SCALE = Kind("", Better.HIGHER, 0.1)
FIGURES = Figures(
    PER_S("workers_*_drained_per_s", "workers_*_per_s"),
    RIGHT("workers_4_seen", must=exactly(4)),
    RIGHT("workers_*_seen"),
    _SCALE("scale_*"),  # of models that sleep: it says that nothing but them limits the path
)


async def run(stage: Stage) -> Result:
    """Drain a backlog with each number of workers."""
    package = stage.folder / _MODEL
    package_function("load.models.functions:slow", package, _MODEL, "1", np.ones((2, 1), np.float32))
    seconds = _SHORT_SECONDS if stage.short else max(_SECONDS, stage.seconds)
    figures: dict[str, float] = {}
    for workers in COUNTS:
        batches, start_us = await _drain(stage, package, workers, int(workers * CAPACITY * seconds))
        figures[f"workers_{workers}_per_s"] = busy_rate(batches)
        figures[f"workers_{workers}_drained_per_s"] = _drained_rate(batches, start_us)
        figures[f"workers_{workers}_seen"] = len({batch.worker for batch in batches})
    for workers in COUNTS[1:]:
        figures[f"scale_{workers}"] = figures[f"workers_{workers}_per_s"] / figures["workers_1_per_s"]
    return Result(
        NAME,
        figures=figures,
        parameters={"form": stage.form, "capacity_per_s": CAPACITY, "rows": ROWS, "seconds": seconds},
    )


async def _drain(stage: Stage, package: Path, workers: int, count: int) -> tuple[list[Answered], int]:
    deployment = Deployment(
        topics.new_prefix(NAME),
        (Application("slow", (_MODEL,), "single"),),
        {_MODEL: package},
        roles=("worker",),
        settings={"worker": {"controller": "fixed", "parameters": {"rows": float(ROWS)}}},
        replicas={_MODEL: workers},
    )
    async with stage.launch(deployment):
        rows = np.ones((ROWS, 1), np.float32)
        with Asker(stage, deployment.prefix, _MODEL, rows) as asker:
            done = await asyncio.to_thread(asker.drain, count)
    topics.delete(stage.bootstrap, deployment.prefix)
    return done


def busy_rate(batches: Sequence[Answered]) -> float:
    """Return rows a second from when the last worker has begun until the first has ended; 0 if they never overlap."""
    begun: dict[str, int] = {}
    ended: dict[str, int] = {}
    for batch in batches:
        begun.setdefault(batch.worker, batch.at_us)
        ended[batch.worker] = batch.at_us
    start_us, end_us = max(begun.values(), default=0), min(ended.values(), default=0)
    if end_us <= start_us:
        return 0.0
    return sum(batch.rows for batch in batches if start_us < batch.at_us <= end_us) / (end_us - start_us) * 1e6


def _drained_rate(batches: Sequence[Answered], start_us: int) -> float:
    return sum(batch.rows for batch in batches) / (batches[-1].at_us - start_us) * 1e6


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "one to four workers of a model that leaves the processor alone: how the rate scales",
    short=True,
)
