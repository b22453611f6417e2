"""`latecomer`: an ensemble of four models, one of which is always late, and three ways to deal with it.

The models are decision trees on digits, as in `straggler`. The last of them takes twice the objective for every row.
One application leaves it out when it has not answered by the deadline. One puts its running mean (for labels the most
frequent) in its place (Clipper, NSDI 2017, section 5.2.2). One uses the policy `timely`, which stops asking it. Only
this one answers before the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from load.figures import ERROR, NONE, SHOWN, Better, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.driving import deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.training import digits, trees
from load.research.models import recorded as replayed
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Outcome, Tensor
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.harness.driving import Driver
    from load.harness.system import Stage
    from schemas.records import Prediction

NAME = "latecomer"
DEADLINE_MS = 100.0
RATE = 20.0
_DAWDLES_MS = 200
_SECONDS, _SHORT_SECONDS = 60.0, 12.0
_WARM_UP_RATE, _WARM_UP_S = 40.0, 10.0  # as `straggler`
_MARGIN_MS = 35.0  # as `straggler`
_FITTED_ON = 150  # rows a tree
_MODELS = ("tree-0", "tree-1", "tree-2", "late")
_LANES = (
    Application("left-out", _MODELS, "exp4", slo_ms=DEADLINE_MS),
    Application("replaced", _MODELS, "exp4", slo_ms=DEADLINE_MS, missing="running_mean"),
    Application("not-asked", _MODELS, "timely", slo_ms=DEADLINE_MS),
)


@dataclass(slots=True)
class Answers:
    """How many answers were read in time, and of how many the late model had been asked."""

    read: int = 0
    in_time: int = 0
    asked_late: int = 0
    replaced: int = 0

    def __call__(self, predictions: Sequence[Prediction]) -> None:
        """Count what has just been read."""
        self.take(predictions, SystemClock().now_us())

    def take(self, predictions: Sequence[Prediction], now_us: int) -> None:
        """Count answers that were read at `now_us`."""
        for prediction in predictions:
            late = [output for output in prediction.outputs if output.model == _MODELS[-1]]
            self.read += 1
            self.in_time += now_us <= prediction.deadline_us
            self.asked_late += bool(late)
            self.replaced += any(output.outcome is Outcome.MISSING and output.answer is not None for output in late)


_LATE_SHARE = Kind("", Better.LOWER, 0.0, 0.05)
FIGURES = Figures(
    *(
        (
            *Kind("", Better.HIGHER, 0.0, 0.001)(f"{lane}_in_time", must=at_least(0.999)),
            *ERROR(f"{lane}_error"),
            *_LATE_SHARE(f"{lane}_late_share", must=at_most(0.1) if lane == "not_asked" else ()),
            *SHOWN(f"{lane}_replaced_share"),
            *recorded(f"{lane}_", "p50_ms", "p99_ms", "lost", "defaults", "queries_sent", lost=NONE, defaults=NONE),
        )
        for lane in ("left_out", "replaced", "not_asked")
    ),
    Kind("", Better.HIGHER, 0.2)("not_asked_p50_saved", must=at_least(0.5)),
)


async def run(stage: Stage) -> Result:
    """Ask each application alike."""
    data = digits()
    late = np.zeros((len(data.test_y), len(_MODELS)), np.uint8)
    late[:, -1] = _DAWDLES_MS
    rows = np.hstack([trees(data, len(_MODELS), _FITTED_ON), late]).astype(np.uint8)
    deployment = Deployment(
        topics.new_prefix(NAME),
        _LANES,
        replayed.package(stage.folder, _MODELS, rows, "late"),
        settings={"log_level": "warning", "selection": {"margin_ms": _MARGIN_MS}},
    )
    inputs = [Tensor.of(row) for row in rows]
    figures: dict[str, float] = {}
    async with deployed(stage, deployment) as driver:
        for number, application in enumerate(_LANES):
            figures |= await _asked(driver, application.name, number, inputs, data.test_y.tolist())
    figures["not_asked_p50_saved"] = 1 - figures["not_asked_p50_ms"] / figures["left_out_p50_ms"]
    return Result(
        NAME,
        figures=figures,
        parameters={
            "form": stage.form,
            "rate": RATE,
            "deadline_ms": DEADLINE_MS,
            "margin_ms": _MARGIN_MS,
            "dawdles_ms": _DAWDLES_MS,
            "seed": stage.seed,
        },
    )


async def _asked(
    driver: Driver, application: str, number: int, inputs: Sequence[Tensor], labels: Sequence[int]
) -> dict[str, float]:
    """Warm up, so that `timely` learns which model is late, then measure."""
    stage, slo_us, name = driver.stage, int(DEADLINE_MS * 1e3), application.replace("-", "_")
    warming, asked = (Rows(application, inputs, labels, seed=stage.seed * 1_000 + 2 * number + step) for step in (0, 1))
    await driver.at(_WARM_UP_RATE, warming, _WARM_UP_S, slo_us)
    answers = Answers()
    seconds = _SHORT_SECONDS if stage.short else max(_SECONDS, stage.seconds)
    stretch = await driver.at(RATE, asked, seconds, slo_us, answers)
    measured = stretch.recorder.figures()
    return {
        f"{name}_in_time": answers.in_time / max(1, measured["queries_sent"]),
        f"{name}_error": measured.get("error", 1.0),
        f"{name}_late_share": answers.asked_late / max(1, answers.read),
        f"{name}_replaced_share": answers.replaced / max(1, answers.read),
        **{f"{name}_{figure}": measured[figure] for figure in ("p50_ms", "p99_ms", "lost", "defaults", "queries_sent")},
    }


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "an ensemble of which one model is always late: waited for, replaced by its running mean, not asked",
    short=True,
)
