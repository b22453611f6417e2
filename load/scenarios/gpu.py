"""`gpu`: large networks through a worker's queue and executor, beside the bare torch loop. Kafka is not used.

`wide` has 25 million weights, `image` takes ImageNet's size (`load.models.large_networks`). Their weights are random.

bare    the loop that one writes by hand, batch after batch of the same size
worker  the same size through queue, checks, thread and runtime
aimd    the worker finds its size under 20 and 50 ms, and is compared with the fixed sizes that keep these

On a GPU the worker runs twice more: with CUDA graphs, as allowed sizes have them, and compiled besides. `overlap` is
then the share of the shorter of copy and compute that the other one hides. Without a GPU this is the form for a CPU,
and the result's parameter `device` says so. There an objective is multiplied by the whole number of 20 ms in which
eight rows of the bare loop fit.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from load.figures import IN_FULL, PER_S, RATIO_RATE, SHARE_OF_BEST, SHOWN, Better, Figures, Kind, at_least
from load.harness.aggregates import held_out
from load.results.pages import section
from load.results.results import Result
from load.results.tables import Table, number
from load.scenarios.parts.busy_worker import BusyWorker, Stretch, now_us, started
from policies.batching import create_controller
from schemas.records import Model, Tensor
from workers.entry_point import resolve
from workers.manifest import digest
from workers.packages.packaging import package_torch
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.environment import Environment
    from load.harness.system import Stage
    from workers.executors.thread import Executor

NAME = "gpu"
TITLE = "Large networks"
INTRODUCTION = """\
Two networks with random weights run in a worker, without Kafka, and in the loop that one writes by hand. Shares are of
that loop, or of the best fixed batch within an objective. Written by `skysail load run gpu`.
"""
ON_GPU, ON_CPU = "gpu", "CPU form: no GPU here"
_IF_GPU = ("device", ON_GPU)
_SHAPES: Mapping[str, tuple[int, ...]] = {"wide": (1024,), "image": (3, 224, 224)}
_NETWORKS = "load.models.large_networks"
SIZES = (1, 8, 32)  # those that are figures, whatever the machine; the series have all
_LARGEST = 512
_LEAST_BATCH = 8  # from this size on the worker is held to the bare loop: below it, handing over is not little
OBJECTIVES_MS = (20, 50)
_SCALED_BY = 8
_STOCK = 64  # rows that differ
_SECONDS, _SHORT_SECONDS = 0.8, 0.5
_ROUNDS, _SHORT_ROUNDS = 5, 2
_SETTLED = 4  # stretches for a controller to one for a fixed size; as many go before the first that counts

FIGURES = Figures(
    PER_S(*(f"*_{size}_{way}_per_s" for size in SIZES for way in ("bare", "worker", "graphs", "compiled"))),
    RATIO_RATE(*(f"*_{size}_share_of_bare" for size in SIZES)),
    # On one stream, from memory that is not pinned, the loop copies and computes one after the other.
    RATIO_RATE("least_share_of_bare", must=(at_least(0.9), at_least(1.0, _IF_GPU))),
    PER_S("*_best_fixed_good_per_s", "*_aimd_good_per_s"),
    SHOWN("*_best_fixed_rows", "*_aimd_rows", "*_objective_scale", "*_weights"),
    SHARE_OF_BEST("*_aimd_share_of_best"),
    SHARE_OF_BEST("aimd_least_share", must=at_least(0.95, IN_FULL)),
    Kind("", Better.HIGHER, 0.0, 0.1)("*_overlap"),
    Kind("", Better.HIGHER, 0.0, 0.1)("least_overlap", must=at_least(0.5, _IF_GPU)),
)


@dataclass(frozen=True, slots=True)
class _Subject:
    """A network, its rows, and the executors that run it by what is special about them."""

    name: str
    bare: Callable[[NDArray[np.float32]], Any]
    rows: NDArray[np.float32]
    executors: Mapping[str, Executor]
    sizes: Sequence[int]
    scale: int


@dataclass(slots=True)
class _Found:
    """Rates (1/s) of a network by way and size, or by objective, round by round."""

    rates: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    good: dict[tuple[int, int], list[float]] = field(default_factory=dict)  # by objective and fixed size; 0 = aimd
    rows: dict[int, float] = field(default_factory=dict)  # of aimd's batches, by objective


async def run(stage: Stage) -> Result:
    """Measure both networks.

    Raises:
        PackageError: torch is not installed.
    """
    gpu = str(resolve(f"{_NETWORKS}:device")())
    figures: dict[str, float] = {}
    series: list[dict[str, Any]] = []
    for name in _SHAPES:
        subject = await _subject(stage, name, is_gpu=bool(gpu))
        found = await _measured(stage, subject)
        figures |= {f"{name}_objective_scale": subject.scale, **_rates(name, found), **_goodput(name, found)}
        network = _network(name, stage.seed)
        figures[f"{name}_weights"] = resolve(f"{_NETWORKS}:weights")(network)
        if gpu:
            figures[f"{name}_overlap"] = await _overlap(subject, network)
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
            "rounds": _rounds(stage),
            "seconds": _seconds(stage),
        },
        series={"sizes": series},
        notes=() if gpu else (f"{ON_CPU}: no copies, no graphs, nothing compiled; objectives as scaled.",),
    )


def _network(name: str, seed: int) -> Any:
    return resolve(f"{_NETWORKS}:seeded")(name, seed)


async def _subject(stage: Stage, name: str, *, is_gpu: bool) -> _Subject:
    """Package a network, load it in each way, and find the sizes that are worth measuring."""
    network = _network(name, stage.seed)
    random = np.random.default_rng(stage.seed)
    stock = random.standard_normal((_STOCK, *_SHAPES[name]), np.float32)
    bare = resolve(f"{_NETWORKS}:loop")(network)
    rows = np.resize(stock, (_LARGEST if is_gpu else _STOCK, *_SHAPES[name]))
    taken_ms = {_SCALED_BY: _bare_ms(bare, rows, _SCALED_BY)}
    scale = max(1, math.ceil(taken_ms[_SCALED_BY] / OBJECTIVES_MS[0]))
    sizes = [1 << power for power in range(int(math.log2(len(rows))) + 1)]
    longest_ms = OBJECTIVES_MS[-1] * scale
    sizes = [size for size in sizes if size <= SIZES[-1] or _bare_ms(bare, rows, size) <= longest_ms]
    plain = await asyncio.to_thread(_package, network, stage.folder / name, name, stock, compiled=False)
    executors = {"worker": await started(plain, WorkerSettings())}
    if is_gpu:
        allowed = WorkerSettings(allowed_batch_sizes={name: tuple(sizes)})
        compiled = await asyncio.to_thread(
            _package, network, stage.folder / f"{name}-compiled", name, stock, compiled=True
        )
        executors |= {"graphs": await started(plain, allowed), "compiled": await started(compiled, allowed)}
    return _Subject(name, bare, rows, executors, sizes, scale)


def _bare_ms(bare: Callable[[NDArray[np.float32]], Any], rows: NDArray[np.float32], size: int) -> float:
    """Return how long the bare loop takes for a batch, the shortest of three after a first one (ms)."""
    taken = []
    for _ in range(4):
        started_us = now_us()
        bare(rows[:size])
        taken.append((now_us() - started_us) / 1e3)
    return min(taken[1:])


def _package(network: Any, folder: Path, name: str, stock: NDArray[np.float32], *, compiled: bool) -> Model:
    manifest = package_torch(
        network, folder, name, "1", stock[:2], architecture=f"{_NETWORKS}:{name}", compile=compiled
    )
    return Model(name, "1", "torch", str(folder), digest(folder), manifest.output, "float32", _SHAPES[name])


async def _measured(stage: Stage, subject: _Subject) -> _Found:
    """Ask every way and size in turn, round by round; each controller goes on where it was."""
    found, stock = _Found(), [Tensor.of(row) for row in subject.rows[:_STOCK]]
    default, seconds = WorkerSettings(), _seconds(stage)
    plain = subject.executors["worker"]
    adaptive = {
        objective: BusyWorker(
            plain,
            stock,
            create_controller(default.controller, default.parameters),
            objective * subject.scale * 1000,
        )
        for objective in OBJECTIVES_MS
    }
    for worker in adaptive.values():
        await worker.work(_SETTLED * seconds)
    for _ in range(_rounds(stage)):
        for size in subject.sizes:
            bare = await asyncio.to_thread(_bare_stretch, subject, size, seconds)
            found.rates.setdefault(("bare", size), []).append(bare.per_s())
            for way, executor in subject.executors.items():
                fixed = create_controller("fixed", {"rows": float(size)})
                stretch = await BusyWorker(executor, stock, fixed).work(seconds)
                found.rates.setdefault((way, size), []).append(stretch.per_s())
                if way == "worker":
                    _note(found, subject, size, stretch)
        for objective, worker in adaptive.items():
            stretch = await worker.work(_SETTLED * seconds)
            found.good.setdefault((objective, 0), []).append(stretch.per_s(objective * subject.scale * 1e3))
            found.rows[objective] = statistics.median(rows for rows, _ in stretch.batches)
    return found


def _note(found: _Found, subject: _Subject, size: int, stretch: Stretch) -> None:
    for objective in OBJECTIVES_MS:
        good = stretch.per_s(objective * subject.scale * 1e3)
        found.good.setdefault((objective, size), []).append(good)


def _bare_stretch(subject: _Subject, size: int, seconds: float) -> Stretch:
    """Run the bare loop for so long; its rows are one array already, and its answers go nowhere."""
    batches: list[tuple[int, int]] = []
    started_us = now_us()
    while not batches or now_us() - started_us < seconds * 1e6:
        began_us = now_us()
        subject.bare(subject.rows[:size])
        batches.append((size, now_us() - began_us))
    return Stretch(batches, (now_us() - started_us) / 1e6)


def _rates(name: str, found: _Found) -> dict[str, float]:
    """Return the rates of the sizes that are figures, and what the worker has of the bare loop's."""
    middle = {key: statistics.median(rates) for key, rates in found.rates.items()}
    figures = {f"{name}_{size}_{way}_per_s": rate for (way, size), rate in middle.items() if size in SIZES}
    shares = {f"{name}_{size}_share_of_bare": middle["worker", size] / middle["bare", size] for size in SIZES}
    return {**figures, **shares}


