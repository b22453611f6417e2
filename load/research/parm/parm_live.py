"""The lanes of `parm` with real workers: stalls, a worker that is killed, and much to do."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from load.harness import arrivals, topics
from load.harness.driving import deployed
from load.harness.probes import length, written
from load.harness.system import Deployment
from load.harness.workload import Rows, query_id
from load.research.harness.stalls import pairs, stalling
from load.research.parm.parm_forms import EVERY_S, FOR_S, LOADED, SLO_MS, USED, Form, Lane, rate, seed_of
from load.research.parm.parm_models import SLOW
from load.research.parm.parm_virtual import APPLICATION, NET, PARITY
from schemas.records import Application, ModelQueries, Tensor
from schemas.topics import model_queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from load.harness.driving import Driver, Stretch
    from load.harness.system import Stage
    from schemas.records import Prediction

_KILL_AT_S: Final = 4.0


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


async def measure(
    stage: Stage, form: Form, name: str, lane: Lane, images: NDArray[np.float32], labels: NDArray[np.int64]
) -> dict[str, float]:
    """Ask a lane of real workers; returns its figures."""
    inputs = [Tensor.of(image) for image in images]
    async with deployed(stage, _deployment(stage.folder / SLOW, lane), inputs[0]) as driver:
        await driver.at(rate(form, USED), _asked(stage, inputs, 0), 5.0, int(SLO_MS * 1e3), turn=1)
        before = _lengths(driver, lane)
        offsets_us = [*_arrivals(stage, form, USED, form.seconds)]
        tally = Tally.of(labels, seed_of(stage.seed, 1), len(offsets_us))
        workers = [pid for process, pid in sorted(driver.system.pids.items()) if process.startswith("worker.")]
        async with stalling(workers, pairs(len(workers), EVERY_S, FOR_S, stage.seed)):
            stretch = await driver.drive(offsets_us, _asked(stage, inputs, 1), int(SLO_MS * 1e3), tally)
        rows, sums = (after - earlier for after, earlier in zip(_lengths(driver, lane), before, strict=True))
        figures = {**_of(name, stretch), **(_of_coded(name, tally, rows, sums) if lane.k else {})}
        if lane.hedge:
            figures[f"{name}_more_work"] = await asyncio.to_thread(_asked_again, stage, driver.prefix)
        if form.beside_s:
            figures |= await _rebalanced(driver, form, name, inputs)
            figures |= await _loaded(driver, form, name, inputs)
    return figures


def _deployment(models: Path, lane: Lane) -> Deployment:
    packages = {NET: models / NET}
    workers = {NET: lane.workers}
    if lane.k:
        packages[PARITY], workers[PARITY] = models / f"{PARITY}-{lane.k}", lane.parity_workers
    worker = {"controller": "fixed", "parameters": {"rows": 1.0}, "partitions": workers}
    parity = PARITY if lane.k else ""
    application = Application(APPLICATION, (NET,), "single", slo_ms=SLO_MS, parity=parity, hedge=lane.hedge)
    return Deployment(
        topics.new_prefix("parm"),
        (application,),
        packages,
        roles=("selection", "worker"),
        settings={"log_level": "warning", "worker": worker},
        replicas=workers,
    )


def _asked(stage: Stage, inputs: Sequence[Tensor], number: int) -> Rows:
    """Return a workload with ids of its own."""
    return Rows(APPLICATION, inputs, seed=seed_of(stage.seed, number))


def _arrivals(stage: Stage, form: Form, used: float, seconds: float) -> list[int]:
    """Return when queries are sent: the same in each lane."""
    return [*arrivals.until(stage.arrivals.at(rate(form, used), stage.seed), seconds)]


def _lengths(driver: Driver, lane: Lane) -> tuple[int, int]:
    """Return how many rows the network and its parity model have been asked so far: one a record."""
    asked = partial(length, driver.stage, driver.prefix)
    return asked(model_queries(NET)), asked(model_queries(PARITY)) if lane.k else 0


def _asked_again(stage: Stage, prefix: str) -> float:
    """Return how many rows the network was asked a second time, for each that it was asked once."""
    counts = [0, 0]
    for batch in written(stage, prefix, model_queries(NET), ModelQueries):
        counts[batch.step > 0] += len(batch.query_ids)
    return counts[1] / max(1, counts[0])


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
    """Kill a worker in the middle; returns what answers took, and how many there were but the default."""
    victim = driver.system.pids[f"worker.{NET}@2"]
    asyncio.get_running_loop().call_later(_KILL_AT_S, os.kill, victim, signal.SIGKILL)
    stretch = await driver.drive(
        _arrivals(driver.stage, form, USED, form.beside_s), _asked(driver.stage, inputs, 2), int(SLO_MS * 1e3)
    )
    measured = stretch.recorder.figures()
    times = {f"{name}_rebalance_{figure}": measured[figure] for figure in ("p50_ms", "p99_ms", "max_ms")}
    return times | {
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
