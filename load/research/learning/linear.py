"""`linear`: which of four models is right depends on a query's features, and a little on who asks.

Each query has an angle, drawn uniformly; its cosine and sine are its features. Model k is right with probability
0.5 + 0.45 * cos(angle - 90 k degrees - turn of the user). So each model is best for a quarter of the queries, and none
is right more often than another over all. Users are turned by up to 30 degrees. Three applications see the same rows in
the same order, with a state for each user: `linucb` and `linear_thompson` go by the features, `exp3` cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import TYPE_CHECKING

import numpy as np

from load.figures import ERROR, IN_FULL, NONE, Better, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.research.learning.personal import nth_of_user
from load.research.learning.replay import Replay
from load.research.models import recorded as replayed
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from load.harness.openloop import Asked
    from load.harness.system import Stage
    from schemas.records import Query

NAME = "linear"
LANES = {"linucb": {"features": 2.0}, "linear_thompson": {"features": 2.0}, "exp3": {}}
MODELS = ("east", "north", "west", "south")
LEARNT = 50  # feedbacks of a user, after which the error is shown by itself
_USERS, _TURN = 20, pi / 6
_QUERIES, _FEW = 8_000, 1_600  # of each application
# Queries a second, all three applications: a user's come two a second, so that most feedback is learnt before the next.
_RATE = 120.0
_SLO_MS = 2_000.0  # what is learnt is measured here, not how fast answers come
_BIN = 20  # feedbacks of a user, of a point on the curves


@dataclass(frozen=True, slots=True)
class Rows:
    """Queries and what each model says about them.

    Attributes:
        answers: (n, models) uint8; 1 is right.
        chances: (n, models) that an answer is right.
        features: (n, 2) cosine and sine of the angle.
        users: (n,) who asks.
    """

    answers: NDArray[np.uint8]
    chances: NDArray[np.float64]
    features: NDArray[np.float64]
    users: NDArray[np.int64]


def rows(count: int, seed: int) -> Rows:
    """Draw queries, and what the models say about them."""
    random = np.random.default_rng(seed)
    turns, users = random.uniform(-_TURN, _TURN, _USERS), random.integers(0, _USERS, count)
    angles = random.uniform(0.0, 2.0 * pi, count)
    directions = np.arange(len(MODELS)) * (2.0 * pi / len(MODELS))
    chances = 0.5 + 0.45 * np.cos(angles[:, None] - directions - turns[users, None])
    answers = (random.random(chances.shape) < chances).astype(np.uint8)
    return Rows(answers, chances, np.column_stack([np.cos(angles), np.sin(angles)]), users)


class FeatureReplay(Replay):
    """Queries with features, of users; the right answer is 1."""

    def __init__(self, asked: Rows, seed: int) -> None:
        super().__init__([*map(_named, LANES)], asked.answers, np.ones(len(asked.users), np.uint8), seed)
        self.asked = asked

    def ask(self, query: Query, lane: int, t: int) -> Asked:
        """Say who asks, and the features."""
        features = tuple(self.asked.features[t].tolist())
        return super().ask(query._replace(context=f"user-{self.asked.users[t]}", features=features), lane, t)


_SAVED = Kind("", Better.HIGHER, 0.0, 0.02)
FIGURES = Figures(
    ERROR("linucb_error", "linear_thompson_error", must=at_most(0.2, IN_FULL)),
    ERROR("exp3_error", "best_single_error", "best_by_features_error"),
    _SAVED("linucb_saved", "linear_thompson_saved", must=at_least(0.2)),
    *(ERROR(f"{lane}_error_after_{LEARNT}", f"{lane}_regret") for lane in LANES),
    recorded("", *FAULTS_OF_A_STRETCH, lost=NONE),
)


async def run(stage: Stage) -> Result:
    """Replay, and set the errors beside those of the best model, and of the best one for each query."""
    replay = FeatureReplay(rows(_FEW if stage.short else _QUERIES, stage.seed), stage.seed)
    deployment = Deployment(
        topics.new_prefix(NAME),
        tuple(Application(_named(n), MODELS, n, p, per_context=True, slo_ms=_SLO_MS) for n, p in LANES.items()),
        replayed.package(stage.folder, MODELS, replay.rows),
        roles=("selection", "joiner", "learner"),
        settings={"log_level": "warning", "selection": {"inline": MODELS}},
    )
    gaps = np.random.default_rng(stage.seed).exponential(1e6 / _RATE, replay.wrong.size)
    async with deployed(stage, deployment, Tensor.of(replay.rows[0])) as driver:
        offsets_us = np.cumsum(gaps).astype(np.int64).tolist()
        stretch = await driver.drive(offsets_us, replay, int(_SLO_MS * 1e3), replay.judge, drain_s=30)
    return Result(
        NAME,
        figures={**errors(replay), **stretch.faults},
        parameters={"form": stage.form, "queries": replay.wrong.size, "rate": _RATE, "seed": stage.seed},
        series={"error": curves(replay)},
    )


def errors(replay: FeatureReplay) -> dict[str, float]:
    """Return the errors; those in hindsight; the regret by lane; and what features save beside the best model.

    The regret is the error above that of the model that suits each query best: what nobody could go below.
    """
    chances, known = replay.asked.chances, nth_of_user(replay.asked.users) > LEARNT
    found = dict(zip(LANES, replay.wrong.mean(axis=1).tolist(), strict=True))
    best, suited = (
        float((replay.rows != 1).mean(axis=0).min()),
        replay.rows[np.arange(len(chances)), chances.argmax(axis=1)],
    )
    least = float((suited != 1).mean())
    return {
        **{f"{lane}_error": error for lane, error in found.items()},
        **{f"{lane}_regret": error - least for lane, error in found.items()},
        **{
            f"{lane}_error_after_{LEARNT}": float(wrong[known].mean()) if known.any() else 0.0
            for lane, wrong in zip(LANES, replay.wrong, strict=True)
        },
        **{f"{lane}_saved": best - found[lane] for lane in LANES if lane != "exp3"},
        "best_single_error": best,
        "best_by_features_error": least,
    }


def curves(replay: FeatureReplay) -> list[dict[str, float]]:
    """Return each application's error by how much feedback the query's user had given before."""
    before = nth_of_user(replay.asked.users) - 1
    bins = before // _BIN
    return [
        {"feedback": int(b) * _BIN, **dict(zip(LANES, replay.wrong[:, bins == b].mean(axis=1).tolist(), strict=True))}
        for b in np.unique(bins)
    ]


def _named(lane: str) -> str:
    return lane.replace("_", "-")


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "models that suit different features, users who differ a little: linucb and linear_thompson beside exp3",
    short=True,
)
