"""What `parm` does without Kafka, in as many processes as there are cores here: training, and lanes in virtual time."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from load.harness.data import mnist
from load.research.parm.parm_forms import (
    ASKED,
    CALL_S,
    EVERY_S,
    FOR_S,
    FULL,
    LANES,
    SLO_MS,
    USED,
    VIRTUAL,
    Form,
    Lane,
    rate,
    seed_of,
)
from load.research.parm.parm_models import FAST, IMAGES, scaled, scores_of
from load.research.parm.parm_virtual import NET, PARITY, Played, World, play
from workers.packages.loading import load_package

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor
    from pathlib import Path


class _Run(NamedTuple):
    """One run of a lane in virtual time.

    Attributes:
        name: of its figures.
        lane: that is asked.
        rate: queries a second.
        queries: how many.
        seed: of all draws.
        is_calm: nothing stands still.
    """

    name: str
    lane: Lane
    rate: float
    queries: int
    seed: int
    is_calm: bool = False


def virtual(folder: Path, form: Form, seed: int, pool: Executor) -> dict[str, float]:
    """Play the lanes in virtual time, with the models in a folder; returns their figures."""
    runs = [*_runs(form, seed)]
    found: dict[str, Played] = {}
    for run, played in zip(runs, pool.map(partial(_played, folder), runs), strict=True):
        found.setdefault(run.name, Played()).add(played)
    figures: dict[str, float] = {}
    for name, lane in {run.name: run.lane for run in runs}.items():
        whole = name.removeprefix("virtual_") in VIRTUAL
        figures |= _of(name, lane, found[name]) if whole else _quantiles(name, found[name])
    return figures


def _runs(form: Form, seed: int) -> Iterator[_Run]:
    for name, lane in VIRTUAL.items():
        for number in range(form.runs if not lane.k or lane.k in form.epochs else 0):
            yield _Run(f"virtual_{name}", lane, rate(FULL, USED), form.queries, seed_of(seed, number))
    for used in ASKED if form.swept else ():
        for name in LANES:
            run = _Run("", VIRTUAL[name], rate(FULL, used), form.swept, seed)
            yield run._replace(name=f"virtual_at_{100 * used:.0f}_{name}")
            yield run._replace(name=f"virtual_calm_{100 * used:.0f}_{name}", is_calm=True)


def _played(folder: Path, run: _Run) -> Played:
    world = _world(folder, run.lane.k)
    return play(replace(world, every_s=0.0) if run.is_calm else world, run.lane, run.rate, run.queries, run.seed)


@lru_cache
def _world(folder: Path, k: int) -> World:
    pixels, labels = mnist(IMAGES, "t10k", 10_000)
    images = scaled(pixels)
    own = scores_of(load_package(folder / FAST / NET).runtime, images)
    world = World(images, labels, own, {}, CALL_S, EVERY_S, FOR_S, SLO_MS)
    if not k:
        return world
    parity = load_package(folder / FAST / f"{PARITY}-{k}")
    right = tuple(parity.manifest.options["parity"]["right"])
    return replace(world, parity={k: partial(scores_of, parity.runtime)}, right={k: right})


def _quantiles(name: str, found: Played) -> dict[str, float]:
    return dict(
        zip((f"{name}_p50_ms", f"{name}_p99_ms", f"{name}_p999_ms"), found.quantiles(0.5, 0.99, 0.999), strict=True)
    )


def _of(name: str, lane: Lane, found: Played) -> dict[str, float]:
    (own, own_right), (decoded_, right) = found.own, found.decoded
    figures = {**_quantiles(name, found), f"{name}_defaults": found.defaults}
    if lane.k or lane.hedge:
        figures[f"{name}_more_work"] = found.more_work
    if lane.k:
        figures[f"{name}_decoded_share"] = decoded_ / len(found.latencies_ms)
        figures[f"{name}_decoded_accuracy"] = right / max(1, decoded_)
        figures[f"{name}_decoded_confidence"] = found.sure / max(1, decoded_)
        figures[f"{name}_accuracy_lost_points"] = 100 * (own_right / own - right / max(1, decoded_))
    return figures
