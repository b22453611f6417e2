"""`floor`: the hand-written loops and the bare chain of hops that everything else is measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import joblib

from load.baseline.measure import VARIANTS, chain, drain
from load.figures import CPU_US, FAULTS, PER_S, Figures, quantiles_ms
from load.harness.aggregates import ROUNDS, over_rounds
from load.harness.workload import Rows
from load.models.training import digits, linear_models
from load.results.results import Result
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.baseline.job import Done
    from load.baseline.measure import Chain
    from load.harness.openloop import Workload
    from load.harness.recorder import Recorder
    from load.harness.system import Stage

NAME = "floor"
BACKLOG = 60_000
RATES = (200, 500, 2_000)


LOOPS = ("floor", "hand")  # with Skysail's codec and arrays; with fastavro and scikit-learn
HAND_LOOPS = Figures(
    *((*PER_S(f"{loop}_*_per_s"), *CPU_US(f"{loop}_*_cpu_us_per_query")) for loop in LOOPS),
)
CHAIN = Figures(
    *((*quantiles_ms(f"chain_at_{rate}_"), *FAULTS(f"chain_at_{rate}_lost")) for rate in RATES),
)
FIGURES = Figures(HAND_LOOPS, CHAIN)


async def run(stage: Stage) -> Result:
    """Drain a backlog with each hand loop; send through a bare chain at each rate."""
    data = digits()
    model = stage.folder / "logistic.joblib"
    joblib.dump(linear_models(data)["logistic"], model)
    workload = Rows("digits", data.inputs, seed=stage.seed)
    drained = await drain(stage, workload, str(model), BACKLOG)
    async with chain(stage, workload) as bare:
        chained = [await _through(bare, stage, workload) for _ in range(ROUNDS)]
    return Result(
        NAME,
        figures={**drain_figures(drained), **chain_figures(chained)},
        parameters={
            "backlog": BACKLOG,
            "seconds": stage.seconds,
            "seed": stage.seed,
            "arrivals": stage.arrivals.name,
        },
        notes=(
            f"loops: {', '.join(v.figure for v in VARIANTS)}",
            "floor: Skysail's codec and the model as arrays; hand: fastavro and scikit-learn",
            "chain: three aiokafka hops, four legs, no model",
        ),
    )


async def _through(bare: Chain, stage: Stage, workload: Workload) -> dict[int, Recorder]:
    seconds = stage.seconds / ROUNDS
    return {rate: await bare.at(rate, stage.arrivals.at(rate, stage.seed), workload, seconds) for rate in RATES}


def drain_figures(rounds: Sequence[Mapping[str, Done]]) -> dict[str, float]:
    """Name what the hand loops reached, in the middle round."""
    return over_rounds([_drained(drained) for drained in rounds])


def _drained(drained: Mapping[str, Done]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for loop, done in drained.items():
        figures[f"{loop}_per_s"] = done.rows / done.wall_s
        figures[f"{loop}_cpu_us_per_query"] = done.cpu_s / done.rows * 1e6
    return figures


def chain_figures(rounds: Sequence[Mapping[int, Recorder]]) -> dict[str, float]:
    """Name what the chain took, by rate, over all rounds."""
    figures: dict[str, float] = {}
    for rate in rounds[0]:
        recorders = [recorded[rate] for recorded in rounds]
        taken = over_rounds([recorder.latency_ms() for recorder in recorders])
        figures |= {f"chain_at_{rate}_{name}_ms": value for name, value in taken.items()}
        figures[f"chain_at_{rate}_lost"] = sum(recorder.open for recorder in recorders)
    return figures


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "hand-written loops and a bare chain of four legs: what everything else is measured by",
    any_arrivals=True,
)
