"""`takeover`: one of two workers of a model is killed, hangs, or is stopped: how long its queries go without answers.

    killed  kill -9; the supervisor starts it again
    hung    a query on which the model hangs; the worker ends after `worker.patience_s`, and is started again
    still   SIGSTOP, like a machine that is cut off: only Kafka's session timeout notices it, and then the other worker
            gets its partitions

Until then the queries in its partitions are answered by default at their deadline, and none is lost.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from load.figures import NONE, Better, Figures, Kind, at_most
from load.harness import topics
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Status, Tensor
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.harness.driving import Driver
    from load.harness.openloop import Asked
    from load.harness.system import Stage, System
    from schemas.records import Prediction

NAME = "takeover"
RATE = 100.0
SECONDS = 26.0  # Kafka's session timeout of 10 s and a rebalance must lie well inside
FAULTS = ("killed", "hung", "still")
_MODEL, _APPLICATION = "sleepy", "takeover"
_VICTIM = f"worker.{_MODEL}@2"
_AT_S = 4.0  # into the stretch
_SLO_MS = 500.0  # longer than what a busy machine holds up a query: defaults are those of the fault
_HANG_S = 600.0


@dataclass(slots=True)
class Faulty:
    """A workload in the middle of which something breaks; afterwards, what it cost.

    Attributes:
        rows: makes the queries.
        at: the query before which it breaks.
        cause: breaks it.
        fault_us: when that query was meant to be sent.
        unserved_us: when each query that got a default was sent.
    """

    rows: Callable[[int, int], Asked]
    at: int
    cause: Callable[[], None]
    fault_us: int = 0
    unserved_us: list[int] = field(default_factory=list)

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`."""
        if index == self.at:
            self.fault_us = intended_us
            self.cause()
        return self.rows(index, intended_us)

    def take(self, predictions: Sequence[Prediction]) -> None:
        """Note defaults: each was given at the deadline of its query."""
        slo_us = int(_SLO_MS * 1e3)
        self.unserved_us += [p.answered_us - slo_us for p in predictions if p.status is Status.DEFAULT]

    @property
    def outage_s(self) -> float:
        """From the fault until the last query that found no worker was sent; 0 = all found one."""
        return max(0, max(self.unserved_us, default=0) - self.fault_us) / 1e6


_OUTAGE = Kind("s", Better.LOWER, 0.5, 2.0)
FIGURES = Figures(
    *(_OUTAGE(f"{fault}_outage_s", must=at_most(s)) for fault, s in zip(FAULTS, (5, 10, 15), strict=True)),
    *(recorded(f"{fault}_", *FAULTS_OF_A_STRETCH, lost=NONE) for fault in FAULTS),
)


async def run(stage: Stage) -> Result:
    """Break one worker after the other way, each in a stretch of its own."""
    package, row = stage.folder / _MODEL, np.zeros((1, 1), np.float32)
    package_function("load.models.functions:sleeping", package, _MODEL, "1", row)
    deployment = Deployment(
        topics.new_prefix(NAME),
        (Application(_APPLICATION, (_MODEL,), "single", slo_ms=_SLO_MS),),
        {_MODEL: package},
        roles=("selection", "worker"),
        replicas={_MODEL: 2},
    )
    figures: dict[str, float] = {}
    async with deployed(stage, deployment, Tensor.of(row[0])) as driver:
        for number, fault in enumerate(FAULTS):
            seed = stage.seed * len(FAULTS) + number
            figures |= await _broken(driver, fault, _workload(driver.system, fault, seed, stage.seconds))
        os.kill(driver.system.pids[_VICTIM], signal.SIGCONT)
    return Result(
        NAME,
        figures=figures,
        parameters={"rate": RATE, "seconds": stage.seconds, "seed": stage.seed, "slo_ms": _SLO_MS, "workers": 2},
        notes=("outage_s: from the fault until the last query was sent that got a default because it had no worker",),
    )


async def _broken(driver: Driver, fault: str, workload: Faulty) -> dict[str, float]:
    """Drive through one fault; returns its figures."""
    offsets_us = [int(i * 1e6 / RATE) for i in range(int(RATE * driver.stage.seconds))]
    stretch = await driver.drive(offsets_us, workload, int(_SLO_MS * 1e3), workload.take)
    counted: Mapping[str, float] = stretch.faults
    return {f"{fault}_outage_s": workload.outage_s, **{f"{fault}_{name}": count for name, count in counted.items()}}


def _workload(system: System, fault: str, seed: int, seconds: float) -> Faulty:
    inputs = [Tensor.of(np.zeros(1, np.float32))] * int(RATE * seconds)
    at = int(_AT_S * RATE)
    if fault == "hung":
        inputs[at] = Tensor.of(np.full(1, _HANG_S, np.float32))
    number = {"killed": signal.SIGKILL, "still": signal.SIGSTOP}.get(fault)

    def cause() -> None:
        if number is not None:
            os.kill(system.pids[_VICTIM], number)

    return Faulty(Rows(_APPLICATION, inputs, seed=seed), at, cause)


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "one of two workers is killed, hangs or stands still: how long its queries go unanswered, and none lost",
    seconds=SECONDS,
)
