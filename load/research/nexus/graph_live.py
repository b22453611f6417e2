"""The part of `graph` on Kafka: selection and twelve workers of this machine, whose models sleep as Clockwork's take.

    split   the time is split over the stages by dynamic programming, from what batches take (`policies.stage_split`)
    even    each stage has the same part of it
    own     either, at the tightest objective, with batches that the workers size themselves, as by default

Pictures are made up, and things really found in them and cut out; only the time of a batch is Clockwork's for a V100,
twelve times as long. So it is the models that are busy, and not the machine. Both lanes have the same number of
workers, and batches of at most as many rows as their split is made for. The sender does not wait for answers, and a
picture's time runs from when it was meant to be sent. A lane's figure is the highest rate at which 99 of 100 pictures
are answered whole and in time, in steps of a tenth, beginning where the same lane breaks down in virtual time.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np

from load.figures import FAULTS, IN_FULL, NONE, PER_S, SHOWN, SHOWN_MS, Better, Figures, Kind, at_least
from load.harness.driving import deployed
from load.harness.openloop import Asked
from load.harness.progress import say
from load.harness.system import Deployment
from load.harness.topics import new_prefix
from load.harness.workload import query_id
from load.research.models import traffic
from load.research.models.published import published
from load.research.nexus.graph_virtual import APPLICATION, CARS, FACES, MODELS, STAGES, WANTED, Form, highest, lanes
from policies.packing.work import BatchTimes
from schemas import records
from schemas.records import Application, Query, Status, Tensor
from streams.runtime.clock import SystemClock
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from load.harness.driving import Driver, Stretch
    from load.harness.system import Stage
    from load.research.nexus.graph_virtual import Lane
    from schemas.records import Prediction

LANES: Final = ("split", "even")
# Of the simulated part's, twelve times: 45 and 60 ms.
OBJECTIVES_MS, SHORT_OBJECTIVES_MS = tuple(ms * traffic.SLOWER for ms in (45, 60)), (45 * traffic.SLOWER,)
WORKERS: Final = 12
OVER: Final = 1.5  # of the first lane's rate
_STEP: Final = 1.1
CHANCES: Final = 2  # of a rate: what else the machine does may spoil one stretch
_MOST_STEPS, _SHORT_STEPS = 7, 3
_SECONDS, _SHORT_SECONDS = 10.0, 6.0
_WARM_S: Final = 5.0
# Split for 100 pictures a second, with the way to a model and back as `skysail config check` counts it.
FORM: Final = Form(WORKERS, 100.0, way_us=7_400, apart_us=0)
_VIRTUAL, _SHORT_VIRTUAL = 1_500, 500  # pictures in virtual time, for where to begin
_HALVINGS: Final = 4
_MOST_ROWS: Final = 16  # of which it is published what a batch takes
_OWN: Final = {"controller": "aimd", "parameters": {"max_rows": float(_MOST_ROWS)}}
_PLANNED: Final = {"controller": "fixed", "parameters": {"rows": float(_MOST_ROWS)}}


class Became(Enum):
    """What became of a picture."""

    WHOLE = "whole"  # and right, and in time
    PART = "part"  # in time, with what was there
    DEFAULT = "default"  # in time, with nothing
    LATE = "late"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"


_RATE_STEP = Kind("", Better.HIGHER, 0.2)
FIGURES = Figures(
    _RATE_STEP("live_tightest_ratio", must=at_least(1.3, IN_FULL)),
    _RATE_STEP("live_at_*_ratio"),
    FAULTS("live_wrong", must=NONE),
    PER_S(*(f"{at}_{lane}_per_s" for at in ("live_at_*", "live_own") for lane in LANES)),
    Kind("1/s")("live_*_virtual_per_s", "live_*_over_per_s"),
    SHOWN_MS("live_*_p99_ms"),
    SHOWN("live_*_over_*", "live_at_*_share", "live_at_*_workers", "live_at_*_rows", "live_own_ratio", "live_workers"),
)


@dataclass(slots=True)
class _Workload:
    """Makes pictures, and takes their answers."""

    seed: int
    slo_us: int
    held: dict[str, tuple[int, int]] = field(default_factory=dict)
    became: dict[str, Became] = field(default_factory=dict)

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return the picture with this number."""
        random, its = np.random.default_rng((self.seed, index)), query_id(self.seed, index)
        cars, faces = (min(int(count), traffic.MOST) for count in random.poisson((CARS, FACES)))
        self.held[its] = cars, faces
        return Asked(Query(its, APPLICATION, Tensor.of(traffic.picture(cars, faces)), None, intended_us))

    def take(self, predictions: Sequence[Prediction]) -> None:
        """Note what became of pictures, when their answers are read."""
        now_us = SystemClock().now_us()
        for one in predictions:
            if one.query_id in self.held:  # a stretch before may have left some
                self.became[one.query_id] = became(one, now_us, self.slo_us, self.held[one.query_id])

    def shares(self) -> dict[Became, float]:
        """Return what share of the pictures became what."""
        counts = Counter(self.became.get(its, Became.NO_ANSWER) for its in self.held)
        return {each: counts[each] / max(1, len(self.held)) for each in Became}


