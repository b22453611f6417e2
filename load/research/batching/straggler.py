"""`straggler`: ensembles of 1 to 16 models, some of them late at random (Clipper, NSDI 2017, figure 9).

The models are decision trees on digits, each fitted on a few rows of its own, so that more of them are right more
often. A model takes twice the objective for one row in twenty, which also delays the rows behind it. Each size of
ensemble is asked twice. With a deadline, the outputs that have arrived are the answer. With a very long objective,
every model is waited for. "In time" counts answers read by the deadline, default outputs included, which are never
right. Larger ensembles are asked less often, because all their workers run on this machine. In the full form they run
for longer, so that one in a thousand can be told from none.

Each ensemble is asked for a while before it is measured, query by query. A broker writes the first entry of a
partition's indices when 4 KiB have come in. For 16 new topics at once this took 0.7 s (measured).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from load.figures import IN_FULL, SHOWN, Better, Figure, Figures, Kind, at_least, at_most, exactly
from load.harness import arrivals, topics
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

    from numpy.typing import NDArray

    from load.harness.driving import Driver, Stretch
    from load.harness.system import Stage
    from load.models.training import Digits
    from schemas.records import Prediction

NAME = "straggler"
SIZES = (1, 2, 4, 8, 16)
FEW = (1, 4, 16)
DEADLINE_MS = 100.0
DAWDLES_MS = 200
DAWDLES = 0.05  # of the rows, for each model by itself
# Queries a second, and the most model queries a second: each is a poll of a worker, and all of it runs on two cores.
RATE, ASKED_RATE = 20.0, 80.0
_SECONDS, _SHORT_SECONDS = 60.0, 12.0
_QUERIES = 1_200  # about as many at least in a stretch of the full form
_WARM_UP_RATE, _WARM_UP_S = 40.0, 10.0  # 100 records and 7 KiB for each of a topic's four partitions
_PATIENCE_MS = 5_000.0
# What the leg back takes at worst where 18 processes and the broker share two cores; 25 was too little for 2 of 1,200.
_MARGIN_MS = 35.0
_FITTED_ON = 150  # rows a tree; of more of them one alone would hardly err
_MODELS = tuple(f"tree-{number}" for number in range(SIZES[-1]))


@dataclass(slots=True)
class Arrived:
    """How many of the asked models' outputs were in the answers, and how many answers left and were read in time."""

    asked: int = 0
    usable: int = 0
    by_deadline: int = 0
    read_by_deadline: int = 0

    def __call__(self, predictions: Sequence[Prediction]) -> None:
        """Count what has just been read."""
        now_us = SystemClock().now_us()
        for prediction in predictions:
            self.read_by_deadline += now_us <= prediction.deadline_us
            self.asked += len(prediction.outputs)
            self.usable += sum(output.outcome is Outcome.OK for output in prediction.outputs)
            self.by_deadline += prediction.answered_us <= prediction.deadline_us

    @property
    def share(self) -> float:
        """Of the outputs asked for, how many took part."""
        return self.usable / max(1, self.asked)


def _declared(name: str, only_with: tuple[str, str] | None) -> tuple[Figure, ...]:
    """Declare the figures of one size of ensemble."""
    return (
        *Kind("", Better.HIGHER, 0.0, 0.001)(f"{name}_in_time", must=at_least(0.999, only_with)),
        *Kind("ms", Better.LOWER, 0.0, 5.0)(f"{name}_p99_over_deadline_ms", must=at_most(5.0, only_with)),
        *SHOWN(f"{name}_left_by_deadline", f"{name}_outputs_arrived"),
        *recorded(f"{name}_", "p50_ms", "p99_ms", "error", "sender_late_p99_ms", "queries_sent"),
        *recorded(f"{name}_", "lost", "defaults", "late", lost=exactly(0, only_with)),
        *recorded(f"{name}_waiting_", "p50_ms", "p99_ms", "error", "lost"),
    )


FIGURES = Figures(*(_declared(f"models_{size}", None if size in FEW else IN_FULL) for size in SIZES))


