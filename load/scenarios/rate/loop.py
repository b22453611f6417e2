"""`loop`: the whole system, against the hand loop and the bare chain of the same run.

First Exp3 runs over two scikit-learn models of 64 features, every role in a process of its own, with feedback for every
answer. A backlog's rate ends when all feedback is learnt and committed. Then the shortest path, one model inline, is
compared with one hop of that chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import joblib

from load.baseline.measure import WARM_UP_RATE, WARM_UP_S, chain, drain
from load.figures import CPU_US, DEFAULTS, FAULTS, NONE, PER_S, RATIO, RATIO_RATE, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.aggregates import ROUNDS, cores, over_rounds, starts
from load.harness.driving import deployed
from load.harness.environment import usable_cores
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.results.results import Result
from load.scenario import Scenario
from load.scenarios.rate.floor import BACKLOG, CHAIN, HAND_LOOPS, LOOPS, RATES, chain_figures, drain_figures
from load.scenarios.rate.shortest_path import SHORTEST_PATH, beside_one_hop
from schemas.records import Application

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from load.baseline.measure import Chain
    from load.harness.driving import Driver, Stretch
    from load.harness.recorder import Recorder
    from load.harness.system import Stage
    from load.models.training import Digits

NAME = "loop"
LANES = ("chain", "system")
_APPLICATION = "digits"
# A backlog waits; with an objective shorter than its draining it would be answered by defaults.
_BACKLOG_SLO_MS = 600_000.0
_BACKLOG_DRAIN_S = 120.0
# Of each start. At 2,000 a second two cores are all but full: one turn takes up to three times as long as another
# (measured).
_TURNS = 3


class _Turn(NamedTuple):
    """One stretch at each rate: through the chain, and the figures of the system."""

    chain: Mapping[int, Recorder]
    system: Mapping[int, Mapping[str, float]]


class _Start(NamedTuple):
    """The result of one start of the system."""

    backlogs: Sequence[Mapping[str, float]]
    turns: Sequence[_Turn]


FIGURES = Figures(  # beside the best of the loops, which has Skysail's codec
    HAND_LOOPS,
    CHAIN,
    PER_S("backlog_learnt_per_s", "backlog_answered_per_s"),
    CPU_US("backlog_broker_cpu_us_per_query"),
    Kind("cores")("backlog_cores"),
    FAULTS("impossible_rates", must=NONE),
    FAULTS("backlog_lost", must=NONE),
    DEFAULTS("backlog_defaults", must=NONE),
    CPU_US("backlog_cpu_us_*"),
    *(
        (
            *recorded(f"at_{rate}_", within_slo=at_least(0.995), lost=NONE),
            *CPU_US(f"at_{rate}_cpu_us_per_query"),
            *RATIO(f"at_{rate}_ratio_p50", must=at_most(1.2)),
            *RATIO(f"at_{rate}_ratio_p99", must=at_most(1.3)),
        )
        for rate in RATES
    ),
    SHORTEST_PATH,
    RATIO_RATE("learnt_to_floor_ratio", must=at_least(0.3)),
    RATIO("cpu_to_floor_ratio"),
)


async def run(stage: Stage) -> Result:
    """Measure the floors, then the system, in one run."""
    data = digits()
    estimators = linear_models(data)
    model = stage.folder / "logistic.joblib"
    joblib.dump(estimators["logistic"], model)
    workload = Rows(_APPLICATION, data.inputs, data.labels, seed=stage.seed)
    hand = drain_figures(await drain(stage, workload, str(model), BACKLOG))
    packages = package_all(estimators, data.test_x, stage.folder, LINEAR_RUNTIME)
    begun = [await _start(stage, workload, packages, data, number) for number in range(starts(stage.seconds))]
    shortest = await beside_one_hop(stage, data, estimators["logistic"], stage.seconds)
    figures = {**hand, **_merged(begun), **shortest}
    return Result(
        NAME,
        figures={**figures, **_ratios(figures)},
        parameters={
            "backlog": BACKLOG,
            "seconds": stage.seconds,
            "starts": len(begun),
            "seed": stage.seed,
            "arrivals": stage.arrivals.name,
            "runtime": LINEAR_RUNTIME,
        },
        notes=("system and floors run the models as arrays, the hand loops scikit-learn",),
    )


async def _start(stage: Stage, workload: Rows, packages: Mapping[str, Path], data: Digits, number: int) -> _Start:
    """Start the system, drain backlogs, and then start the chain beside it."""
    application = Application(_APPLICATION, tuple(packages), "exp3", max_slo_ms=_BACKLOG_SLO_MS)
    deployment = Deployment(topics.new_prefix(NAME), (application,), packages)
    async with deployed(stage, deployment, data.inputs[0]) as driver:
        await driver.at(WARM_UP_RATE, Rows(_APPLICATION, data.inputs, data.labels, seed=stage.seed + 1), WARM_UP_S)
        backlogs = [await _drain_backlog(driver, data, number * ROUNDS + turn) for turn in range(ROUNDS)]
        async with chain(stage, workload) as bare:
            turns = [await _turn(driver, bare, data, number * _TURNS + turn) for turn in range(_TURNS)]
    return _Start(backlogs, turns)


async def _turn(driver: Driver, bare: Chain, data: Digits, turn: int) -> _Turn:
    """Send at each rate through the chain and the system; the one that waits costs a few per cent of a core."""
    chained: dict[int, Recorder] = {}
    measured: dict[int, dict[str, float]] = {}
    seconds = driver.stage.seconds / ROUNDS
    for rate in RATES:
        workload = Rows(_APPLICATION, data.inputs, data.labels, seed=driver.stage.seed + rate + turn)
        offsets_us = driver.stage.arrivals.at(rate, driver.stage.seed + turn)
        for lane in LANES if turn % 2 == 0 else LANES[::-1]:
            if lane == "chain":
                chained[rate] = await bare.at(rate, offsets_us, workload, seconds)
            else:
                stretch = await driver.at(rate, workload, seconds, turn=turn)
                measured[rate] = {**stretch.recorder.figures(), "cpu_us_per_query": stretch.cpu_us_per_query}
    return _Turn(chained, measured)


def _merged(begun: Sequence[_Start]) -> dict[str, float]:
    """Return the median of all starts' turns and backlogs."""
    turns = [turn for start in begun for turn in start.turns]
    backlogs = [backlog for start in begun for backlog in start.backlogs]
    figures = {f"backlog_{name}": value for name, value in over_rounds(backlogs).items()}
    figures |= chain_figures([turn.chain for turn in turns])
    for rate in RATES:
        merged = over_rounds([turn.system[rate] for turn in turns])
        figures |= {f"at_{rate}_{name}": value for name, value in merged.items()}
    return figures


