"""`cascade`: a cheap model first, a dear one where the cheap one is in doubt: what is saved, and what it costs.

Two parts. In the first the policy alone is played against MNIST predictions of public models: a decision tree and a
forest answer first, and where they differ three nearest neighbours are asked. In the second, on real Kafka, a linear
model of MNIST answers first, and a kernel SVM is asked where that is in doubt. Three applications see the same rows:
`dear` asks the SVM alone, `cascade` holds a risk, `budgeted` holds a budget. All learn from every label. The cost is
the CPU of the models' own code: of a row, measured alone, times the rows that were asked. So other work on the machine
does not count, and the cheap model does. Beside it stand the time that models took in their workers, and the CPU of
whole workers, which read and write as much for a cheap row as for a dear one. Without the files, digits take the place
of MNIST.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from load.errors import MissingDataError
from load.figures import CPU_US, ERROR, IN_FULL, NONE, SHOWN, Better, Figures, Kind, at_most
from load.harness import topics
from load.harness.data import DATA, MNIST_ANSWERS, mnist
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.probes import written
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.training import Digits, cheap_and_dear, digits, rivals
from load.research.learning.cascades import Known, play
from load.research.learning.replay import InOrder
from load.results.results import Result
from policies.cascade import Cascade
from schemas import topics as names
from schemas.records import Application, ModelPredictions, Tensor
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from load.harness.driving import Driver, Stretch
    from load.harness.system import Stage
    from schemas.records import Prediction

NAME: Final = "cascade"
LANES: Final = ("dear", "cascade", "budgeted")
MODELS: Final = ("linear", "svm")
RISK: Final = 0.01  # a loss of all queries; the excess over the SVM's error, at most
BUDGET: Final = 0.3
_PUBLIC: Final = ("tree", "rf40", "knn3")  # of the published predictions, by the names in their file
_PUBLIC_RISK: Final = 0.035
_RATE: Final = 120.0  # queries a second, of which the SVM takes some milliseconds each
_SLO_MS: Final = 10_000.0  # how good and how dear answers are is measured here, not how fast they come
_QUERIES, _FEW = 10_000, 3_000
_TRAIN = 5_000
_POINTS: Final = 20  # of each curve

_COST = Kind("", Better.LOWER, 0.0, 0.1)
_EXCESS = Kind("", Better.LOWER, 0.0, 0.003)
_MISS = Kind("", Better.LOWER, 0.0, 0.02)
FIGURES = Figures(
    ERROR(
        "replayed_error",
        "replayed_dear_error",
        "dear_error",
        "cascade_error",
        "budgeted_error",
        "linear_error",
        "svm_error",
    ),
    _COST("replayed_asked_share", must=at_most(0.6)),
    _EXCESS("replayed_excess_error", "excess_error", must=at_most(0.003)),
    _MISS("replayed_budget_miss", "budget_miss", must=at_most(0.02)),
    _COST("cost_share", must=at_most(0.6, IN_FULL)),
    SHOWN("cpu_share", "budgeted_cost_share", "time_share", "budgeted_time_share", "asked_share"),
    SHOWN("budgeted_share", "late_steps"),
    CPU_US("linear_row_us", "svm_row_us"),
    *(recorded(f"{lane}_", "p50_ms", "p99_ms", *FAULTS_OF_A_STRETCH, lost=NONE) for lane in LANES),
)


@dataclass
class Judged(InOrder):
    """What an application answered.

    Attributes:
        wrong: by query, whether it is.
        asked: by query, whether the dear model was.
        late: questions for which there was no time.
    """

    wrong: dict[int, bool] = field(default_factory=dict)
    asked: dict[int, bool] = field(default_factory=dict)
    late: int = 0

    def judge(self, predictions: Sequence[Prediction]) -> None:
        """Note what has been answered."""
        for prediction in predictions:
            index = self.order.get(prediction.query_id)
            if index is None or prediction.decision is None:
                continue
            self.wrong[index] = prediction.answer != self.workload.labels[index % len(self.workload.labels)]
            self.asked[index] = any(prediction.decision.arms[arm] == MODELS[-1] for arm in prediction.decision.chosen)
            self.late += any(step.outcome == "late" for step in prediction.steps)

    @property
    def error(self) -> float:
        """The share of wrong answers; a query without one is wrong."""
        return 1.0 - (len(self.wrong) - sum(self.wrong.values())) / max(1, len(self.order))

    @property
    def share(self) -> float:
        """The share of the queries about which the dear model was asked."""
        return sum(self.asked.values()) / max(1, len(self.order))


async def run(stage: Stage) -> Result:
    """Play the public predictions, then ask the three applications one after the other."""
    data, source = load_images(_FEW if stage.short else _QUERIES)
    figures, series = public(stage.seed)
    packages, alone = package(data, stage.folder)
    applications = (
        Application("dear", MODELS[1:], "single", slo_ms=_SLO_MS),
        Application("cascade", MODELS, "cascade", {"risk": RISK}, slo_ms=_SLO_MS),
        Application("budgeted", MODELS, "cascade", {"risk": 0.0, "budget": BUDGET}, slo_ms=_SLO_MS),
    )
    deployment = Deployment(topics.new_prefix(NAME), applications, packages, settings={"log_level": "warning"})
    lanes: dict[str, tuple[Judged, Stretch]] = {}
    async with deployed(stage, deployment, Tensor.of(data.test_x[0])) as driver:
        for turn, lane in enumerate(LANES):
            lanes[lane] = await _asked(driver, lane, data, stage.seed + turn)
        batches = written(stage, deployment.prefix, names.MODEL_PREDICTIONS, ModelPredictions)
    row_us = {name: alone[f"{name}_row_us"] for name in MODELS}
    figures |= {**alone, **measured(lanes), **costs(lanes, batches, row_us)}
    figures["excess_error"] = figures["cascade_error"] - figures["svm_error"]
    for lane in LANES:
        series |= {lane: curve(lanes[lane][0].wrong, lanes[lane][0].asked)}
    parameters: dict[str, float | str] = {"form": stage.form, "seed": stage.seed, "source": source}
    parameters |= {"queries": len(data.test_y), "rate": _RATE, "risk": RISK, "budget": BUDGET}
    return Result(NAME, figures, parameters, series)


async def _asked(driver: Driver, lane: str, data: Digits, seed: int) -> tuple[Judged, Stretch]:
    judged = Judged(Rows(lane, data.inputs, data.labels, seed=seed))
    offsets_us = [int(index * 1e6 / _RATE) for index in range(len(data.test_y))]
    stretch = await driver.drive(offsets_us, judged, int(_SLO_MS * 1e3), judged.judge, drain_s=15)
    return judged, stretch


def load_images(count: int) -> tuple[Digits, str]:
    """Return rows in [0, 1] to train on and to ask about, and where they are from."""
    try:
        folder = DATA / "labelled/mnist"
        (train_x, train_y), (test_x, test_y) = mnist(folder, "train", _TRAIN), mnist(folder, "t10k", count)
        return Digits(_scaled(train_x), train_y, _scaled(test_x), test_y), "mnist"
    except MissingDataError:
        data = digits()
        turns = -(-count // len(data.test_y))
        rows, labels = np.tile(data.test_x, (turns, 1))[:count], np.tile(data.test_y, turns)[:count]
        return Digits(data.train_x, data.train_y, rows, labels), "digits"


def _scaled(rows: np.ndarray) -> np.ndarray:
    return (rows / 255).astype(np.float32)


def package(data: Digits, folder: Path) -> tuple[dict[str, Path], dict[str, float]]:
    """Fit and package both models; returns their folders, and what they do by themselves: errors, and CPU a row."""
    linear, svm = cheap_and_dear(data)
    folders = {name: folder / f"{name}-1" for name in MODELS}
    sample = data.train_x[:256]
    package_sklearn(linear, folders["linear"], "linear", "1", sample, output="scores", convert="none")
    package_sklearn(svm, folders["svm"], "svm", "1", sample, output="label", convert="none")
    answers = {"linear": linear.predict_proba, "svm": svm.predict}
    return folders, {
        "linear_error": float((linear.predict(data.test_x) != data.test_y).mean()),
        "svm_error": float((svm.predict(data.test_x) != data.test_y).mean()),
        **{f"{name}_row_us": row_cpu_us(answers[name], data.test_x) for name in MODELS},
    }


def public(seed: int) -> tuple[dict[str, float], dict[str, list[dict[str, float]]]]:
    """Play both policies against public predictions of MNIST, or those of small models of digits."""
    known = load_public()
    held = play(Cascade(risk=_PUBLIC_RISK, first=2), known, seed)
    paid = play(Cascade(risk=0.0, budget=BUDGET / 3, first=2), known, seed)
    dear = float((known.answers[:, -1] != known.labels).mean())
    figures = {
        "replayed_error": float(held.wrong.mean()),
        "replayed_dear_error": dear,
        "replayed_excess_error": float(held.wrong.mean()) - dear,
        "replayed_asked_share": float(held.asked.mean()),
        "replayed_budget_miss": abs(float(paid.asked.mean()) / (BUDGET / 3) - 1.0),
    }
    return figures, {"replayed": curve(dict(enumerate(held.wrong)), dict(enumerate(held.asked)))}


def load_public() -> Known:
    """Return what three public models say about MNIST, the dear one's last; else models of digits."""
    if not MNIST_ANSWERS.exists():
        rows, labels = rivals(digits(), 10_000)
        return Known(labels, rows[:, [1, 3, 4]])
    with np.load(MNIST_ANSWERS, allow_pickle=False) as held:
        columns = [held["models"].tolist().index(name) for name in _PUBLIC]
        return Known(held["labels"], held["preds"][:, columns])


