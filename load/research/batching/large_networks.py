"""Large networks in a worker and in the bare torch loop: what each does a second, by size and within an objective.

Ways and sizes are asked in turn, round by round, so that a busy moment meets all of them.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from load.harness.aggregates import held_out
from load.research.batching.busy_worker import BusyWorker, Stretch, now_us, started
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

    from load.harness.system import Stage
    from workers.executors.thread import Executor

    _Loop: TypeAlias = Callable[[NDArray[np.float32]], Any]

_NETWORKS = "load.research.models.large_networks"
SHAPES: Mapping[str, tuple[int, ...]] = {"wide": (1024,), "image": (3, 224, 224)}
SIZES = (1, 8, 32)  # those that are figures, whatever the machine; the series have all
OBJECTIVES_MS = (20, 50)
_LARGEST = 512
_SCALED_BY = 8
_STOCK = 64  # rows that differ
_SECONDS, _SHORT_SECONDS = 0.8, 0.5
_ROUNDS, _SHORT_ROUNDS = 5, 2
_SETTLED = 4  # stretches for a controller to one for a fixed size; as many go before the first that counts


@dataclass(frozen=True, slots=True)
class Subject:
    """A network, its rows, and the executors that run it by what is special about them."""

    name: str
    bare: _Loop
    rows: NDArray[np.float32]
    executors: Mapping[str, Executor]
    sizes: Sequence[int]
    scale: int


@dataclass(slots=True)
class Found:
    """Rates (1/s) of a network by way and size, or by objective, round by round."""

    rates: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    good: dict[tuple[int, int], list[float]] = field(default_factory=dict)  # by objective and fixed size; 0 = aimd
    rows: dict[int, float] = field(default_factory=dict)  # of aimd's batches, by objective


def with_torch(name: str) -> Callable[..., Any]:
    """Return a function of the networks' module, found as workers do: who lists scenarios needs no torch."""
    return resolve(f"{_NETWORKS}:{name}")


async def subject_of(stage: Stage, name: str, *, is_gpu: bool) -> Subject:
    """Package a network, load it in each way, and find the sizes that are worth measuring."""
    network = with_torch("seeded")(name, stage.seed)
    stock = np.random.default_rng(stage.seed).standard_normal((_STOCK, *SHAPES[name]), np.float32)
    bare = with_torch("loop")(network)
    scale = max(1, math.ceil(_bare_ms(bare, stock[:_SCALED_BY]) / OBJECTIVES_MS[0]))
    sizes, rows = _sizes(bare, stock, OBJECTIVES_MS[-1] * scale)
    plain = await asyncio.to_thread(_package, network, stage.folder / name, name, stock, compiled=False)
    executors = {"worker": await started(plain, WorkerSettings())}
    if is_gpu:
        allowed = WorkerSettings(allowed_batch_sizes={name: tuple(sizes)})
        compiled = await asyncio.to_thread(
            _package, network, stage.folder / f"{name}-compiled", name, stock, compiled=True
        )
        executors |= {"graphs": await started(plain, allowed), "compiled": await started(compiled, allowed)}
    return Subject(name, bare, rows, executors, sizes, scale)


def _sizes(bare: _Loop, stock: NDArray[np.float32], longest_ms: float) -> tuple[list[int], NDArray[np.float32]]:
    """Return powers of two up to the last one that the bare loop answers in time, and as many rows as that."""
    sizes, rows = [1], stock[:1]
    while sizes[-1] < _LARGEST:
        more = np.resize(stock, (2 * sizes[-1], *stock.shape[1:]))
        if len(more) > SIZES[-1] and _bare_ms(bare, more) > longest_ms:
            break
        sizes.append(len(more))
        rows = more
    return sizes, rows


def _bare_ms(bare: _Loop, rows: NDArray[np.float32]) -> float:
    """Return how long the bare loop takes for a batch, the shortest of three after a first one (ms)."""
    taken = []
    for _ in range(4):
        started_us = now_us()
        bare(rows)
        taken.append((now_us() - started_us) / 1e3)
    return min(taken[1:])


def _package(network: Any, folder: Path, name: str, stock: NDArray[np.float32], *, compiled: bool) -> Model:
    manifest = package_torch(
        network, folder, name, "1", stock[:2], architecture=f"{_NETWORKS}:{name}", compile=compiled
    )
    return Model(name, "1", "torch", str(folder), digest(folder), manifest.output, "float32", SHAPES[name])


async def measured(stage: Stage, subject: Subject) -> Found:
    """Ask every way and size in turn, round by round; each controller goes on where it was."""
    found, stock = Found(), [Tensor.of(row) for row in subject.rows[:_STOCK]]
    default, seconds = WorkerSettings(), seconds_of(stage)
    adaptive = {
        objective: BusyWorker(
            subject.executors["worker"],
            stock,
            create_controller(default.controller, default.parameters),
            objective * subject.scale * 1000,
        )
        for objective in OBJECTIVES_MS
    }
    for worker in adaptive.values():
        await worker.work(_SETTLED * seconds)
    for _ in range(rounds_of(stage)):
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


def _note(found: Found, subject: Subject, size: int, stretch: Stretch) -> None:
    for objective in OBJECTIVES_MS:
        good = stretch.per_s(objective * subject.scale * 1e3)
        found.good.setdefault((objective, size), []).append(good)


def _bare_stretch(subject: Subject, size: int, seconds: float) -> Stretch:
    """Run the bare loop for so long; its rows are one array already, and its answers go nowhere."""
    batches: list[tuple[int, int]] = []
    started_us = now_us()
    while not batches or now_us() - started_us < seconds * 1e6:
        began_us = now_us()
        subject.bare(subject.rows[:size])
        batches.append((size, now_us() - began_us))
    return Stretch(batches, (now_us() - started_us) / 1e6)


def rates_of(name: str, found: Found) -> dict[str, float]:
    """Return the rates of the sizes that are figures, and what the worker has of the bare loop's."""
    middle = {key: statistics.median(rates) for key, rates in found.rates.items()}
    figures = {f"{name}_{size}_{way}_per_s": rate for (way, size), rate in middle.items() if size in SIZES}
    shares = {f"{name}_{size}_share_of_bare": middle["worker", size] / middle["bare", size] for size in SIZES}
    return {**figures, **shares}


def goodput_of(name: str, found: Found) -> dict[str, float]:
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


async def overlap_of(subject: Subject, network: Any) -> float:
    """Return how much of the shorter of copy and compute is hidden, at the largest size: 0 = none, 1 = all."""
    rows = subject.rows[: subject.sizes[-1]]
    copy_s, compute_s = await asyncio.to_thread(with_torch("alone_s"), network, rows)
    stock = [Tensor.of(row) for row in rows]
    fixed = create_controller("fixed", {"rows": float(len(rows))})
    stretch = await BusyWorker(subject.executors["worker"], stock, fixed).work(1.0)
    took_s = min(took_us for _, took_us in stretch.batches) / 1e6
    return hidden(copy_s, compute_s, took_s)


def hidden(copy_s: float, compute_s: float, took_s: float) -> float:
    """Return the share of the shorter of two times that a whole of both does not show, from 0 to 1."""
    return min(1.0, max(0.0, (copy_s + compute_s - took_s) / min(copy_s, compute_s)))


def seconds_of(stage: Stage) -> float:
    """Return the length of a stretch at a fixed size."""
    return _SHORT_SECONDS if stage.short else _SECONDS


def rounds_of(stage: Stage) -> int:
    """Return how many rounds count."""
    return _SHORT_ROUNDS if stage.short else _ROUNDS
