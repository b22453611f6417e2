"""Compares the shortest path, one model in the selection role, with one bare hop over Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from load.baseline.measure import WARM_UP_RATE, chain
from load.figures import FAULTS, NONE, RATIO, Figures, at_most, quantiles_ms
from load.harness import topics
from load.harness.aggregates import ROUNDS, over_rounds, starts
from load.harness.driving import deployed
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.training import LINEAR_RUNTIME, package_all
from schemas.records import Application

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from load.baseline.measure import Chain
    from load.harness.driving import Driver
    from load.harness.system import Stage
    from load.models.training import Digits, Estimator

RATES = (200, 500)
LANES = ("hop", "shortest")
_MODEL = "alone"
_WARM_UP_S = 2.0  # the broker is warm by then
_TURNS = 3  # of each start


SHORTEST_PATH = Figures(
    *(
        (
            *(each for lane in LANES for each in quantiles_ms(f"{lane}_at_{rate}_")),
            *(each for lane in LANES for each in FAULTS(f"{lane}_at_{rate}_lost", must=NONE)),
            *RATIO(f"shortest_at_{rate}_ratio_p50", must=at_most(1.3)),
            *RATIO(f"shortest_at_{rate}_ratio_p99"),
        )
        for rate in RATES
    ),
)


async def beside_one_hop(stage: Stage, data: Digits, estimator: Estimator, seconds: float) -> dict[str, float]:
    """Return the latencies of both in ms, by rate, and their ratios.

    Args:
        stage: where.
        data: whose rows are sent.
        estimator: the model, which runs inline.
        seconds: at each rate, in all rounds of a start together.
    """
    packages = package_all({_MODEL: estimator}, data.test_x, stage.folder, LINEAR_RUNTIME)
    rounds: list[dict[str, float]] = []
    for start in range(starts(seconds)):
        rounds += await _start(stage, packages, data, start, seconds / ROUNDS)
    figures = over_rounds(rounds)
    for rate in RATES:
        for lane in LANES:
            figures[f"{lane}_at_{rate}_lost"] = sum(measured[f"{lane}_at_{rate}_lost"] for measured in rounds)
        for point in ("p50", "p99"):
            bare = figures[f"hop_at_{rate}_{point}_ms"]
            figures[f"shortest_at_{rate}_ratio_{point}"] = figures[f"shortest_at_{rate}_{point}_ms"] / bare
    return figures


async def _start(
    stage: Stage, packages: Mapping[str, Path], data: Digits, number: int, seconds: float
) -> list[dict[str, float]]:
    """Start both anew, and send through them in alternation."""
    deployment = Deployment(
        prefix=topics.new_prefix("shortest"),
        applications=(Application(_MODEL, (_MODEL,), "single"),),
        models=packages,
        roles=("selection",),
        settings={"selection": {"inline": [_MODEL]}},
    )
    async with deployed(stage, deployment, data.inputs[0]) as driver:
        await driver.at(WARM_UP_RATE, Rows(_MODEL, data.inputs, seed=stage.seed + 1), _WARM_UP_S)
        async with chain(stage, Rows(_MODEL, data.inputs, seed=stage.seed), hops=1, warm_up_s=_WARM_UP_S) as hop:
            return [await _round(driver, hop, data, number * _TURNS + turn, seconds) for turn in range(_TURNS)]


async def _round(driver: Driver, hop: Chain, data: Digits, turn: int, seconds: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    stage = driver.stage
    for rate in RATES:
        workload = Rows(_MODEL, data.inputs, seed=stage.seed + rate + turn)
        recorders = {}
        for lane in LANES if turn % 2 == 0 else LANES[::-1]:
            if lane == "hop":
                offsets_us = stage.arrivals.at(rate, stage.seed + turn)
                recorders[lane] = await hop.at(rate, offsets_us, workload, seconds)
            else:
                recorders[lane] = (await driver.at(rate, workload, seconds, turn=turn)).recorder
        for lane, recorder in recorders.items():
            figures |= {f"{lane}_at_{rate}_{name}_ms": value for name, value in recorder.latency_ms().items()}
            figures[f"{lane}_at_{rate}_lost"] = recorder.open
    return figures