def became(prediction: Prediction, now_us: int, slo_us: int, held: tuple[int, int]) -> Became:
    """Return what an answer is worth that was read now, about a picture with so many cars and faces."""
    if now_us - prediction.sent_us > slo_us:
        return Became.LATE
    if prediction.status is not Status.COMPLETE:
        return Became.DEFAULT if prediction.status is Status.DEFAULT else Became.PART
    asked = Counter(row.stage for row in prediction.stages)
    is_right = (asked["cars"], asked["faces"]) == held and json.loads(str(prediction.answer)) == [0] * held[0]
    return Became.WHOLE if is_right else Became.WRONG


def seconds_of(stage: Stage) -> float:
    """Return how long each rate is asked."""
    return _SHORT_SECONDS if stage.short else _SECONDS


async def run(stage: Stage) -> dict[str, float]:
    """Find each lane's highest rate at each objective on Kafka; return the figures."""
    packages = _packages(stage.folder)
    figures: dict[str, float] = {"live_workers": float(WORKERS), "live_wrong": 0.0}
    for slo_ms in SHORT_OBJECTIVES_MS if stage.short else OBJECTIVES_MS:
        figures |= await _both(stage, packages, slo_ms, f"live_at_{slo_ms}", is_own=False)
    if not stage.short:
        figures |= await _both(stage, packages, OBJECTIVES_MS[0], "live_own", is_own=True)
    wrong = sum(value for name, value in figures.items() if name.endswith("_over_wrong"))
    return figures | {"live_wrong": wrong, "live_tightest_ratio": figures[f"live_at_{OBJECTIVES_MS[0]}_ratio"]}


async def _both(
    stage: Stage, packages: Mapping[str, Path], slo_ms: int, prefix: str, *, is_own: bool
) -> dict[str, float]:
    """Return the figures of both lanes at an objective; `is_own`: workers size their batches themselves."""
    figures: dict[str, float] = {}
    for name, (lane, most) in lanes(times_of(), slo_ms, FORM).items():
        begin = await asyncio.to_thread(_in_virtual_time, stage, lane, most, slo_ms)
        first = figures.get(f"{prefix}_split_per_s", 0.0)
        its = await _measured(stage, _deployment(packages, lane, slo_ms, is_own=is_own), slo_ms, begin, first)
        its |= {} if is_own else {"virtual_per_s": begin, **_told(lane)}
        figures |= {f"{prefix}_{name}_{of}": value for of, value in its.items()}
    return figures | {f"{prefix}_ratio": figures[f"{prefix}_split_per_s"] / max(1.0, figures[f"{prefix}_even_per_s"])}


def times_of() -> dict[str, BatchTimes]:
    """Return what batches of the stages' models take, by model."""
    known = published()
    sizes = range(1, _MOST_ROWS + 1)
    return {
        model: BatchTimes(tuple(sizes), tuple(known[kind].batch_us(rows) * traffic.SLOWER for rows in sizes))
        for model, kind in MODELS.items()
    }


async def _measured(
    stage: Stage, deployment: Deployment, slo_ms: float, begin: float, first: float
) -> dict[str, float]:
    """Return the figures of a lane; `begin`: where to begin, `first`: the rate of the first lane, 0 if it is this."""
    async with deployed(stage, deployment) as driver:
        await driver.greet(APPLICATION, Tensor.of(traffic.picture(1, 1)))
        asker = _Asker(driver, slo_ms)
        await asker.at(begin / 2, _WARM_S)  # batches find their size, and selection learns how long models take
        rate, p99_ms = await _highest(asker, begin, stage)
        over = OVER * (first or rate or begin)
        shares, _ = await asker.at(over, seconds_of(stage))
    figures = {"per_s": rate, "p99_ms": p99_ms, "over_per_s": over}
    return figures | {f"over_{each.value}": share for each, share in shares.items()} | {"over_wrong": asker.wrong}