async def _drain_backlog(driver: Driver, data: Digits, number: int) -> dict[str, float]:
    seed = driver.stage.seed * 10_000 + 9_000 + number  # none of a rate's
    workload = Rows(_APPLICATION, data.inputs, data.labels, seed=seed, slo_ms=_BACKLOG_SLO_MS)
    stretch = await driver.backlog(BACKLOG, workload, _BACKLOG_DRAIN_S)
    return {
        "learnt_per_s": stretch.learnt_per_s,
        "answered_per_s": stretch.answered_per_s,
        "broker_cpu_us_per_query": stretch.broker_cpu_us_per_query,
        "cores": cores(stretch.learnt_per_s, stretch.cpu_us_per_query, stretch.broker_cpu_us_per_query),
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
    """Set the system against the floors: the best of the loops, and the chain, which has four legs too."""
    loops = {name: value for name, value in figures.items() if name.startswith(LOOPS)}
    ratios = {
        "learnt_to_floor_ratio": figures["backlog_learnt_per_s"]
        / max(value for name, value in loops.items() if name.endswith("_per_s")),
        "cpu_to_floor_ratio": figures["backlog_cpu_us_per_query"]
        / min(value for name, value in loops.items() if name.endswith("_cpu_us_per_query")),
        "impossible_rates": float(figures["backlog_cores"] > usable_cores()),
    }
    for rate in RATES:
        for point in ("p50", "p99"):
            bare = figures[f"chain_at_{rate}_{point}_ms"]
            ratios[f"at_{rate}_ratio_{point}"] = figures[f"at_{rate}_{point}_ms"] / bare
    return ratios


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "the whole system: sustained rate, CPU a query, latency at 200 and 500/s, against the floor",
    any_arrivals=True,
)
