"""`overload`: goodput of a slow model at its capacity and at three times that, with and without admission, by priority.

The model takes 5 ms a batch and 1 ms a row in batches of at most 40, so it does 889 rows a second. Goodput counts
answers of a model within the objective; a default output does not count. Then, with admission, a third of the queries
each has priority 0, 1 and 2. At three times the capacity, the queries of one priority alone keep the model busy. Last
the worker sizes its batches itself, as it does by default.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from load.figures import KEPT, NONE, SHOWN, Better, Figures, Kind, at_least
from load.harness import topics
from load.harness.driving import deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.functions import BATCH_S, ROW_S
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Status, Tensor
from streams.runtime.clock import SystemClock
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from load.harness.driving import Stretch
    from load.harness.openloop import Asked
    from load.harness.system import Stage
    from schemas.records import Prediction

NAME = "overload"
TIMES = (1, 3)
PRIORITIES = (0, 1, 2)
_MODEL = "slow"
_ROWS = 40
CAPACITY = _ROWS / (BATCH_S + _ROWS * 10 * ROW_S)  # rows/s
_APPLICATION = Application("slow", (_MODEL,), "single", slo_ms=150.0, default_output=-1)
_INPUT = Tensor.of(np.ones(1, np.float32))
_FIXED = {"controller": "fixed", "parameters": {"rows": float(_ROWS)}}
_LANES: Mapping[str, Mapping[str, object]] = {
    "admission": {"selection": {"admission": True}, "worker": _FIXED},
    "without": {"selection": {"admission": False}, "worker": _FIXED},
    "adaptive": {"selection": {"admission": True}},
}


@dataclass(slots=True)
class Ranked:
    """Asks with priorities, and counts by priority what a model has answered in time.

    Attributes:
        workload: that asks.
        sent: by priority.
        good: of them answered by a model within the objective.
    """

    workload: Rows
    sent: Counter[int] = field(default_factory=Counter)
    good: Counter[int] = field(default_factory=Counter)
    _priorities: dict[str, int] = field(default_factory=dict)

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`."""
        asked = self.workload(index, intended_us)
        self.sent[asked.query.priority] += 1
        self._priorities[asked.query.query_id] = asked.query.priority
        return asked

    def note(self, predictions: Sequence[Prediction]) -> None:
        """Count answers that have just been read."""
        self.take(predictions, SystemClock().now_us())

    def take(self, predictions: Sequence[Prediction], now_us: int) -> None:
        """Count answers that were read at `now_us`."""
        for prediction in predictions:
            priority = self._priorities.pop(prediction.query_id)
            self.good[priority] += prediction.status is not Status.DEFAULT and now_us <= prediction.deadline_us


FIGURES = Figures(
    *(
        (
            *recorded(f"{how}_at_{times}_", "lost", "defaults", "late", "p99_ms", lost=NONE),
            *Kind("1/s")(f"{how}_at_{times}_goodput"),
        )
        for how, times in (*product(_LANES, TIMES), ("ranked", 3))
    ),
    Kind("1/s")("ranked_at_3_priority_*_goodput"),
    SHOWN("ranked_at_3_priority_*_good_share"),
    Kind("", Better.HIGHER, 0.3)("ranked_highest_over_lowest", must=at_least(2)),
    KEPT("kept", "kept_adaptive", must=at_least(0.9)),
    KEPT("kept_ranked", "kept_without"),
)


async def run(stage: Stage) -> Result:
    """Ask at both rates, with admission and without; then with priorities, and with batches that size themselves."""
    package = stage.folder / _MODEL
    package_function("load.models.functions:slow", package, _MODEL, "1", np.ones((2, 1), np.float32))
    figures: dict[str, float] = {}
    for how, lane in _LANES.items():
        stretches = await _stretches(stage, package, TIMES, lane)
        for times, (stretch, _) in zip(TIMES, stretches, strict=True):
            figures |= _counted(f"{how}_at_{times}", stretch, stage.seconds)
    ((stretch, ranked),) = await _stretches(stage, package, TIMES[-1:], _LANES["admission"], PRIORITIES)
    figures |= _counted("ranked_at_3", stretch, stage.seconds)
    for priority in PRIORITIES:
        figures[f"ranked_at_3_priority_{priority}_goodput"] = ranked.good[priority] / stage.seconds
        figures[f"ranked_at_3_priority_{priority}_good_share"] = ranked.good[priority] / max(1, ranked.sent[priority])
    lowest, *_, highest = (figures[f"ranked_at_3_priority_{priority}_good_share"] for priority in PRIORITIES)
    figures["ranked_highest_over_lowest"] = highest / max(1e-3, lowest)
    for kept, name in (("kept", "admission"), ("kept_ranked", "ranked"), ("kept_without", "without")):
        figures[kept] = figures[f"{name}_at_3_goodput"] / max(1.0, figures["without_at_1_goodput"])
    figures["kept_adaptive"] = figures["adaptive_at_3_goodput"] / max(1.0, figures["adaptive_at_1_goodput"])
    return Result(NAME, figures=figures, parameters={"capacity_per_s": CAPACITY, "slo_ms": _APPLICATION.slo_ms})


def _counted(name: str, stretch: Stretch, seconds: float) -> dict[str, float]:
    counted = stretch.recorder.figures()
    return {
        **{f"{name}_{what}": counted[what] for what in ("lost", "defaults", "late", "p99_ms")},
        f"{name}_goodput": counted["in_time"] / seconds,
    }


async def _stretches(
    stage: Stage, package: Path, rates: Sequence[int], settings: Mapping[str, object], priorities: Sequence[int] = ()
) -> list[tuple[Stretch, Ranked]]:
    deployment = Deployment(
        topics.new_prefix(NAME),
        (_APPLICATION,),
        {_MODEL: package},
        roles=("selection", "worker"),
        settings=settings,
    )
    stretches = []
    async with deployed(stage, deployment, _INPUT) as driver:
        for times in rates:
            ranked = Ranked(Rows(_APPLICATION.name, (_INPUT,), seed=stage.seed + times, priorities=priorities))
            slo_us = int(_APPLICATION.slo_ms * 1e3)
            stretch = await driver.at(times * CAPACITY, ranked, stage.seconds, slo_us, ranked.note)
            stretches.append((stretch, ranked))
    return stretches


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a slow model asked three times what it can do: goodput with and without admission, by priority",
    any_arrivals=True,
)
