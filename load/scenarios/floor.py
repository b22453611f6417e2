"""`floor`: the hand-written loops and the bare chain of hops that everything else is measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import joblib

from load.floor.measure import VARIANTS, chain, drain
from load.results import Result
from load.training import digits, linear_models
from load.workload import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.floor.job import Done
    from load.recorder import Recorder
    from load.system import Stage

NAME = "floor"
BACKLOG = 60_000
RATES = (200, 500)


async def run(stage: Stage) -> Result:
    """Drain a backlog with each hand loop; send through a bare chain at each rate."""
    data = digits()
    model = stage.folder / "logistic.joblib"
    joblib.dump(linear_models(data)["logistic"], model)
    workload = Rows("digits", data.inputs, seed=stage.seed)
    drained = await drain(stage, workload, str(model), BACKLOG)
    chained = {rate: await chain(stage, workload, rate) for rate in RATES}
    return Result(
        NAME,
        figures={**drain_figures(drained), **chain_figures(chained)},
        parameters={
            "backlog": BACKLOG,
            "seconds": stage.seconds,
            "seed": stage.seed,
            "arrivals": stage.arrivals.name,
        },
        notes=(f"hand loops: {', '.join(v.name for v in VARIANTS)}; chain: three aiokafka hops, four legs, no model",),
    )


def drain_figures(drained: Mapping[str, Done]) -> dict[str, float]:
    """Name what the hand loops reached."""
    figures: dict[str, float] = {}
    for name, done in drained.items():
        loop = f"hand_{name.replace('-', '_')}"
        figures[f"{loop}_per_s"] = done.rows / done.wall_s
        figures[f"{loop}_cpu_us_per_query"] = done.cpu_s / done.rows * 1e6
    return figures


def chain_figures(chained: Mapping[int, Recorder]) -> dict[str, float]:
    """Name what the chain took."""
    figures: dict[str, float] = {}
    for rate, recorder in chained.items():
        figures |= {f"chain_at_{rate}_{name}_ms": value for name, value in recorder.latency_ms().items()}
        figures[f"chain_at_{rate}_lost"] = recorder.open
    return figures
