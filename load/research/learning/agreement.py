"""`agreement`: the more models agree, the fewer answers are wrong (Clipper, NSDI 2017, figure 7).

Seven models' public predictions of MNIST go through two applications side by side. `all` asks the seven, and
`best-missing` all but the best of them. There is no feedback, so weights stay equal and every answer is a plain vote,
which is compared with the vote in numpy. The confidence of an answer is the share of the models that agree with it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from load.figures import ERROR, FAULTS, NONE, SHOWN, Figures, at_most
from load.harness import topics
from load.harness.data import MNIST_ANSWERS, need
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.openloop import Asked
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.research.learning.replay import InTurns
from load.research.models import recorded as replayed
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from load.harness.system import Stage
    from schemas.records import Prediction, Query

NAME = "agreement"
LANES = ("all", "best-missing")
_QUERIES, _FEW = 5_000, 600
_RATE = 150.0  # queries a second, both applications; each is a row for six or seven workers
_SLO_MS = 10_000.0  # how good answers are is measured here, not how fast they come
_ENOUGH = 50  # answers in a bin, for its error to be compared with its neighbour's
_CLASSES = 10


class Answered(NamedTuple):
    """The outcome of one query: the answer (-1 = none), its confidence, and how many outputs agree with it."""

    answer: int
    confidence: float
    agreeing: int


class Replay(InTurns):
    """Keeps the answers.

    Args:
        rows: (n, 7) uint8, what each model says about row t.
        seed: of the ids.

    Attributes:
        answered: per application, by row.
    """

    def __init__(self, rows: NDArray[np.uint8], seed: int) -> None:
        super().__init__(LANES, seed)
        self._rows = rows
        self.answered: dict[str, dict[int, Answered]] = {lane: {} for lane in LANES}

    def ask(self, query: Query, lane: int, t: int) -> Asked:
        """Return what models say."""
        return Asked(query._replace(input=Tensor.of(self._rows[t])))

    def take(self, prediction: Prediction, lane: int, t: int) -> None:
        """Keep the answer."""
        answer = prediction.answer if isinstance(prediction.answer, int) else -1
        agreeing = sum(output.answer == answer for output in prediction.outputs)
        self.answered[prediction.application][t] = Answered(answer, prediction.confidence, agreeing)


FIGURES = Figures(
    *(
        (
            *ERROR(f"{lane}_error", f"{lane}_error_when_*_agree"),
            *SHOWN(f"{lane}_share_when_*_agree"),
            *FAULTS(f"{lane}_off_reference", must=NONE),
        )
        for lane in ("all", "best_missing")
    ),
    FAULTS("all_error_rises", must=NONE),
    FAULTS("best_missing_error_rises"),
    ERROR("best_missing_costs", must=at_most(0.01)),
    ERROR("best_single_error"),
    FAULTS("confidence_off", must=NONE),
    recorded("", *FAULTS_OF_A_STRETCH, lost=NONE),
)


async def run(stage: Stage) -> Result:
    """Replay, and sort the answers by agreement.

    Raises:
        MissingDataError: the predictions are not there.
    """
    rows, labels, names = load_rows(_FEW if stage.short else _QUERIES)
    best = int((rows != labels[:, None]).mean(axis=0).argmin())
    lanes = {"all": names, "best-missing": names[:best] + names[best + 1 :]}
    replay = Replay(rows, stage.seed)
    deployment = Deployment(
        topics.new_prefix(NAME),
        tuple(Application(lane, models, "exp4", slo_ms=_SLO_MS) for lane, models in lanes.items()),
        replayed.package(stage.folder, names, rows),
        roles=("selection", "worker"),
        settings={"log_level": "warning"},
    )
    offsets_us = [int(index * 1e6 / _RATE) for index in range(len(rows) * len(LANES))]
    async with deployed(stage, deployment, Tensor.of(rows[0])) as driver:
        stretch = await driver.drive(offsets_us, replay, int(_SLO_MS * 1e3), replay.judge, drain_s=30)
    every = figures("all", replay.answered["all"], rows, labels)
    missing = figures("best_missing", replay.answered["best-missing"], np.delete(rows, best, axis=1), labels)
    return Result(
        NAME,
        figures={
            **every,
            **missing,
            "best_missing_costs": missing["best_missing_error"] - every["all_error"],
            "best_single_error": float((rows != labels[:, None]).mean(axis=0).min()),
            "confidence_off": _confidence_off(replay.answered["all"], len(names)),
            **stretch.faults,
        },
        parameters={
            "form": stage.form,
            "queries": len(offsets_us),
            "rate": _RATE,
            "seed": stage.seed,
            "missing": names[best],
        },
        series={"agreement": by_agreement(replay.answered["all"], labels, len(names))},
    )


def load_rows(count: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[str, ...]]:
    """Return the first rows: what seven models say (count, 7), the labels (count,), and the models' names.

    Raises:
        MissingDataError: the predictions are not there.
    """
    need(MNIST_ANSWERS)
    with np.load(MNIST_ANSWERS) as file:
        names = tuple(str(name).replace("_", "-") for name in file["models"])
        return np.ascontiguousarray(file["preds"][:count].astype(np.uint8)), file["labels"][:count], names


def vote(rows: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the label that most columns of `rows` (n, models) say; of equals the one that the first column says."""
    counts = np.stack([(rows == label).sum(axis=1) for label in range(_CLASSES)], axis=1)
    votes = np.take_along_axis(counts, rows.astype(np.int64), axis=1)
    return np.asarray(rows[np.arange(len(rows)), votes.argmax(axis=1)], dtype=np.int64)


def by_agreement(answered: dict[int, Answered], labels: NDArray[np.uint8], models: int) -> list[dict[str, float]]:
    """Return a row for each number of agreeing models that occurs: how many answers, and the share of wrong ones."""
    wrong: dict[int, list[bool]] = {}
    for t, given in answered.items():
        wrong.setdefault(given.agreeing, []).append(given.answer != int(labels[t]))
    return [
        {
            "agreeing": k,
            "share": len(wrong[k]) / len(answered),
            "answers": len(wrong[k]),
            "error": np.mean(wrong[k]).item(),
        }
        for k in range(models + 1)
        if k in wrong
    ]


def figures(
    lane: str, answered: dict[int, Answered], rows: NDArray[np.uint8], labels: NDArray[np.uint8]
) -> dict[str, float]:
    """Return an application's error, in all and by agreement, and how often it differs from the plain vote."""
    bins = by_agreement(answered, labels, rows.shape[1])
    filled = [row["error"] for row in bins if row["answers"] >= _ENOUGH]
    plain = vote(rows)
    wrong = sum(given.answer != int(labels[t]) for t, given in answered.items()) + len(labels) - len(answered)
    return {
        f"{lane}_error": wrong / len(labels),
        **{f"{lane}_error_when_{row['agreeing']}_agree": row["error"] for row in bins},
        **{f"{lane}_share_when_{row['agreeing']}_agree": row["share"] for row in bins},
        f"{lane}_error_rises": sum(after > before for before, after in itertools.pairwise(filled)),
        f"{lane}_off_reference": sum(given.answer != int(plain[t]) for t, given in answered.items()),
    }


def _confidence_off(answered: dict[int, Answered], models: int) -> int:
    """Return how many answers have another confidence than the share of the models that agree."""
    return sum(abs(given.confidence - given.agreeing / models) > 1e-6 for given in answered.values())


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "an ensemble's error by how many of its models agree, and with one of them missing",
    short=True,
)
