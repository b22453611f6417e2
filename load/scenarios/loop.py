"""`loop`: the whole system, against the hand loop and the bare chain of the same run.

Exp3 over two scikit-learn models of 64 features, every role in a process of its own, feedback for every answer. Then
the shortest path, one model inline, beside one hop of that chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import joblib

from load import topics
from load.driving import deployed
from load.floor.measure import WARM_UP_RATE, WARM_UP_S, chain, drain
from load.one_hop import beside_one_hop
from load.rates import central_rate
from load.results import Result
from load.rounds import ROUNDS, over_rounds
from load.scenarios.floor import BACKLOG, RATES, chain_figures, drain_figures
from load.system import Deployment
from load.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.workload import Rows
from schemas.records import Application

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.driving import Driver, Stretch
    from load.floor.measure import Chain
    from load.recorder import Recorder
    from load.system import Stage
    from load.training import Digits
    from schemas.records import Prediction

NAME = "loop"
_APPLICATION = "digits"
# A backlog waits; with an objective shorter than its draining it would be answered by defaults.
_BACKLOG_SLO_MS = 600_000.0
_BACKLOG_DRAIN_S = 120.0
# At 2,000 a second two cores are all but full, and one turn takes up to three times as long as another (measured): of
# three turns each, the ratio came out between 1.0 and 1.5.
_TURNS = 9


async def run(stage: Stage) -> Result:
    """Measure the floors, then the system, in one run."""
    data = digits()
    estimators = linear_models(data)
    model = stage.folder / "logistic.joblib"
    joblib.dump(estimators["logistic"], model)
    workload = Rows(_APPLICATION, data.inputs, data.labels, seed=stage.seed)
    hand = drain_figures(await drain(stage, workload, str(model), BACKLOG))
    deployment = Deployment(
        prefix=topics.new_prefix(NAME),
        applications=(Application(_APPLICATION, tuple(estimators), "exp3"),),
        models=package_all(estimators, data.test_x, stage.folder, LINEAR_RUNTIME),
    )
    async with deployed(stage, deployment, data.inputs[0]) as driver:
        await driver.at(WARM_UP_RATE, Rows(_APPLICATION, data.inputs, data.labels, seed=stage.seed + 1), WARM_UP_S)
        drained = await _drain_backlogs(driver, data)
        async with chain(stage, workload) as bare:
            latencies = await _latencies(driver, bare, data)
    shortest = await beside_one_hop(stage, data, estimators["logistic"], stage.seconds)
    figures = {**hand, **drained, **latencies, **shortest}
    return Result(
        NAME,
        figures={**figures, **_ratios(figures)},
        parameters={
            "backlog": BACKLOG,
            "seconds": stage.seconds,
            "seed": stage.seed,
            "arrivals": stage.arrivals.name,
            "runtime": LINEAR_RUNTIME,
        },
        notes=("the system runs its models as arrays, converted when they were packaged; the hand loop scikit-learn",),
    )


async def _latencies(driver: Driver, bare: Chain, data: Digits) -> dict[str, float]:
    """Send at each rate through the chain and the system in turn; the one that waits costs a few per cent of a core."""
    chained: list[dict[int, Recorder]] = []
    rounds: list[dict[int, dict[str, float]]] = []
    seconds = driver.stage.seconds / ROUNDS
    for turn in range(_TURNS):
        chained.append({})
        rounds.append({})
        for rate in RATES:
            workload = Rows(_APPLICATION, data.inputs, data.labels, seed=driver.stage.seed + rate + turn)
            offsets_us = driver.stage.arrivals.at(rate, driver.stage.seed + turn)
            chained[turn][rate] = await bare.at(rate, offsets_us, workload, seconds)
            stretch = await driver.at(rate, workload, seconds, turn=turn)
            cpu_us = stretch.cpu_us_per_query
            rounds[turn][rate] = {**stretch.recorder.figures(), "cpu_us_per_query": cpu_us}
    figures = chain_figures(chained)
    for rate in RATES:
        merged = over_rounds([measured[rate] for measured in rounds])
        figures |= {f"at_{rate}_{name}": value for name, value in merged.items()}
    return figures


async def _drain_backlogs(driver: Driver, data: Digits) -> dict[str, float]:
    """Have the system answer a backlog in each of several rounds; returns the middle one."""
    rounds = [await _drain_backlog(driver, data, number) for number in range(ROUNDS)]
    return {f"backlog_{name}": value for name, value in over_rounds(rounds).items()}


async def _drain_backlog(driver: Driver, data: Digits, number: int) -> dict[str, float]:
    seed = driver.stage.seed * 10_000 + 9_000 + number  # none of a rate's
    workload = Rows(_APPLICATION, data.inputs, data.labels, seed=seed, slo_ms=_BACKLOG_SLO_MS)
    answered_us: list[int] = []

    def note(predictions: Sequence[Prediction]) -> None:
        answered_us.extend(prediction.answered_us for prediction in predictions)

    stretch = await driver.backlog(BACKLOG, workload, _BACKLOG_DRAIN_S, note)
    return {
        "per_s": central_rate(answered_us),
        "lost": stretch.recorder.open,
        "defaults": stretch.recorder.total.defaults,
        "cpu_us_per_query": stretch.cpu_us_per_query,
        **_cpu_by_role(stretch),
    }


def _cpu_by_role(stretch: Stretch) -> dict[str, float]:
    answered = max(1, stretch.recorder.total.answered)
    return {
        f"cpu_us_{role.replace('.', '_').replace('-', '_')}": seconds / answered * 1e6
        for role, seconds in stretch.cpu_s.items()
    }


def _ratios(figures: dict[str, float]) -> dict[str, float]:
    """Set the system against the floors; the hand loop is the fastest of its variants, the chain has four legs too."""
    hand_rate = max(value for name, value in figures.items() if name.startswith("hand_") and name.endswith("_per_s"))
    hand_cpu = min(value for name, value in figures.items() if name.startswith("hand_") and "cpu" in name)
    ratios = {
        "ratio_rate": figures["backlog_per_s"] / hand_rate,
        "ratio_cpu": figures["backlog_cpu_us_per_query"] / hand_cpu,
    }
    for rate in RATES:
        for point in ("p50", "p99"):
            bare = figures[f"chain_at_{rate}_{point}_ms"]
            ratios[f"at_{rate}_ratio_{point}"] = figures[f"at_{rate}_{point}_ms"] / bare
    return ratios
