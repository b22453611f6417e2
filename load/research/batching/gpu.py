"""`gpu`: large networks through a worker's queue and executor, beside the bare torch loop. Kafka is not used.

`wide` has 25 million weights, `image` takes ImageNet's size
(`load.research.models.large_networks`). Their weights are random.

bare    the loop that one writes by hand, batch after batch of the same size
worker  the same size through queue, checks, thread and runtime
aimd    the worker finds its size under 20 and 50 ms, and is compared with the fixed sizes that keep these

On a GPU the worker runs twice more: with CUDA graphs, as allowed sizes have them, and compiled besides. `overlap` is
then the share of the shorter of copy and compute that the other one hides. Without a GPU this is the form for a CPU,
and the result's parameter `device` says so. There an objective is multiplied by the whole number of 20 ms in which
eight rows of the bare loop fit.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from load.figures import IN_FULL, PER_S, RATIO_RATE, SHARE_OF_BEST, SHOWN, Better, Figures, Kind, at_least
from load.research.batching.large_networks import (
    OBJECTIVES_MS,
    SHAPES,
    SIZES,
    goodput_of,
    measured,
    overlap_of,
    rates_of,
    rounds_of,
    seconds_of,
    subject_of,
    with_torch,
)
from load.results.results import Result
from load.results.tables import Table, number
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.system import Stage

NAME = "gpu"
ON_GPU, ON_CPU = "gpu", "CPU form: no GPU here"
_IF_GPU = ("device", ON_GPU)
_LEAST_BATCH = 8  # from this size on the worker is held to the bare loop: below it, handing over is not little

FIGURES = Figures(
    PER_S(*(f"*_{size}_{way}_per_s" for size in SIZES for way in ("bare", "worker", "graphs", "compiled"))),
    RATIO_RATE(*(f"*_{size}_share_of_bare" for size in SIZES)),
    # On one stream, from memory that is not pinned, the loop copies and computes one after the other.
    RATIO_RATE("least_share_of_bare", must=(at_least(0.9, IN_FULL), at_least(1.0, _IF_GPU))),
    PER_S("*_best_fixed_good_per_s", "*_aimd_good_per_s"),
    SHOWN("*_best_fixed_rows", "*_aimd_rows", "*_objective_scale", "*_weights"),
    SHARE_OF_BEST("*_aimd_share_of_best"),
    SHARE_OF_BEST("aimd_least_share", must=at_least(0.95, IN_FULL)),
    Kind("", Better.HIGHER, 0.0, 0.1)("*_overlap"),
    Kind("", Better.HIGHER, 0.0, 0.1)("least_overlap", must=at_least(0.5, _IF_GPU)),
)


async def run(stage: Stage) -> Result:
    """Measure both networks.

    Raises:
        PackageError: torch is not installed.
    """
    gpu = str(with_torch("device")())
    figures: dict[str, float] = {}
    series: list[dict[str, Any]] = []
    for name in SHAPES:
        subject = await subject_of(stage, name, is_gpu=bool(gpu))
        found = await measured(stage, subject)
        figures |= {f"{name}_objective_scale": subject.scale, **rates_of(name, found), **goodput_of(name, found)}
        network = with_torch("seeded")(name, stage.seed)
        figures[f"{name}_weights"] = with_torch("weights")(network)
        if gpu:
            figures[f"{name}_overlap"] = await overlap_of(subject, network)
        series += [
            {"model": name, "way": way, "rows": size, "per_s": statistics.median(rates)}
            for (way, size), rates in found.rates.items()
        ]
        for executor in subject.executors.values():
            await executor.stop()
    return Result(
        NAME,
        figures={**figures, **least(figures, series)},
        parameters={
            "form": stage.form,
            "device": ON_GPU if gpu else ON_CPU,
            "name": gpu or "none",
            "seed": stage.seed,
            "rounds": rounds_of(stage),
            "seconds": seconds_of(stage),
        },
        series={"sizes": series},
        notes=() if gpu else (f"{ON_CPU}: no copies, no graphs, nothing compiled; objectives as scaled.",),
    )


def least(figures: Mapping[str, float], series: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the worst of each kind: of the bare loop from eight rows on, of the best fixed batch, of the overlap."""
    rates = {(row["model"], row["way"], row["rows"]): row["per_s"] for row in series}
    beside = [
        rate / rates[model, "bare", rows]
        for (model, way, rows), rate in rates.items()
        if way == "worker" and rows >= _LEAST_BATCH
    ]
    found = {
        "least_share_of_bare": min(beside),
        "aimd_least_share": min(value for name, value in figures.items() if name.endswith("_aimd_share_of_best")),
    }
    overlaps = [value for name, value in figures.items() if name.endswith("_overlap")]
    return {**found, **({"least_overlap": min(overlaps)} if overlaps else {})}


def tables(result: Result) -> list[Table]:
    """Return the rates by size, and the controller beside the best fixed batch."""
    rows: dict[tuple[str, int], dict[str, float]] = {}
    for row in result.series["sizes"]:
        rows.setdefault((row["model"], row["rows"]), {})[row["way"]] = row["per_s"]
    ways = [way for way in ("bare", "worker", "graphs", "compiled") if any(way in each for each in rows.values())]
    found = result.figures
    goodput = tuple(
        (
            name,
            f"{objective * found[f'{name}_objective_scale']:g} ms",
            *(number(found[f"{name}_{objective}ms_{figure}"]) for figure in _GOODPUT),
            f"{found[f'{name}_{objective}ms_aimd_share_of_best']:.2f}",
        )
        for name in SHAPES
        for objective in OBJECTIVES_MS
    )
    return [
        Table(
            "Rows a second by batch size",
            ("network", "rows", *ways, "worker of bare"),
            tuple(
                (model, str(size), *(number(each.get(way)) for way in ways), f"{each['worker'] / each['bare']:.2f}")
                for (model, size), each in rows.items()
            ),
        ),
        Table("Rows a second within an objective", ("network", "objective", *_GOODPUT.values(), "share"), goodput),
    ]


_GOODPUT = {
    "best_fixed_rows": "best fixed batch, rows",
    "best_fixed_good_per_s": "its goodput",
    "aimd_rows": "AIMD's batch, rows",
    "aimd_good_per_s": "its goodput",
}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "large networks in a worker beside the bare torch loop, on a GPU where there is one: rates, aimd, overlap",
    tables=tables,
    page="research/batching/gpu.md.j2",
    short=True,
    offline=True,
)