def _told(lane: Lane) -> dict[str, float]:
    parts = (("share", lane.shares), ("workers", lane.workers), ("rows", lane.rows))
    return {f"{stage}_{of}": float(value) for of, by_stage in parts for stage, value in by_stage.items()}


async def _highest(asker: _Asker, begin: float, stage: Stage) -> tuple[float, float]:
    """Return the highest rate at which enough is whole and in time, and the 99th percentile there (ms); 0 = none is."""
    rate, found, failed = begin, (0.0, 0.0), False
    for _ in range(_SHORT_STEPS if stage.short else _MOST_STEPS):
        p99_ms = await _held(asker, rate, stage)
        failed |= p99_ms is None
        found = found if p99_ms is None else max(found, (rate, p99_ms))
        if failed and found[0]:
            break
        rate = rate / _STEP if failed else rate * _STEP
    return found


async def _held(asker: _Asker, rate: float, stage: Stage) -> float | None:
    """Return the 99th percentile (ms) if enough is whole and in time; a rate that fails has a second chance."""
    for _ in range(CHANCES):
        shares, stretch = await asker.at(rate, seconds_of(stage))
        if shares[Became.WHOLE] >= WANTED:
            return stretch.recorder.latency_ms()["p99"]
    return None


@dataclass(slots=True)
class _Asker:
    """Asks one deployment, stretch by stretch."""

    driver: Driver
    slo_ms: float
    turn: int = 0
    wrong: float = 0.0

    async def at(self, rate: float, seconds: float) -> tuple[dict[Became, float], Stretch]:
        """Ask at a rate; return what share of the pictures became what."""
        self.turn += 1
        slo_us = int(self.slo_ms * 1e3)
        workload = _Workload(1_000 * self.driver.stage.seed + self.turn, slo_us)
        stretch = await self.driver.at(rate, workload, seconds, slo_us, workload.take, self.turn)
        shares = workload.shares()
        self.wrong += shares[Became.WRONG] * len(workload.held)
        told = ", ".join(f"{each.value} {share:.1%}" for each, share in shares.items() if share)
        say("graph", f"{self.slo_ms:g} ms, {rate:.0f} pictures a second: {told}")
        return shares, stretch


def _deployment(packages: Mapping[str, Path], lane: Lane, slo_ms: float, *, is_own: bool) -> Deployment:
    """Return what is to run: the graph, and the workers of each of its stages."""
    stages = tuple(
        records.Stage(
            name, "" if name == "cars" else model, before, "query", before and "box", where, share=lane.shares[name]
        )
        for name, model, before, where, _ in STAGES
    )
    graph = Application(APPLICATION, ("car-net",), "single", slo_ms=slo_ms, default_output="?", stages=stages)
    workers = {model: lane.workers[name] for name, model, _, _, _ in STAGES}
    sizes = {model: [*range(1, lane.rows[name] + 1)] for name, model, _, _, _ in STAGES}
    worker = _OWN if is_own else {**_PLANNED, "allowed_batch_sizes": sizes}
    settings = {"worker": {**worker, "partitions": workers}, "log_level": "warning"}
    roles = ("selection", "worker")
    return Deployment(new_prefix("graph"), (graph,), packages, 1, roles, settings, workers)


def _packages(folder: Path) -> dict[str, Path]:
    tile, whole = np.zeros((1, traffic.TILE, traffic.TILE), np.float32), traffic.picture(1, 1)[None]
    found = {}
    for name, path in traffic.MODELS.items():
        found[name] = folder / "graph" / name
        package_function(path, found[name], name, "1", whole if name == "detector" else tile)
    return found


def _in_virtual_time(stage: Stage, lane: Lane, most: float, slo_ms: float) -> float:
    queries = _SHORT_VIRTUAL if stage.short else _VIRTUAL
    return highest(times_of(), lane, most, slo_ms, queries=queries, halvings=_HALVINGS, seed=stage.seed)
