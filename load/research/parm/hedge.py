"""`hedge`: one replica of three stands still now and then; its queries are put to another one after the usual time.

The model sleeps 5 ms a batch and 1 ms a row, as if it waited for a GPU or a socket. Now and then one of its three
processes is stopped for half a second (SIGSTOP), as a long collection, a page fault or a neighbour would do. The same
arrivals come to two applications, one after the other: `plain` asks once, `hedged` may put a twentieth of its questions
twice. Both have a long objective, so that waiting shows as latency and not as default outputs. At last all three stand
still for some seconds: what is put twice then is bounded by the tokens held.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import numpy as np

from load.figures import IN_FULL, NONE, SHOWN, Better, Figures, Kind, at_least, at_most
from load.harness import arrivals, topics
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.probes import written
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows, query_id
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from policies.tokens import MOST
from schemas import topics as names
from schemas.records import Application, ModelQueries, Tensor
from streams.evaluation.drawing import COLOURS, panels, png
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from load.harness.driving import Driver, Stretch
    from load.harness.system import Stage

NAME: Final = "hedge"
LANES: Final = ("plain", "hedged")
SHARE: Final = 0.05
_MODEL, _REPLICAS = "slow", 3
_RATE, _SLO_MS = 60.0, 3_000.0
_SECONDS, _SHORT_SECONDS = 180.0, 30.0  # 10,800 queries: as many as a p99.9 takes
_STILL_S, _EVERY_S = 0.5, 5.0  # one replica of three, with one or two of four partitions: 2.5 or 5 % meet it
_OUTAGE_S, _BEFORE_S = 3.0, 10.0
_OUTAGE_SEED: Final = 7_000

_SAVED = Kind("", Better.HIGHER, 0.0, 0.1)
_EXTRA = Kind("", Better.LOWER, 0.0, 0.01)
FIGURES = Figures(
    _SAVED("p999_saved", must=at_least(0.4, IN_FULL)),
    _SAVED("p99_saved"),
    _EXTRA("extra", must=at_most(SHARE)),
    Kind("", Better.LOWER, 0.0, 2.0)("outage_again", must=at_most(MOST)),
    SHOWN("outage_asked", "stops"),
    *(
        recorded(f"{lane}_", "p50_ms", "p99_ms", "p999_ms", "queries_sent", *FAULTS_OF_A_STRETCH, lost=NONE)
        for lane in LANES
    ),
)


async def run(stage: Stage) -> Result:
    """Ask both applications while one replica stops now and then; then stop all."""
    package = stage.folder / _MODEL
    package_function("load.models.functions:slow", package, _MODEL, "1", np.ones((2, 1), np.float32))
    seconds = _SHORT_SECONDS if stage.short else max(_SECONDS, stage.seconds)
    deployment = Deployment(
        topics.new_prefix(NAME),
        tuple(
            Application(lane, (_MODEL,), "single", slo_ms=_SLO_MS, hedge=share)
            for lane, share in zip(LANES, (0.0, SHARE), strict=True)
        ),
        {_MODEL: package},
        roles=("selection", "worker"),
        settings={"log_level": "warning"},
        replicas={_MODEL: _REPLICAS},
    )
    stretches: dict[str, Stretch] = {}
    row, stops = Tensor.of(np.ones(1, np.float32)), 0
    async with deployed(stage, deployment, row) as driver:
        pids = [pid for name, pid in driver.system.pids.items() if name.startswith(f"worker.{_MODEL}")]
        for turn, lane in enumerate(LANES):
            async with _stopping(pids[:1]) as stopped:
                stretches[lane] = await _asked(driver, lane, row, seconds, stage.seed + turn)
            stops += len(stopped)
        await _outage(driver, pids, row, stage.seed + _OUTAGE_SEED)
        asked = written(stage, deployment.prefix, names.model_queries(_MODEL), ModelQueries)
    figures = measured(stretches, asked, stage.seed) | {"stops": float(stops)}
    parameters: dict[str, float | str] = {"form": stage.form, "seed": stage.seed, "rate": _RATE, "seconds": seconds}
    parameters |= {"share": SHARE, "still_s": _STILL_S, "every_s": _EVERY_S, "outage_s": _OUTAGE_S}
    return Result(NAME, figures, parameters)


async def _asked(driver: Driver, lane: str, row: Tensor, seconds: float, seed: int) -> Stretch:
    """Send the same arrivals to a lane, however it is called."""
    offsets_us = list(arrivals.until(driver.stage.arrivals.at(_RATE, driver.stage.seed), seconds))
    return await driver.drive(offsets_us, Rows(lane, [row], seed=seed), int(_SLO_MS * 1e3), drain_s=6)


async def _outage(driver: Driver, pids: Sequence[int], row: Tensor, seed: int) -> None:
    """Ask the hedged application for a while, then go on while nobody answers."""
    await _asked(driver, "hedged", row, _BEFORE_S, seed + 1)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        await _asked(driver, "hedged", row, _OUTAGE_S, seed)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def _stopping(pids: Sequence[int]) -> AsyncIterator[list[int]]:
    """Stop each of these processes now and then while a block runs; yields the stops, as they come."""
    stopped: list[int] = []
    task = asyncio.create_task(_stop_on_and_on(pids, stopped))
    try:
        yield stopped
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _stop_on_and_on(pids: Sequence[int], stopped: list[int]) -> None:
    while True:
        await asyncio.sleep(_EVERY_S - _STILL_S)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(_STILL_S)
            finally:
                os.kill(pid, signal.SIGCONT)
            stopped.append(pid)


def measured(stretches: dict[str, Stretch], asked: Sequence[ModelQueries], seed: int) -> dict[str, float]:
    """Return latencies and faults of both applications, what hedging saved, and what it asked twice."""
    figures: dict[str, float] = {}
    for lane, stretch in stretches.items():
        known = stretch.recorder.figures()
        figures |= {f"{lane}_{name}": value for name, value in known.items() if name in _SHOWN}
    worst = {lane: figures.get(f"{lane}_p999_ms", figures[f"{lane}_p99_ms"]) for lane in LANES}
    again, first = _counted(asked, seed + 1, int(figures["hedged_queries_sent"]))
    outage_again, outage_asked = _counted(asked, seed + _OUTAGE_SEED, int(_OUTAGE_S * _RATE * 3))
    return figures | {
        "p999_saved": 1.0 - worst["hedged"] / worst["plain"],
        "p99_saved": 1.0 - figures["hedged_p99_ms"] / figures["plain_p99_ms"],
        "extra": again / max(1, first),
        "outage_again": float(outage_again),
        "outage_asked": float(outage_asked),
    }


_SHOWN: Final = ("p50_ms", "p99_ms", "p999_ms", "queries_sent", *FAULTS_OF_A_STRETCH)


def _counted(asked: Sequence[ModelQueries], seed: int, most: int) -> tuple[int, int]:
    """Return how many rows of a stretch were asked again, and how many once."""
    ids = {query_id(seed, index) for index in range(most)}
    counts = [0, 0]
    for batch in asked:
        counts[batch.step > 0] += sum(name in ids for name in batch.query_ids)
    return counts[1], counts[0]


_PICTURE: Final = "hedging.png"
_LANES: Final = {"plain": "asked once", "hedged": f"`hedge: {SHARE}`"}
_PERCENTILES: Final = {"p50": "p50_ms", "p99": "p99_ms", "p99.9": "p999_ms"}


def tables(result: Result) -> list[Table]:
    """Return the latencies of both applications."""
    found = result.figures
    rows = [
        (
            name,
            *(f"{found[key]:,.1f}" if (key := f"{lane}_{figure}") in found else "" for figure in _PERCENTILES.values()),
            f"{found[f'{lane}_defaults']:,.0f}",
        )
        for lane, name in _LANES.items()
    ]
    return [Table("Latencies", ("", *(f"{name} ms" for name in _PERCENTILES), "by default"), tuple(rows))]


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: percentiles of both applications."""
    figure, (axes,) = panels(1, (6.2, 2.9))
    for (lane, name), colour in zip(_LANES.items(), COLOURS, strict=False):
        points = [(at, result.figures.get(f"{lane}_{key}")) for at, key in _PERCENTILES.items()]
        known = [(at, value) for at, value in points if value is not None]
        axes.plot(*zip(*known, strict=True), marker="o", label=name.replace("`", ""), color=colour)
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    axes.legend()
    return {_PICTURE: png(figure)}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "one replica of three stands still now and then: what a second question to another one saves",
    tables=tables,
    page="research/parm/hedge.md.j2",
    plots=plots,
    short=True,
    any_arrivals=True,
)
