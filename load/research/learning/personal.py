"""`personal`: each user has a model that suits them, and feedback finds it (Clipper, NSDI 2017, figure 10).

Six models of spoken digits are each made for one speaker, and the users are those speakers. Three applications run side
by side. `global` knows no users (Exp3). `bandit` keeps an Exp3 state a user. `full` keeps an Exp4 state a user, which
asks every model. Data, order and parameters are those of the numpy reference, so the errors can be compared. Several
runs go through the system at once, each with states of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from load.figures import ERROR, NONE, Figures, at_most
from load.harness import topics
from load.harness.data import DATA, need
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.research.learning.replay import Replay
from load.research.models import recorded as replayed
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Tensor

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.openloop import Asked
    from load.harness.system import Stage
    from schemas.records import Query

NAME = "personal"
PREDICTIONS = DATA / "derived/fsdd_preds.npz"
MODELS = tuple(f"speaker-{number}" for number in range(6))
BANDIT = {"eta": 0.1, "gamma": 0.1, "share": 0.0}  # these and the next are the reference's
FULL = {"eta": 0.7, "share": 0.0}
LANES = {"global": ("exp3", BANDIT), "bandit": ("exp3", BANDIT), "full": ("exp4", FULL)}
LEARNT = 100  # feedbacks of a user, after which the error is shown by itself
_BIN = 25  # feedbacks of a user, of a point on the curves
_RUNS = 4
# Queries a second and run, all three applications: one of each user's four times a second, so that most feedback is
# learnt before that user's next query, as in the reference.
_RATE = 75.0
_SEED = 7  # of the reference
_SLO_MS = 2_000.0  # what is learnt is measured here, not how fast answers come
_PUBLISHED = {"best_single": 0.290, "global": 0.323, "bandit": 0.150, "bandit_after_100": 0.085, "full": 0.031}


class PersonalReplay(Replay):
    """Several runs at once, with states of their own: each asks every application.

    Args:
        rows: (n, 6) uint8, what each model says about recording t.
        labels: (n,) the truth.
        users: (n,) the speakers.
        runs: how many.
        seed: of the ids.
    """

    def __init__(
        self, rows: NDArray[np.uint8], labels: NDArray[np.uint8], users: NDArray[np.str_], runs: int, seed: int
    ) -> None:
        super().__init__([*LANES] * runs, rows, labels, seed)
        self.users, self.runs = users, runs

    def ask(self, query: Query, lane: int, t: int) -> Asked:
        """Name the state that learns."""
        run = f"run{lane // len(LANES)}"
        context = run if query.application == "global" else f"{run}-{self.users[t]}"
        return super().ask(query._replace(context=context), lane, t)

    @property
    def by_lane(self) -> NDArray[np.bool_]:
        """What was wrong: (lanes, runs, n)."""
        return self.wrong.reshape(self.runs, len(LANES), -1).swapaxes(0, 1)

    def errors(self) -> dict[str, float]:
        """Return the share of wrong answers by application, of all queries and of those to a user known by then."""
        known = nth_of_user(self.users) > LEARNT
        return {
            name: value
            for lane, wrong in zip(LANES, self.by_lane, strict=True)
            for name, value in (
                (f"{lane}_error", float(wrong.mean())),
                (f"{lane}_error_after_{LEARNT}", float(wrong[:, known].mean()) if known.any() else 0.0),
                (f"{lane}_error_spread", float(wrong.mean(axis=1).std())),
            )
        }

    def curves(self) -> list[dict[str, float]]:
        """Return each application's error by how much feedback the query's user had given before."""
        before = nth_of_user(self.users) - 1
        return [
            {
                "feedback": start,
                **{
                    lane: float(wrong[:, (before >= start) & (before < start + _BIN)].mean())
                    for lane, wrong in zip(LANES, self.by_lane, strict=True)
                },
            }
            for start in range(0, int(before.max()) + 1, _BIN)
        ]


FIGURES = Figures(
    ERROR("bandit_error", must=at_most(0.16)),
    ERROR("full_error", must=at_most(0.035)),
    ERROR("global_error", "best_single_error", "best_per_user_error", "reference_*_error"),
    *(ERROR(f"{lane}_error_after_{LEARNT}", f"{lane}_error_spread") for lane in LANES),
    recorded("", *FAULTS_OF_A_STRETCH, lost=NONE),
)


async def run(stage: Stage) -> Result:
    """Replay, and set the errors beside those of the models in hindsight and of the reference.

    Raises:
        MissingDataError: the predictions are not there.
    """
    rows, labels, users = load_rows()
    replay = PersonalReplay(rows, labels, users, 1 if stage.short else _RUNS, stage.seed)
    deployment = Deployment(
        topics.new_prefix(NAME),
        tuple(Application(n, MODELS, p, q, per_context=True, slo_ms=_SLO_MS) for n, (p, q) in LANES.items()),
        replayed.package(stage.folder, MODELS, rows),
        settings={"log_level": "warning"},
    )
    rate = _RATE * replay.runs
    gaps = np.random.default_rng(stage.seed).exponential(1e6 / rate, replay.wrong.size)
    async with deployed(stage, deployment, Tensor.of(rows[0])) as driver:
        offsets_us = np.cumsum(gaps).astype(np.int64).tolist()
        stretch = await driver.drive(offsets_us, replay, int(_SLO_MS * 1e3), replay.judge, drain_s=30)
    return Result(
        NAME,
        figures={
            **replay.errors(),
            **hindsight(rows, labels, users),
            **{f"reference_{name}_error": error for name, error in _PUBLISHED.items()},
            **stretch.faults,
        },
        parameters={
            "form": stage.form,
            "queries": replay.wrong.size,
            "runs": replay.runs,
            "rate": rate,
            "seed": stage.seed,
        },
        series={"error": replay.curves()},
    )


def load_rows(path: Path = PREDICTIONS) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.str_]]:
    """Return what the six models say (1,500, 6), the labels and the speakers (1,500,), in the reference's order.

    Raises:
        MissingDataError: the predictions are not there.
    """
    need(path)
    with np.load(path) as file:
        order = np.random.default_rng(_SEED).permutation(len(file["labels"]))
        rows = np.ascontiguousarray(file["preds"][order, : len(MODELS)].astype(np.uint8))
        return rows, file["labels"][order].astype(np.uint8), file["speaker"][order].astype(np.str_)


def hindsight(rows: NDArray[np.uint8], labels: NDArray[np.uint8], users: NDArray[np.str_]) -> dict[str, float]:
    """Return the error of the best model for everybody, and of the best one for each user."""
    wrong = rows != labels[:, None]
    each = [float(wrong[users == user].mean(axis=0).min()) for user in np.unique(users)]
    return {"best_single_error": float(wrong.mean(axis=0).min()), "best_per_user_error": float(np.mean(each))}


def nth_of_user(users: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return for each query the how manyth of its user it is, from 1."""
    numbers = np.zeros(len(users), np.int64)
    for user in np.unique(users):
        mine = np.flatnonzero(users == user)
        numbers[mine] = np.arange(1, len(mine) + 1)
    return numbers


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "users with a model each: a state a user, bandit and full information, against one for all of them",
    short=True,
)
