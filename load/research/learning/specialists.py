"""`specialists`: models that know different classes vote, with a weight for each answered class, learnt from feedback.

The rows are the public MNIST predictions of seven models, changed so that each knows four digits: model k those from k
to k + 3. For any other digit its answer is drawn at random, so its own digits are sometimes wrong answers, too. One
weight a model (`exp4`) cannot tell when to trust it. A weight for each class that it answers (`class_vote`) can. Both
see the same rows in the same order and learn from every label. Then the models answer unchanged: they know all digits,
and err alike. Without that file, five models of digits are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from load.figures import ERROR, NONE, SHOWN, Better, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.data import MNIST_ANSWERS
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.models.training import digits, rivals
from load.research.learning import agreement
from load.research.learning.replay import Replay
from load.research.models import recorded as replayed
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from load.harness.system import Stage

NAME = "specialists"
POLICIES = ("class_vote", "exp4")
APPLICATIONS = tuple(policy.replace("_", "-") for policy in POLICIES)
_QUERIES, _FEW = 5_000, 1_500
_RATE = 150.0  # queries a second, both applications; each is a row for every model, which run inside selection
_SLO_MS = 10_000.0  # how good answers are is measured here, not how fast they come
_CLASSES, _KNOWN = 10, 4
_POINTS = 20  # of each curve


def curves(replay: Replay) -> list[dict[str, float]]:
    """Return the error of each policy over the queries since the point before."""
    return [
        {
            "queries": int(part[-1]) + 1,
            **dict(zip(POLICIES, replay.wrong[:, part].mean(axis=1).tolist(), strict=True)),
        }
        for part in np.array_split(np.arange(len(replay.labels)), _POINTS)
    ]


_SAVED = Kind("", Better.HIGHER, 0.0, 0.01)
FIGURES = Figures(
    ERROR("class_vote_error", must=at_most(0.23, ("source", "mnist"))),
    _SAVED("saved_over_plain_vote", must=at_least(0.02)),
    _SAVED("saved_over_exp4", must=at_least(0.1)),
    ERROR("exp4_error", "plain_vote_error", "best_single_error", "alike_*_error"),
    SHOWN("alike_saved_over_plain_vote", "alike_saved_over_exp4"),
    recorded("", *FAULTS_OF_A_STRETCH, lost=NONE),
    recorded("alike_", *FAULTS_OF_A_STRETCH, lost=NONE),
)


async def run(stage: Stage) -> Result:
    """Replay both ways, and set the errors beside a plain vote's and the best model's."""
    rows, labels, source = load_rows(_FEW if stage.short else _QUERIES)
    names = tuple(f"knows-{k}-to-{(k + _KNOWN - 1) % _CLASSES}" for k in range(rows.shape[1]))
    replays = {
        "": Replay(APPLICATIONS, specialised(rows, labels, stage.seed), labels, stage.seed),
        "alike_": Replay([f"{name}-alike" for name in APPLICATIONS], rows, labels, stage.seed + 1),
    }
    deployment = Deployment(
        topics.new_prefix(NAME),
        tuple(
            Application(name, names, policy, slo_ms=_SLO_MS)
            for replay in replays.values()
            for name, policy in zip(replay.applications, POLICIES, strict=True)
        ),
        replayed.package(stage.folder, names, rows),
        roles=("selection", "joiner", "learner"),
        settings={"log_level": "warning", "selection": {"inline": names}},
    )
    offsets_us = [int(index * 1e6 / _RATE) for index in range(len(POLICIES) * len(labels))]
    figures: dict[str, float] = {}
    async with deployed(stage, deployment, Tensor.of(rows[0])) as driver:
        for prefix, replay in replays.items():
            stretch = await driver.drive(offsets_us, replay, int(_SLO_MS * 1e3), replay.judge, drain_s=30)
            figures |= {prefix + name: value for name, value in {**errors(replay), **stretch.faults}.items()}
    return Result(
        NAME,
        figures=figures,
        parameters={
            "form": stage.form,
            "queries": len(offsets_us),
            "rate": _RATE,
            "seed": stage.seed,
            "source": source,
        },
        series={f"{prefix}error": curves(replay) for prefix, replay in replays.items()},
    )


def load_rows(count: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], str]:
    """Return what the models say (count, models), the labels (count,), and where both come from."""
    if not MNIST_ANSWERS.exists():
        return *rivals(digits(), count), "digits"
    rows, labels, _ = agreement.load_rows(count)
    return rows, labels, "mnist"


def specialised(rows: NDArray[np.uint8], labels: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Return the rows with anything in the place of what models say about digits that they do not know."""
    random, made = np.random.default_rng(seed), rows.copy()
    for k in range(rows.shape[1]):
        foreign = (labels.astype(np.int64) - k) % _CLASSES >= _KNOWN
        made[foreign, k] = random.integers(0, _CLASSES, int(foreign.sum()))
    return made


def errors(replay: Replay) -> dict[str, float]:
    """Return the policies' errors, what others would have had, and what a weight for each class saves."""
    found = dict(zip(POLICIES, replay.wrong.mean(axis=1).tolist(), strict=True))
    plain = float((agreement.vote(replay.rows) != replay.labels).mean())
    return {
        **{f"{policy}_error": error for policy, error in found.items()},
        "plain_vote_error": plain,
        "best_single_error": float((replay.rows != replay.labels[:, None]).mean(axis=0).min()),
        "saved_over_exp4": found["exp4"] - found["class_vote"],
        "saved_over_plain_vote": plain - found["class_vote"],
    }


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "models that know different classes: a weight for each class that a model answers, against one a model",
    short=True,
)