def measured(lanes: Mapping[str, tuple[Judged, Stretch]]) -> dict[str, float]:
    """Return errors, shares and costs of the applications beside each other."""
    figures: dict[str, float] = {}
    for lane, (judged, stretch) in lanes.items():
        latency = stretch.recorder.latency_ms()
        figures |= {f"{lane}_error": judged.error, **{f"{lane}_{name}": n for name, n in stretch.faults.items()}}
        figures |= {f"{lane}_{name}_ms": latency[name] for name in ("p50", "p99")}
    dear_s = _cpu_s(lanes["dear"][1])
    return figures | {
        "asked_share": lanes["cascade"][0].share,
        "cpu_share": _cpu_s(lanes["cascade"][1]) / dear_s,
        "budgeted_share": lanes["budgeted"][0].share,
        "budget_miss": abs(lanes["budgeted"][0].share / BUDGET - 1.0),
        "late_steps": float(sum(judged.late for judged, _ in lanes.values())),
    }


def costs(
    lanes: Mapping[str, tuple[Judged, Stretch]], batches: Sequence[ModelPredictions], row_us: Mapping[str, float]
) -> dict[str, float]:
    """Return what two applications took of the models, as shares of the one that asks the dear model alone.

    Args:
        lanes: by application.
        batches: that workers have answered.
        row_us: CPU of a row, by model.
    """
    spent_us, took_us = dict.fromkeys(lanes, 0.0), dict.fromkeys(lanes, 0.0)
    for batch in batches:
        for lane, (judged, _) in lanes.items():
            rows = sum(query_id in judged.order for query_id in batch.query_ids)
            spent_us[lane] += row_us[batch.model] * rows
            took_us[lane] += batch.predict_us * rows / max(1, batch.batch_rows)
    return {
        "cost_share": spent_us["cascade"] / spent_us["dear"],
        "budgeted_cost_share": spent_us["budgeted"] / spent_us["dear"],
        "time_share": took_us["cascade"] / took_us["dear"],
        "budgeted_time_share": took_us["budgeted"] / took_us["dear"],
    }


def row_cpu_us(predict: Callable[[np.ndarray], object], rows: np.ndarray) -> float:
    """Return the CPU that a row takes in batches of eight (us), the least of some measurements."""
    found = []
    for start in range(0, min(len(rows), 400) - 80 + 1, 80):
        before_s = time.process_time()
        for at in range(start, start + 80, 8):
            predict(rows[at : at + 8])
        found.append((time.process_time() - before_s) / 80 * 1e6)
    return min(found)


def _cpu_s(stretch: Stretch) -> float:
    """Return the CPU of the workers."""
    return sum(stretch.cpu_s[f"worker.{name}"] for name in MODELS)


def curve(wrong: Mapping[int, bool], asked: Mapping[int, bool]) -> list[dict[str, float]]:
    """Return error and share of the dear model over the queries since the point before."""
    parts = [part for part in np.array_split(sorted(wrong), _POINTS) if len(part)]
    return [
        {
            "queries": int(part[-1]) + 1,
            "error": float(np.mean([wrong[number] for number in part])),
            "asked": float(np.mean([asked[number] for number in part])),
        }
        for part in parts
    ]