def _goodput(name: str, found: _Found) -> dict[str, float]:
    """Return what the controller does within each objective, beside the fixed size that was best in other rounds."""
    figures: dict[str, float] = {}
    for objective in OBJECTIVES_MS:
        fixed = {size: rates for (of, size), rates in found.good.items() if of == objective and size}
        adaptive = found.good[objective, 0]
        best = held_out(list(fixed.values()), len(adaptive))
        key = f"{name}_{objective}ms"
        figures |= {
            f"{key}_best_fixed_good_per_s": statistics.fmean(best),
            f"{key}_best_fixed_rows": float(max(fixed, key=lambda size: sum(fixed[size]))),
            f"{key}_aimd_good_per_s": statistics.fmean(adaptive),
            f"{key}_aimd_rows": found.rows[objective],
            f"{key}_aimd_share_of_best": sum(adaptive) / max(1.0, sum(best)),
        }
    return figures


async def _overlap(subject: _Subject, network: Any) -> float:
    """Return how much of the shorter of copy and compute is hidden, at the largest size: 0 = none, 1 = all."""
    rows = subject.rows[: subject.sizes[-1]]
    copy_s, compute_s = await asyncio.to_thread(resolve(f"{_NETWORKS}:alone_s"), network, rows)
    stock = [Tensor.of(row) for row in rows]
    fixed = create_controller("fixed", {"rows": float(len(rows))})
    stretch = await BusyWorker(subject.executors["worker"], stock, fixed).work(1.0)
    took_s = min(took_us for _, took_us in stretch.batches) / 1e6
    return hidden(copy_s, compute_s, took_s)


def hidden(copy_s: float, compute_s: float, took_s: float) -> float:
    """Return the share of the shorter of two times that a whole of both does not show, from 0 to 1."""
    return min(1.0, max(0.0, (copy_s + compute_s - took_s) / min(copy_s, compute_s)))


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
        for name in _SHAPES
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


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    return section(result, environment, TITLE, INTRODUCTION, tables(result), FIGURES).replace("## ", "# ", 1)


def _seconds(stage: Stage) -> float:
    return _SHORT_SECONDS if stage.short else _SECONDS


def _rounds(stage: Stage) -> int:
    return _SHORT_ROUNDS if stage.short else _ROUNDS
