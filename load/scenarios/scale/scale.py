"""`scale`: how time and memory grow with workers, models, applications, contexts and time.

Each part drains backlogs at rising sizes, and is asked 200 times a second after them. A rate counts until the broker
has the answers. Where feedback is given, it counts until all of it is learnt and committed. `workers`: 2, 4 and 8 of
them and as many partitions, with models that sleep, so that they do not wait for the cores. `models`, `applications`,
`contexts`: up to 64, 1,000 and 1,000,000 of them, models inline, feedback learnt. `memory`: the same load repeated.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from load.figures import FAULTS, GAIN, IN_FULL, MIB, NONE, RATIO, Better, Figures, Kind, at_most, exactly
from load.harness import topics
from load.harness.environment import usable_cores
from load.harness.progress import say
from load.harness.system import Deployment
from load.results.results import Result
from load.scenarios.scale.scaling import SLO_MS, Many, application, by_role, declared, measure
from schemas.records import Application, Tensor
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

    from load.harness.system import Stage
    from load.scenarios.scale.scaling import Size

NAME = "scale"
_say = partial(say, NAME)
WORKERS, MODELS = (2, 4, 8), (1, 8, 64)
APPLICATIONS, CONTEXTS = (1, 100, 1_000), (1_000, 100_000, 1_000_000)
STATES = 100_000  # that selection may keep
_FEW: Mapping[str, tuple[int, ...]] = {
    "workers": (2, 4),
    "models": (1, 16),
    "applications": (1, 100),
    "contexts": (1_000, 20_000),
}
SIZES: Mapping[str, tuple[int, ...]] = {
    "workers": WORKERS,
    "models": MODELS,
    "applications": APPLICATIONS,
    "contexts": CONTEXTS,
}
PARTS = (*SIZES, "memory")
_LOOP = ("selection", "joiner", "learner")
_ROWS = 40  # of a batch of `load.models.functions.slow`: 45 ms
_WORKER_PER_S = _ROWS / (5e-3 + _ROWS * 1e-3)
_WORK_S, _SHORT_WORK_S = 10.0, 3.0
_BACKLOG, _SHORT_BACKLOG = 200_000, 6_000  # about ten seconds' work
_CHUNK = 50_000
# Ids are remembered, 20,000 to 40,000 in each of four partitions: only then is memory as full as it gets. Of few loads
# a table that grows by half, 5 MiB at once, would pass for a slope, or hide one.
_FULL, _LOAD, _LOADS = 160_000, 40_000, 12


# An idle selection role, the ids of a million queries, and as many states as are configured, at 2 KiB each.
_WITH_STATES_MIB = 76 + 30 + STATES * 2 / 2**10
_PER_MILLION = Kind("MiB", Better.LOWER, 0.0, 30.0)
FIGURES = Figures(
    *(FAULTS(f"{part}_{sizes[-1]}_lost", must=exactly(0, IN_FULL)) for part, sizes in SIZES.items()),
    MIB(f"contexts_{CONTEXTS[-1]}_selection_mib", must=at_most(_WITH_STATES_MIB, IN_FULL)),
    FAULTS(f"contexts_{CONTEXTS[-1]}_states", must=at_most(STATES, IN_FULL)),
    FAULTS("contexts_*_states"),
    Kind("", Better.LOWER, 0.0, 0.05)("workers_cpu_off_mean", must=at_most(0.1, IN_FULL)),
    # Of models that sleep, so it cannot fail for want of a core: it says that nothing but them limits the path.
    GAIN("workers_rate_gain"),
    FAULTS("impossible_rates", must=NONE),
    GAIN("workers_rate_gain_ideal"),
    Kind("B")("contexts_selection_bytes_per_state"),
    *(RATIO(f"{part}_cpu_ratio") for part in SIZES),
    *(_PER_MILLION(f"memory_{role}_mib_per_million", must=at_most(30.0, IN_FULL)) for role in _LOOP),
    _PER_MILLION("memory_*_mib_per_million"),
    FAULTS("memory_lost"),
    MIB("memory_*_mib"),
    *(declared(f"{part}_*_") for part in SIZES),
)


async def run(stage: Stage) -> Result:
    """Measure each part at each of its sizes."""
    named = stage.only or PARTS
    rows: list[dict[str, Any]] = []
    series: dict[str, list[dict[str, Any]]] = {"sizes": rows}
    for part, sizes in (_FEW if stage.short else SIZES).items():
        for size in sizes if part in named else ():
            _say(f"{size:,} {part}")
            measured = await _PARTS[part](stage, size)
            rows.append({"part": part, "size": size, **measured.figures(), "states": measured.states})
            if part == "contexts":
                series["coming"] = _held(measured)
    figures = {f"{row['part']}_{row['size']}_{key}": row[key] for row in rows for key in row if key not in _ABOUT}
    if "memory" in named:
        _say("memory")
        filled = await _memory(stage)
        series["memory"] = _held(filled)
        figures |= {**growth(series["memory"]), "memory_lost": filled.figures()["lost"]}
    return Result(
        NAME,
        figures={**figures, **ratios(rows), "impossible_rates": impossible_rates(rows, usable_cores())},
        parameters={"form": stage.form, "states": STATES, "seed": stage.seed},
        series=series,
        notes=(
            "Models of `models`, `applications` and `contexts` run inline, since 64 workers would be 64 processes.",
        ),
    )


_ABOUT = frozenset({"part", "size"})


def _held(size: Size) -> list[dict[str, float]]:
    """Return the memory of each role after each backlog."""
    return [
        {"queries": chunk.queries, **{f"{role}_mib": mib for role, mib in by_role(chunk.mib).items()}}
        for chunk in size.chunks
    ]


def impossible_rates(rows: Sequence[Mapping[str, Any]], cores: int) -> int:
    """Return how many rows have a rate that costs more CPU time than so many cores have: such a rate is not true."""
    return sum(row["used_cores"] > cores for row in rows)


def ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return for each part the CPU time of a query at the largest size over that at the smallest.

    For workers it also has the largest deviation from their mean, and how the rate grows. For contexts it has the
    memory of a state that selection keeps.
    """
    found: dict[str, float] = {}
    for part in dict.fromkeys(row["part"] for row in rows):
        mine = [row for row in rows if row["part"] == part]
        cpu_us = [row["cpu_us_per_query"] for row in mine]
        found[f"{part}_cpu_ratio"] = cpu_us[-1] / cpu_us[0]
        if part == "workers":
            mean = sum(cpu_us) / len(cpu_us)
            found["workers_cpu_off_mean"] = max(abs(value - mean) for value in cpu_us) / mean
            found["workers_rate_gain"] = mine[-1]["drained_per_s"] / mine[0]["drained_per_s"]
            found["workers_rate_gain_ideal"] = mine[-1]["size"] / mine[0]["size"]
        if part == "contexts" and (more := mine[-1]["states"] - mine[0]["states"]) > 0:
            more_mib = mine[-1]["selection_mib"] - mine[0]["selection_mib"]
            found["contexts_selection_bytes_per_state"] = more_mib * 2**20 / more
    return found