async def run(stage: Stage) -> Result:
    """Measure each size of ensemble, by the deadline and waiting for all."""
    sizes = FEW if stage.short else SIZES
    data = digits()
    rows, labels = make_rows(data, sizes[-1])
    deployment = Deployment(
        topics.new_prefix(NAME),
        tuple(_application(how, size) for size in sizes for how in ("deadline", "patient")),
        replayed.package(stage.folder, _MODELS[: sizes[-1]], rows, "late"),
        roles=("selection", "worker"),
        settings={"log_level": "warning", "selection": {"margin_ms": _MARGIN_MS}},
    )
    inputs = [Tensor.of(row) for row in rows]
    figures: dict[str, float] = {}
    async with deployed(stage, deployment) as driver:
        for size in sizes:
            figures |= await _measure(driver, size, inputs, labels.tolist())
    return Result(
        NAME,
        figures=figures,
        parameters={
            "form": stage.form,
            "rate": RATE,
            "asked_rate": ASKED_RATE,
            "seconds": _seconds(stage, RATE),
            "queries": _QUERIES,
            "deadline_ms": DEADLINE_MS,
            "margin_ms": _MARGIN_MS,
            "dawdles_ms": DAWDLES_MS,
            "dawdles": DAWDLES,
            "seed": stage.seed,
        },
    )


def make_rows(data: Digits, models: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return what each tree says about the test rows and how many ms it dawdles (n, 2 * models); the labels (n,)."""
    random = np.random.default_rng(0)
    late = (random.random((len(data.test_y), models)) < DAWDLES) * DAWDLES_MS
    return np.hstack([trees(data, models, _FITTED_ON), late]).astype(np.uint8), data.test_y


async def _measure(driver: Driver, size: int, inputs: Sequence[Tensor], labels: Sequence[int]) -> dict[str, float]:
    name, stage, rate = f"models_{size}", driver.stage, min(RATE, ASKED_RATE / size)
    await driver.greet(f"patient-{size}", inputs[0])
    warmed = _rows(stage, f"patient-{size}", 3 * size, inputs, labels)
    await driver.at(_WARM_UP_RATE, warmed, _WARM_UP_S, int(_PATIENCE_MS * 1e3))
    offsets_us = list(arrivals.until(stage.arrivals.at(rate, stage.seed), _seconds(stage, rate)))
    arrived = Arrived()
    asked = _rows(stage, f"deadline-{size}", 3 * size + 1, inputs, labels)
    by_deadline = await driver.drive(offsets_us, asked, int(DEADLINE_MS * 1e3), arrived, drain_s=10)
    asked = _rows(stage, f"patient-{size}", 3 * size + 2, inputs, labels)
    patient = await driver.drive(offsets_us, asked, int(_PATIENCE_MS * 1e3), drain_s=10)
    return {**_deadline(name, by_deadline, arrived), **_patient(name, patient)}


def _rows(stage: Stage, application: str, number: int, inputs: Sequence[Tensor], labels: Sequence[int]) -> Rows:
    """Return a workload with ids of its own: an id is answered once."""
    return Rows(application, inputs, labels, seed=stage.seed * 1_000 + number)


def _deadline(name: str, stretch: Stretch, arrived: Arrived) -> dict[str, float]:
    measured = stretch.recorder.figures()
    return {
        f"{name}_in_time": arrived.read_by_deadline / max(1, measured["queries_sent"]),
        f"{name}_left_by_deadline": arrived.by_deadline / max(1, measured["predictions_distinct"]),
        f"{name}_p50_ms": measured["p50_ms"],
        f"{name}_p99_ms": measured["p99_ms"],
        f"{name}_p99_over_deadline_ms": measured["p99_ms"] - DEADLINE_MS,
        f"{name}_error": measured.get("error", 1.0),
        f"{name}_outputs_arrived": arrived.share,
        f"{name}_sender_late_p99_ms": measured["sender_late_p99_ms"],  # of a loop that waits for nothing but its turn
        **{f"{name}_{count}": measured[count] for count in ("queries_sent", "lost", "defaults", "late")},
    }


def _patient(name: str, stretch: Stretch) -> dict[str, float]:
    measured = stretch.recorder.figures()
    return {
        f"{name}_waiting_p50_ms": measured["p50_ms"],
        f"{name}_waiting_p99_ms": measured["p99_ms"],
        f"{name}_waiting_error": measured.get("error", 1.0),
        f"{name}_waiting_lost": measured["lost"],
    }


def _application(how: str, size: int) -> Application:
    slo_ms = DEADLINE_MS if how == "deadline" else _PATIENCE_MS
    return Application(f"{how}-{size}", _MODELS[:size], "exp4", slo_ms=slo_ms)


def _seconds(stage: Stage, rate: float) -> float:
    """Return how long a stretch is, in the full form long enough for the queries that are counted."""
    return _SHORT_SECONDS if stage.short else max(_SECONDS, stage.seconds, _QUERIES / rate)


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "ensembles of 1 to 16 models, some late at random: answers by the deadline against waiting for all",
    short=True,
)
