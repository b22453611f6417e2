"""`parm`: late outputs are decoded from a parity model's (Kosaian, Rashmi and Venkataraman, SOSP 2019, figure 9).

    none    12 workers of ParM's MNIST network
    equal   18 workers of it: the same resources as
    k2      12 workers of it, and 6 of a parity model for groups of two, trained here
    k3, k4  12 workers of it, and 4 or 3 of a parity model for groups of three or four; in virtual time alone

A call takes 25 to 50 ms, of which the workers sleep most, as twelve accelerators would have it on two cores. All are
asked the same Poisson arrivals, at half of what the 12 can do. Two workers at a time stand still for 100 to 300 ms:
ParM's stragglers are pairs of machines between which data is copied. Each worker does so equally often in each lane.

Then a worker is killed and started again (`rebalance`): its partition is not served meanwhile. At last nothing stands
still, and the 12 workers are asked nine tenths of what they can do (`loaded`): there the wait is for a free worker, and
more workers help where coding does not.

`virtual_` figures are of the same lanes in virtual time, with three times 100,000 queries, and by how much is asked:
there the machine's own tail, which is that of Kafka on two cores, does not count.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from load.figures import IN_FULL, NONE, SHOWN, Better, Figures, Kind, at_most, exactly
from load.harness import arrivals, topics
from load.harness.data import mnist, need
from load.harness.driving import deployed
from load.harness.probes import length
from load.harness.recorder import recorded
from load.harness.stalls import pairs, stalling
from load.harness.system import Deployment
from load.harness.workload import Rows, query_id
from load.results.results import Result
from load.scenarios.parm_models import IMAGES, WEIGHTS, scaled, scores_of, trained
from load.scenarios.parm_virtual import APPLICATION, NET, PARITY, Lane, Played, World, play
from schemas.records import Application, Tensor
from schemas.topics import model_queries
from workers.packages.loading import load_package

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from load.harness.driving import Driver, Stretch
    from load.harness.system import Stage
    from schemas.records import Prediction

NAME = "parm"
CALL_S = (0.025, 0.05)
SERVICE_S = sum(CALL_S) / 2
USED, LOADED = 0.5, 0.9  # of what the workers without more can do
SLO_MS = 1_000.0
EVERY_S, FOR_S = 12.0, (0.1, 0.3)  # a worker stands still so often, for so long
_KILL_AT_S = 4.0


VIRTUAL = {
    "none": Lane(12),
    "equal": Lane(18),
    "k2": Lane(12, 6, 2),
    "k3": Lane(12, 4, 3),
    "k4": Lane(12, 3, 4),
}
LANES = ("none", "equal", "k2")
ASKED = (0.3, 0.5, 0.7, 0.9)  # of what the 12 workers can do


class Form(NamedTuple):
    """How much is done."""

    queries: int  # of a run in virtual time
    runs: int
    swept: int  # queries at each of `ASKED`
    lanes: dict[str, Lane]  # of real workers
    epochs: dict[int, int]  # that parity models are trained, by the size of groups
    seconds: float  # of the stretch with stragglers
    beside_s: float  # of the others; 0 = they are left out


FULL = Form(
    100_000, 3, 15_000, {"none": Lane(12), "equal": Lane(18), "k2": Lane(12, 6, 2)}, {2: 200, 3: 30, 4: 30}, 70.0, 20.0
)
SHORT = Form(10_000, 1, 0, {"none": Lane(6), "k2": Lane(6, 3, 2)}, {2: 8}, 20.0, 0.0)
PARTS = ("virtual", *LANES)

_MS = Kind("ms", Better.LOWER, 0.5, 10.0)
_LOST = {"none": NONE, "equal": exactly(0, IN_FULL), "k2": NONE}
_RATIO = Kind("", Better.LOWER, 0.3)
_POINTS = Kind("points", Better.LOWER, 0.3, 1.0)
FIGURES = Figures(
    *(
        recorded(
            f"{lane}_", "p50_ms", "p99_ms", "p999_ms", "max_ms", "queries_sent", "lost", "defaults", lost=_LOST[lane]
        )
        for lane in LANES
    ),
    *(_MS(f"{lane}_loaded_p50_ms", f"{lane}_loaded_p99_ms") for lane in LANES),
    *(SHOWN(f"{lane}_rebalance_unserved", f"{lane}_rebalance_asked") for lane in LANES),
    _MS("virtual_*_p50_ms", "virtual_*_p99_ms", "virtual_*_p999_ms"),
    _RATIO("virtual_k2_p999_of_none", must=at_most(0.6, IN_FULL)),
    _RATIO("virtual_k2_p50_of_none", must=at_most(1.05)),
    _RATIO("virtual_k2_more_work", must=at_most(0.5)),
    _POINTS("virtual_k2_accuracy_lost_points", must=at_most(6.5, IN_FULL)),
    _RATIO("virtual_*_of_none", "virtual_*_of_equal", "virtual_*_more_work"),
    _POINTS("virtual_*_accuracy_lost_points"),
    SHOWN("virtual_*"),
    SHOWN("k*_epochs", "k*_own_accuracy", "k*_accuracy"),
    _POINTS("k2_accuracy_lost_points", must=at_most(6.5, IN_FULL)),
    _POINTS("k*_accuracy_lost_points"),
    SHOWN("k2_reconstructed", "k2_reconstructed_share", "k2_served_own_accuracy", "k2_served_accuracy"),
    _RATIO("k2_more_work", must=at_most(0.51)),
    _RATIO("k2_p999_of_none", must=at_most(0.6, IN_FULL)),
    _RATIO("k2_p99_of_none", "k2_p999_of_equal", "equal_p999_of_none", "k2_loaded_p99_of_equal"),
    _RATIO("k2_p50_of_none", must=at_most(1.1, IN_FULL)),
)


async def run(stage: Stage) -> Result:
    """Train the parity models, then ask each lane.

    Raises:
        MissingDataError: the published weights or MNIST are not there.
        PackageError: torch is not installed.
    """
    form = SHORT if stage.short else FULL
    need(WEIGHTS, IMAGES)
    pixels, labels = mnist(IMAGES, "t10k", 10_000)
    images = scaled(pixels)
    figures = trained(stage, form.epochs, images, labels)
    if not stage.only or "virtual" in stage.only:
        figures |= await asyncio.to_thread(_virtual, stage, form, images, labels)
    for name, lane in form.lanes.items():
        if not stage.only or name in stage.only:
            figures |= await _measure(stage, form, name, lane, images, labels)
    return Result(
        NAME,
        figures={**figures, **_compared(figures)},
        parameters={
            "form": stage.form,
            "virtual_queries": form.queries * form.runs,
            "workers": form.lanes["none"].workers,
            "rate": _rate(form, USED),
            "loaded_rate": _rate(form, LOADED),
            "seconds": form.seconds,
            "stalls_every_s": EVERY_S,
            "stalls_s": f"{FOR_S[0]} to {FOR_S[1]}",
            "slo_ms": SLO_MS,
            "seed": stage.seed,
        },
    )


def _rate(form: Form, used: float) -> float:
    return round(form.lanes["none"].workers * used / SERVICE_S, 1)


def _virtual(stage: Stage, form: Form, images: NDArray[np.float32], labels: NDArray[np.int64]) -> dict[str, float]:
    """Play the lanes in virtual time."""
    fast = stage.folder / "fast"
    parity = {k: partial(scores_of, load_package(fast / f"{PARITY}-{k}").runtime) for k in form.epochs}
    own = scores_of(load_package(fast / NET).runtime, images)
    world = World(images, labels, own, dict(parity), CALL_S, EVERY_S, FOR_S, SLO_MS)
    lanes = {name: lane for name, lane in VIRTUAL.items() if not lane.k or lane.k in parity}
    figures: dict[str, float] = {}
    for name, lane in lanes.items():
        found = Played()
        for run in range(form.runs if name in LANES else 1):
            found.add(play(world, lane, _rate(FULL, USED), form.queries, _seed(stage, run)))
        figures |= _of_played(f"virtual_{name}", found)
    for used in ASKED if form.swept else ():
        for name, lane in ((name, VIRTUAL[name]) for name in LANES):
            found = play(world, lane, _rate(FULL, used), form.swept, stage.seed)
            figures |= _quantiles(f"virtual_at_{used:.0%}_{name}".replace("%", ""), found)
            found = play(replace(world, every_s=0.0), lane, _rate(FULL, used), form.swept, stage.seed)
            figures |= _quantiles(f"virtual_calm_{used:.0%}_{name}".replace("%", ""), found)
    return figures


def _quantiles(name: str, found: Played) -> dict[str, float]:
    return dict(
        zip((f"{name}_p50_ms", f"{name}_p99_ms", f"{name}_p999_ms"), found.quantiles(0.5, 0.99, 0.999), strict=True)
    )


def _of_played(name: str, found: Played) -> dict[str, float]:
    (own, own_right), (decoded_, right) = found.own, found.decoded
    figures = {**_quantiles(name, found), f"{name}_defaults": found.defaults}
    if found.sums:
        figures |= {
            f"{name}_more_work": found.sums / found.rows,
            f"{name}_decoded_share": decoded_ / len(found.latencies_ms),
            f"{name}_accuracy_lost_points": 100 * (own_right / own - right / max(1, decoded_)),
        }
    return figures


@dataclass(slots=True)
class Tally:
    """Which answers were decoded, and how many of each kind are right.

    Attributes:
        labels: by query.
        asked: answers that are a model's own, and answers that were decoded.
        right: of each.
    """

    labels: dict[str, int]
    asked: list[int]
    right: list[int]

    @classmethod
    def of(cls, labels: NDArray[np.int64], seed: int, queries: int) -> Tally:
        """Return one for queries with these ids."""
        return cls(
            {query_id(seed, index): int(labels[index % len(labels)]) for index in range(queries)}, [0, 0], [0, 0]
        )

    def __call__(self, predictions: Sequence[Prediction]) -> None:
        """Count what has just been read."""
        for prediction in predictions:
            if prediction.answer is not None:
                kind = any(output.reconstructed for output in prediction.outputs)
                self.asked[kind] += 1
                self.right[kind] += prediction.answer == self.labels[prediction.query_id]


async def _measure(
    stage: Stage, form: Form, name: str, lane: Lane, images: NDArray[np.float32], labels: NDArray[np.int64]
) -> dict[str, float]:
    inputs = [Tensor.of(image) for image in images]
    async with deployed(stage, _deployment(stage, lane), inputs[0]) as driver:
        await driver.at(_rate(form, USED), _asked(stage, inputs, 0), 5.0, int(SLO_MS * 1e3), turn=1)
        before = _lengths(driver, lane)
        offsets_us = [*_arrivals(stage, form, USED, form.seconds)]
        tally = Tally.of(labels, _seed(stage, 1), len(offsets_us))
        workers = [pid for process, pid in sorted(driver.system.pids.items()) if process.startswith("worker.")]
        async with stalling(workers, pairs(len(workers), EVERY_S, FOR_S, stage.seed)):
            stretch = await driver.drive(offsets_us, _asked(stage, inputs, 1), int(SLO_MS * 1e3), tally)
        rows, sums = (after - earlier for after, earlier in zip(_lengths(driver, lane), before, strict=True))
        figures = {**_of(name, stretch), **(_of_coded(name, tally, rows, sums) if lane.k else {})}
        if form.beside_s:
            figures |= await _rebalanced(driver, form, name, inputs)
            figures |= await _loaded(driver, form, name, inputs)
    return figures


def _deployment(stage: Stage, lane: Lane) -> Deployment:
    packages = {NET: stage.folder / NET}
    workers = {NET: lane.workers}
    if lane.k:
        packages[PARITY], workers[PARITY] = stage.folder / f"{PARITY}-{lane.k}", lane.parity_workers
    worker = {"controller": "fixed", "parameters": {"rows": 1.0}, "partitions": workers}
    application = Application(APPLICATION, (NET,), "single", slo_ms=SLO_MS, parity=PARITY if lane.k else "")
    return Deployment(
        topics.new_prefix(NAME),
        (application,),
        packages,
        roles=("selection", "worker"),
        settings={"log_level": "warning", "worker": worker},
        replicas=workers,
    )


def _seed(stage: Stage, number: int) -> int:
    return stage.seed * 1_000 + number


def _asked(stage: Stage, inputs: Sequence[Tensor], number: int) -> Rows:
    """Return a workload with ids of its own."""
    return Rows(APPLICATION, inputs, seed=_seed(stage, number))


def _arrivals(stage: Stage, form: Form, used: float, seconds: float) -> list[int]:
    """Return when queries are sent: the same in each lane."""
    return [*arrivals.until(stage.arrivals.at(_rate(form, used), stage.seed), seconds)]


def _lengths(driver: Driver, lane: Lane) -> tuple[int, int]:
    """Return how many rows the network and its parity model have been asked so far: one a record."""
    asked = partial(length, driver.stage, driver.prefix)
    return asked(model_queries(NET)), asked(model_queries(PARITY)) if lane.k else 0


def _of(name: str, stretch: Stretch) -> dict[str, float]:
    names = ("p50_ms", "p99_ms", "p999_ms", "max_ms", "queries_sent", "lost", "defaults")
    measured = stretch.recorder.figures()
    return {f"{name}_{figure}": measured[figure] for figure in names if figure in measured}


def _of_coded(name: str, tally: Tally, rows: int, sums: int) -> dict[str, float]:
    (own, coded), (own_right, coded_right) = tally.asked, tally.right
    return {
        f"{name}_reconstructed": coded,
        f"{name}_reconstructed_share": coded / max(1, own + coded),
        f"{name}_served_own_accuracy": own_right / max(1, own),
        f"{name}_served_accuracy": coded_right / max(1, coded),
        f"{name}_more_work": sums / max(1, rows),
    }


async def _rebalanced(driver: Driver, form: Form, name: str, inputs: Sequence[Tensor]) -> dict[str, float]:
    """Kill a worker in the middle; returns how many queries had no answer but the default."""
    victim = driver.system.pids[f"worker.{NET}@2"]
    asyncio.get_running_loop().call_later(_KILL_AT_S, os.kill, victim, signal.SIGKILL)
    stretch = await driver.drive(
        _arrivals(driver.stage, form, USED, form.beside_s), _asked(driver.stage, inputs, 2), int(SLO_MS * 1e3)
    )
    measured = stretch.recorder.figures()
    return {
        f"{name}_rebalance_unserved": measured["defaults"] + measured["lost"],
        f"{name}_rebalance_asked": measured["queries_sent"],
    }


async def _loaded(driver: Driver, form: Form, name: str, inputs: Sequence[Tensor]) -> dict[str, float]:
    """Ask more, with nothing standing still."""
    stretch = await driver.drive(
        _arrivals(driver.stage, form, LOADED, form.beside_s), _asked(driver.stage, inputs, 3), int(SLO_MS * 1e3)
    )
    measured = stretch.recorder.figures()
    return {f"{name}_loaded_{figure}": measured[figure] for figure in ("p50_ms", "p99_ms")}


def _compared(figures: dict[str, float]) -> dict[str, float]:
    """Return the ratios of two lanes' figures that are there."""
    wanted = {
        "virtual_k2_p999_of_none": ("virtual_k2_p999_ms", "virtual_none_p999_ms"),
        "virtual_k2_p99_of_none": ("virtual_k2_p99_ms", "virtual_none_p99_ms"),
        "virtual_k2_p50_of_none": ("virtual_k2_p50_ms", "virtual_none_p50_ms"),
        "virtual_k2_p999_of_equal": ("virtual_k2_p999_ms", "virtual_equal_p999_ms"),
        "k2_p999_of_none": ("k2_p999_ms", "none_p999_ms"),
        "k2_p99_of_none": ("k2_p99_ms", "none_p99_ms"),
        "k2_p50_of_none": ("k2_p50_ms", "none_p50_ms"),
        "k2_p999_of_equal": ("k2_p999_ms", "equal_p999_ms"),
        "equal_p999_of_none": ("equal_p999_ms", "none_p999_ms"),
        "k2_loaded_p99_of_equal": ("k2_loaded_p99_ms", "equal_loaded_p99_ms"),
    }
    return {
        name: figures[one] / figures[other]
        for name, (one, other) in wanted.items()
        if one in figures and other in figures
    }
