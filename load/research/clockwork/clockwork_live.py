"""The parts of `clockwork` on Kafka: one host with 200 models, and beside it workers of one model each.

live             real models: linear, trees, ONNX
sleeping         Clockwork's published models, which sleep as long as it says
live_objectives  the real ones with less and less time for an answer

The real models are asked as much as keeps 70 % of the machine's cores busy, by what a query has cost in a stretch
before: selection, the broker and the sender use more of them than models do. The sleeping ones are asked as much as the
simulated ones. As many workers are started as fit into the memory that the host's processes take.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.figures import IN_FULL, SHOWN, SHOWN_MIB, SHOWN_MS, SHOWN_US, WITHIN_SLO, Figures, Kind, at_least
from load.harness.environment import usable_cores
from load.harness.progress import say
from load.models.training import digits, package_all, small_models
from load.research.clockwork import many_asked, many_models
from load.research.clockwork.live_host import (
    EXPIRED,
    GOOD,
    LATE,
    NO_ANSWER,
    REFUSED,
    UNLOADED,
    Asking,
    Fleet,
    ask,
    copies,
    greeted,
    hosting,
    models_mib,
    resident_bytes,
)
from load.research.models.published import PART
from schemas.records import Tensor
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.system import Stage
    from load.research.clockwork.live_host import Found

PARTS: Final = ("live", "sleeping", "live_objectives")
MODELS, SHORT_MODELS = 200, 120
RESIDENT, LOAD, SLO_MS = 0.1, 0.7, 100.0
LANES: Mapping[str, str] = {"clockwork": "clockwork", "fifo": "fifo, aimd", "apart": "workers in as much memory"}
CONTROLLERS: Mapping[str, str] = {"clockwork": "clockwork", "fifo": "aimd"}
OBJECTIVES_MS: Final = (100, 75, 50, 40, 30, 20, 15, 10)
SHORT_OBJECTIVES_MS: Final = (20, 10)
_SECONDS, _SHORT_SECONDS = 90.0, 8.0  # of a stretch with real models
_STEP_S, _SHORT_STEP_S = 10.0, 4.0  # of one objective
_SLEEPING, _SHORT_SLEEPING = 15_000, 1_000  # queries
_CALM_PER_S, _CALM_S = 50.0, 8.0  # of the stretch that tells what a query costs
_COUNT_S: Final = 300.0
_APART: Final = {"log_level": "warning"}
_SHARES: Mapping[str, int] = {
    "refused_share": REFUSED,
    "unloaded_share": UNLOADED,
    "expired_share": EXPIRED,
    "late_share": LATE,
    "unanswered_share": NO_ANSWER,
}

FIGURES = Figures(
    WITHIN_SLO("live_clockwork_goodput", must=at_least(0.999, IN_FULL)),
    WITHIN_SLO("sleeping_clockwork_goodput", must=at_least(0.9999, IN_FULL)),
    *(
        (
            *WITHIN_SLO(f"{part}_{lane}_goodput", f"{part}_{lane}_goodput_within"),
            *SHOWN(*(f"{part}_{lane}_{share}" for share in _SHARES)),
            *SHOWN_MS(f"{part}_{lane}_p50_ms", f"{part}_{lane}_p99_ms"),
            *SHOWN_MIB(f"{part}_{lane}_models_mib"),
            *Kind("cores")(f"{part}_{lane}_used_cores"),
            *SHOWN(*(f"{part}_{lane}_{what}" for what in ("resident", "rows_a_batch", "under_share", "over_share"))),
            *SHOWN_US(f"{part}_{lane}_under_p99_us", f"{part}_{lane}_over_p99_us"),
        )
        for part in PARTS[:2]
        for lane in LANES
    ),
    SHOWN("live_apart_workers"),
    SHOWN_MIB("*_budget_mib"),
    *(WITHIN_SLO(f"live_objective_{ms}_{lane}_goodput") for ms in OBJECTIVES_MS for lane in CONTROLLERS),
)


class _Real(NamedTuple):
    """The real models, and the memory that a tenth of them takes."""

    fleet: Fleet
    memory_mib: int


def _say(message: str) -> None:
    say("clockwork", message)


async def run(stage: Stage, parts: Sequence[str]) -> dict[str, float]:
    """Run these of the live parts."""
    figures: dict[str, float] = {}
    if "sleeping" in parts:
        figures |= await _sleeping(stage)
    if "live" in parts or "live_objectives" in parts:
        fleet = _real_fleet(stage)
        real = _Real(fleet, _tenth_mib(await resident_bytes(stage, fleet)))
        figures["live_budget_mib"] = real.memory_mib
        for lane in CONTROLLERS:
            figures |= await _of_host(stage, real, lane, parts, figures.get("live_per_s"))
        if "live" in parts:
            figures |= await _apart(stage, real, figures)
    return figures


async def _of_host(stage: Stage, real: _Real, lane: str, parts: Sequence[str], rate: float | None) -> dict[str, float]:
    """Return the figures of a host with the real models; the first one tells how often they are asked."""
    seconds, step_s = (_SHORT_SECONDS, _SHORT_STEP_S) if stage.short else (_SECONDS, _STEP_S)
    figures: dict[str, float] = {}
    async with greeted(stage, real.fleet, hosting(CONTROLLERS[lane], real.memory_mib)) as driver:
        if rate is None:
            _say("what a query costs")
            calm = await ask(driver, real.fleet, _asking(stage, _CALM_PER_S, _CALM_S), -1)
            rate = LOAD * usable_cores() / (calm.cores / _CALM_PER_S)
            figures["live_per_s"] = rate
        if "live" in parts:
            _say(f"{rate:,.0f} queries a second of real models, {LANES[lane]}")
            asking = _asking(stage, rate, seconds)
            found = await ask(driver, real.fleet, asking, stage.seed)
            figures["live_queries"] = len(asking.models)
            figures |= _named(f"live_{lane}", figures_of(found, asking))
        for ms in SHORT_OBJECTIVES_MS if stage.short else OBJECTIVES_MS:
            if "live_objectives" in parts:
                _say(f"{ms} ms, {LANES[lane]}")
                asking = _asking(stage, rate, step_s)._replace(slo_ms=float(ms))
                found = await ask(driver, real.fleet, asking, stage.seed + 1_000 * ms)
                figures[f"live_objective_{ms}_{lane}_goodput"] = found.share(GOOD)
    return figures


async def _apart(stage: Stage, real: _Real, figures: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of as many workers as fit into the host's memory, for the models that are asked most."""
    asking = _asking(stage, figures["live_per_s"], _SHORT_SECONDS if stage.short else _SECONDS)
    most_asked = [name for name, _ in Counter(asking.models).most_common()]
    one = real.fleet.first(most_asked[:1])
    async with greeted(stage, one, _APART) as driver:
        worker_mib = models_mib(driver)
    workers = max(1, int(figures["live_clockwork_models_mib"] / worker_mib))
    _say(f"{workers} workers of {worker_mib:,.0f} MiB each")
    few = real.fleet.first(most_asked[:workers])
    is_asked = np.isin(asking.models, [*few.packages])
    theirs = asking._replace(
        offsets_us=asking.offsets_us[is_asked],
        models=[name for name in asking.models if name in few.packages],
        is_within=asking.is_within[is_asked],
    )
    async with greeted(stage, few, _APART) as driver:
        found = await ask(driver, few, theirs, stage.seed, is_host=False)
    outcomes = np.full(len(asking.models), NO_ANSWER, np.uint8)
    outcomes[is_asked] = found.outcomes
    its = figures_of(found._replace(outcomes=outcomes), asking)
    return {"live_apart_workers": workers, **_named("live_apart", its)}