def growth(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return memory at the end, and how much came on top for each million queries after the first backlog."""
    later = sum(row["queries"] for row in rows[1:])
    found: dict[str, float] = {}
    for key in (key for key in rows[-1] if key.endswith("_mib")):
        found[f"memory_{key}"] = rows[-1][key]
        found[f"memory_{key}_per_million"] = (rows[-1][key] - rows[0][key]) / max(1, later) * 1e6
    return found


async def _workers(stage: Stage, size: int) -> Size:
    """Every worker has a model of its own, since a model's topic has four partitions; Exp3 asks them alike."""
    sample = np.ones((2, 1), np.float32)
    packages = _packages(stage.folder / f"workers-{size}", size, "load.models.functions:slow", sample)
    deployment = Deployment(
        topics.new_prefix(NAME),
        (Application(application(0), tuple(packages), "exp3", max_slo_ms=SLO_MS),),
        packages,
        partitions=size,
        roles=("selection", "worker"),
        settings={"worker": {"controller": "fixed", "parameters": {"rows": float(_ROWS)}}},
    )
    seconds = _SHORT_WORK_S if stage.short else _WORK_S
    workload = Many([Tensor.of(sample[0])], seed=stage.seed)
    return await measure(stage, deployment, workload, (int(size * _WORKER_PER_S * seconds),))


async def _models(stage: Stage, size: int) -> Size:
    return await _inline(stage, f"models-{size}", models=size)


async def _applications(stage: Stage, size: int) -> Size:
    return await _inline(stage, f"applications-{size}", applications=size)


async def _contexts(stage: Stage, size: int) -> Size:
    """Every context is asked at least once."""
    return await _inline(stage, f"contexts-{size}", contexts=size, backlogs=_cut(max(size, _backlog(stage))))


async def _memory(stage: Stage) -> Size:
    chunk = _SHORT_BACKLOG if stage.short else _LOAD
    full = (chunk,) if stage.short else (_FULL,)
    return await _inline(stage, "memory", backlogs=(*full, *(chunk for _ in range(_LOADS))))


async def _inline(
    stage: Stage,
    folder: str,
    *,
    models: int = 2,
    applications: int = 1,
    contexts: int = 0,
    backlogs: Sequence[int] = (),
) -> Size:
    rows = np.tile(np.arange(10, dtype=np.uint8)[:, None], (1, 5))
    packages = _packages(stage.folder / folder, models, "load.models.functions:first", rows)
    deployment = Deployment(
        topics.new_prefix(NAME),
        tuple(
            Application(application(number), tuple(packages), "exp3", per_context=contexts > 0, max_slo_ms=SLO_MS)
            for number in range(applications)
        ),
        packages,
        roles=_LOOP,
        settings={"selection": {"inline": list(packages), "states": STATES}, "log_level": "warning"},
    )
    workload = Many([Tensor.of(row) for row in rows], rows[:, 0].tolist(), applications, contexts, stage.seed)
    return await measure(stage, deployment, workload, backlogs or _cut(_backlog(stage)))


def _packages(folder: Path, count: int, function: str, sample: NDArray[np.generic]) -> dict[str, Path]:
    packages = {f"m{number}": folder / f"m{number}" for number in range(count)}
    for name, path in packages.items():
        package_function(function, path, name, "1", sample[:2])
    return packages


def _backlog(stage: Stage) -> int:
    return _SHORT_BACKLOG if stage.short else _BACKLOG


def _cut(count: int) -> tuple[int, ...]:
    """Cut a backlog into pieces that the harness can hold."""
    whole, rest = divmod(count, _CHUNK)
    return (*(_CHUNK for _ in range(whole)), *((rest,) if rest else ()))


_PARTS: Mapping[str, Callable[[Stage, int], Coroutine[None, None, Size]]] = {
    "workers": _workers,
    "models": _models,
    "applications": _applications,
    "contexts": _contexts,
}