async def _sleeping(stage: Stage) -> dict[str, float]:
    """Return the figures of hosts with the published models."""
    random = np.random.default_rng(stage.seed)
    families = many_models.published()
    its = many_asked.asked(_SHORT_SLEEPING if stage.short else _SLEEPING, models_of(stage), random)
    kinds = random.permutation(np.arange(models_of(stage)) % len(families)).tolist()
    models = [families[kind].model() for kind in kinds]
    budget_bytes = int(RESIDENT * sum(model.bytes for model in models))
    played = many_asked.played(its, models, budget_bytes, LOAD, loads_beside=True)
    fleet = _sleeping_fleet([families[kind].name for kind in kinds], stage.folder)
    asking = Asking(played.arrivals_us, [_name(model) for model in its.models.tolist()], SLO_MS, played.is_within)
    memory_mib = _tenth_mib(sum(model.bytes // PART for model in models))
    figures: dict[str, float] = {
        "sleeping_queries": len(asking.models),
        "sleeping_per_s": len(asking.models) * 1e6 / float(asking.offsets_us[-1]),
        "sleeping_budget_mib": memory_mib,
    }
    for lane, controller in CONTROLLERS.items():
        _say(f"{figures['sleeping_per_s']:,.0f} queries a second of sleeping models, {LANES[lane]}")
        async with greeted(stage, fleet, hosting(controller, memory_mib)) as driver:
            figures |= _named(f"sleeping_{lane}", figures_of(await ask(driver, fleet, asking, stage.seed), asking))
    return figures


def models_of(stage: Stage) -> int:
    """Return how many models a host has here."""
    return SHORT_MODELS if stage.short else MODELS


def _asking(stage: Stage, rate: float, seconds: float) -> Asking:
    """Return the beginning of the trace, so fast that there are as many a second on average."""
    its = many_asked.asked(int(rate * seconds), models_of(stage), np.random.default_rng(stage.seed))
    offsets_us = its.at_s / its.at_s[-1] * len(its.models) * 1e6 / rate
    buckets = (its.at_s // _COUNT_S).astype(int)
    counts = np.bincount(buckets)
    is_within = counts <= counts.mean()
    is_within[1:] &= is_within[:-1].copy()
    names = [_name(model) for model in its.models.tolist()]
    return Asking(offsets_us.astype(np.int64), names, SLO_MS, is_within[buckets])


def _name(model: int) -> str:
    return f"m{model}"


def _tenth_mib(size_bytes: float) -> int:
    return max(1, round(RESIDENT * size_bytes / 2**20))


def _real_fleet(stage: Stage) -> Fleet:
    """Package a model of each kind, and copy it: as many models of each."""
    data, folder = digits(), stage.folder
    kinds = np.random.default_rng(stage.seed).permutation(np.arange(models_of(stage)) % 3)
    packages: dict[str, Path] = {}
    for kind, (runtime, estimator) in enumerate(small_models(data).items()):
        made = package_all({runtime: estimator}, data.test_x[:64], folder / "kinds", convert=runtime)
        names = [_name(model) for model in np.flatnonzero(kinds == kind).tolist()]
        packages |= copies(made[runtime], names, folder / "real")
    return Fleet(packages, data.inputs)


def _sleeping_fleet(kinds: Sequence[str], folder: Path) -> Fleet:
    packages: dict[str, Path] = {}
    sample = np.zeros((1, 1), np.float32)
    for kind in sorted({*kinds}):
        made = folder / "kinds" / kind
        package_function(f"load.research.models.published:{kind}", made, kind, "1", sample)
        packages |= copies(made, [_name(at) for at, its in enumerate(kinds) if its == kind], folder / "sleeping")
    return Fleet(packages, [Tensor.of(sample[0])])


def _named(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in figures.items()}


def figures_of(found: Found, asking: Asking) -> dict[str, float]:
    """Return what became of the queries, and what the host says."""
    is_good: NDArray[np.bool_] = found.outcomes == GOOD
    figures = {
        "goodput": float(is_good.mean()),
        "goodput_within": float(is_good[asking.is_within].mean()) if asking.is_within.any() else 0.0,
        **{name: found.share(outcome) for name, outcome in _SHARES.items()},
        "p50_ms": found.p50_ms,
        "p99_ms": found.p99_ms,
        "used_cores": found.cores,
        "models_mib": found.models_mib,
    }
    if found.told is None:
        return figures
    counted, gauges = found.told
    batches = max(1.0, counted["host_predicted_batches_total"])
    return figures | {
        "loads_per_s": counted["host_loads_total"] / (float(asking.offsets_us[-1]) / 1e6),
        "resident": gauges["host_resident_models"],
        "rows_a_batch": found.share(GOOD, LATE) * len(is_good) / batches,
        "under_share": counted["host_predicted_too_short_total"] / batches,
        "over_share": counted["host_predicted_too_long_total"] / batches,
        "under_p99_us": gauges["host_predicted_too_short_p99_us"],
        "over_p99_us": gauges["host_predicted_too_long_p99_us"],
    }
