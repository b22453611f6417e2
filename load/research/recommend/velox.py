"""`velox`: ratings of films, answered by each user's weights on features that a model computes (Velox, CIDR 2015).

The ratings are made up (`load/research/models/movies.py`). Three applications are asked the same, by policy `ridge`.
`personal` has a state for each user, `common` one for all. `retrained` is as `personal`, but gets features that were
trained on more ratings while it is asked. At a quarter they learn beside the old ones. Then the learner is killed. Then
they learn from the ratings of the first quarter (`skysail app backfill`). At three quarters the old ones go.

Then a crowd comes: each of 100,000 users asks once and rates the film. Last, the arithmetic alone: the time of an
update and of an answer by dimension.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from load.figures import FAULTS, IN_FULL, NONE, PER_S, RIGHT, SHOWN, SHOWN_MS, Better, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.openloop import Asked
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.wire import Wire
from load.harness.workload import query_id
from load.research.learning.personal import nth_of_user
from load.research.learning.replay import InTurns
from load.research.models import movies
from load.results.results import Result
from policies.lessons import Lesson
from policies.ridge import Ridge
from schemas import topics as skysail
from schemas.codec import Codec
from schemas.records import Application, Query, Tensor
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.driving import Driver
    from load.harness.system import Stage
    from schemas.records import Prediction

NAME = "velox"
PERSONAL, COMMON, RETRAINED = LANES = ("personal", "common", "retrained")
OLD, NEW = "few", "many"  # the functions of `load.research.models.movies`, and the models
HISTORY = (0, 1, 2, 5, 10, 20, 40)  # earlier ratings of a user: edges
DIMENSIONS = (8, 16, 32, 64)
_CROWD = "crowd"
_QUERIES, _FEW_QUERIES = 8_000, 2_000  # of each application
_USERS, _FEW_USERS, _FIRST = 150, 50, 5
_GUESTS, _FEW_GUESTS = 100_000, 10_000
WAVE = 10_000  # guests that come at once: an application may let 25,000 queries wait
_RATE = 120.0  # queries a second, all applications: most ratings are learnt before their user asks again
_SLO_MS, _PATIENT_MS = 10_000.0, 300_000.0  # how good answers are is measured here, not how fast they come
_DRAIN_S = 240.0
_AROUND_US = 2_000_000  # after a change, for which the longest answer is shown
_TIMED = 400
_DEFAULT = 3.5


class RatedFilms(InTurns):
    """Asks about the same films for the same users.

    Args:
        users: (n,) who asks.
        films: (n, 1) int32, about which.
        ratings: (n,) the truth.
        seed: of the ids.

    Attributes:
        changes: what is done before the query with that index is asked.
        missed: (lanes, n) the answer less the rating; the default output where there was none.
        longest_us: that an answer of `retrained` took after a change.
        weights: how often each set of models has answered there.
    """

    def __init__(
        self, users: NDArray[np.int64], films: NDArray[np.int32], ratings: NDArray[np.float64], seed: int
    ) -> None:
        super().__init__(LANES, seed)
        self.users, self.films, self.ratings = users, films, ratings
        self.changes: Mapping[int, Callable[[], None]] = {}
        self.missed = np.tile(_DEFAULT - ratings, (len(LANES), 1))
        self.longest_us = 0
        self.weights: dict[str, int] = defaultdict(int)
        self._changed_us: list[int] = []

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`."""
        if index in self.changes:
            self._changed_us.append(intended_us)
            self.changes[index]()
        return super().__call__(index, intended_us)

    def ask(self, query: Query, lane: int, t: int) -> Asked:
        """Return who asks about which film."""
        asked = query._replace(input=Tensor.of(self.films[t]), context=f"user-{self.users[t]}")
        return Asked(asked, float(self.ratings[t]))

    def take(self, prediction: Prediction, lane: int, t: int) -> None:
        """Note by how much the answer misses, and the longest that one of `retrained` took after a change."""
        if isinstance(prediction.answer, float):
            self.missed[lane, t] = prediction.answer - self.ratings[t]
        if LANES[lane] != RETRAINED:
            return
        self.weights["+".join(output.model for output in prediction.outputs)] += 1
        if any(0 <= prediction.sent_us - changed_us < _AROUND_US for changed_us in self._changed_us):
            self.longest_us = max(self.longest_us, prediction.answered_us - prediction.sent_us)


@dataclass(frozen=True, slots=True)
class Guests:
    """Asks once for each user of a crowd."""

    who: movies.Users
    seed: int
    first: int = 0

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return the query of guest number `first + index`."""
        index += self.first
        number = np.array([index % len(self.who.kindness)])
        film = (number * 7_919) % movies.FILMS
        rating = float(movies.ratings(self.who, number, film, self.seed + index)[0])
        row = Tensor.of(film.astype(np.int32))
        query = Query(query_id(self.seed, index), _CROWD, row, f"guest-{index}", intended_us, slo_ms=_PATIENT_MS)
        return Asked(query, rating)


_RMSE = Kind("", Better.LOWER, 0.0, 0.03)
_SAVED = Kind("", Better.HIGHER, 0.0, 0.05)
_COST_US = Kind("us", Better.LOWER, 1.0)
FIGURES = Figures(
    _RMSE("personal_rmse", "common_rmse", "retrained_rmse", "films_rmse", "least_rmse"),
    _SAVED("saved", must=at_least(0.1, IN_FULL)),
    _SAVED("retrained_saved"),
    _RMSE(*(f"{lane}_rmse_{least}" for lane in LANES for least in HISTORY)),
    SHOWN("users", "answers_of_few", "answers_of_both", "answers_of_many", "learner_restarts"),
    RIGHT("backfilled", must=at_least(1)),
    SHOWN_MS("switch_max_ms"),
    SHOWN("guests"),
    FAULTS("guests_lost", "guests_defaults", must=NONE),
    PER_S("guests_answered_per_s", "guests_learnt_per_s"),
    _COST_US(*(f"update_{dimension}_us" for dimension in DIMENSIONS)),
    _COST_US(*(f"answer_{dimension}_us" for dimension in DIMENSIONS)),
    SHOWN(*(f"numbers_{dimension}" for dimension in DIMENSIONS)),
    recorded("", *FAULTS_OF_A_STRETCH, lost=NONE, duplicates=NONE),
    FAULTS("update_growth", must=at_most(16.0)),
)


async def run(stage: Stage) -> Result:
    """Ask the three applications, then let the crowd come, then time the arithmetic."""
    replay, guests = asked(stage), _FEW_GUESTS if stage.short else _GUESTS
    served = {lane: _application(lane, (OLD,), per_context=lane != COMMON) for lane in LANES}
    crowd = _application(_CROWD, (NEW,), per_context=True)
    deployment = Deployment(
        topics.new_prefix(NAME),
        (*served.values(), crowd),
        _packages(stage),
        roles=("selection", "joiner", "learner"),
        settings={"log_level": "warning", "selection": {"inline": (OLD, NEW)}},
    )
    count = replay.missed.size
    gaps = np.random.default_rng(stage.seed).exponential(1e6 / _RATE, count)
    async with deployed(stage, deployment, Tensor.of(replay.films[0])) as driver:
        with closing(Wire(stage.bootstrap, deployment.prefix, stage.properties)) as wire:
            teaching = _Teaching(driver, deployment.models[NEW])
            replay.changes = _changes(driver, wire, served[RETRAINED], count, teaching.begin)
            offsets_us = np.cumsum(gaps).astype(np.int64).tolist()
            stretch = await driver.drive(offsets_us, replay, int(_SLO_MS * 1e3), replay.judge, drain_s=30)
            taught = await asyncio.wrap_future(teaching.taught)
        restarts = driver.system.restarts.get("learner", 0)
        come = await _crowd(driver, guests, stage.seed + 1)
    figures = {
        **errors(replay),
        **{f"answers_of_{name}": replay.weights[key] for name, key in _BY_MODELS.items()},
        "learner_restarts": restarts,
        "backfilled": taught,
        "switch_max_ms": replay.longest_us / 1e3,
        **come,
        **costs(stage.seed),
        **stretch.faults,
    }
    return Result(
        NAME,
        figures,
        {"form": stage.form, "queries": count, "rate": _RATE, "seed": stage.seed, "data": "made up"},
        series={"error": curves(replay)},
    )


async def _crowd(driver: Driver, guests: int, seed: int) -> dict[str, float]:
    """Let so many users ask once each, in waves; each wave comes when the one before has been learnt."""
    who = movies.users(guests, seed)
    waves = [await driver.backlog(WAVE, Guests(who, seed, first), _DRAIN_S) for first in range(0, guests, WAVE)]
    return {
        "guests": guests,
        "guests_lost": sum(wave.faults["lost"] for wave in waves),
        "guests_defaults": sum(wave.faults["defaults"] for wave in waves),
        "guests_answered_per_s": median(wave.answered_per_s for wave in waves),
        "guests_learnt_per_s": median(wave.learnt_per_s for wave in waves),
    }


_BY_MODELS = {"few": OLD, "both": f"{OLD}+{NEW}", "many": NEW}


class _Teaching:
    """A backfill, begun from the thread that asks."""

    def __init__(self, driver: Driver, package: Path) -> None:
        self._driver, self._package = driver, package
        self._loop = asyncio.get_running_loop()
        self.taught: Future[int]

    def begin(self) -> None:
        """Begin it; `taught` has its result."""
        self.taught = asyncio.run_coroutine_threadsafe(
            self._driver.system.backfill(RETRAINED, self._package), self._loop
        )


def asked(stage: Stage) -> RatedFilms:
    """Draw who asks about which film, and the ratings: new users come all the time, and all there are ask alike."""
    users, count = (_FEW_USERS, _FEW_QUERIES) if stage.short else (_USERS, _QUERIES)
    random, who = np.random.default_rng(stage.seed), movies.users(users, stage.seed)
    there = _FIRST + (users - _FIRST) * np.arange(count) / count
    number = (random.random(count) * there).astype(np.int64)
    film = random.integers(0, movies.FILMS, count)
    ratings = movies.ratings(who, number, film, stage.seed)
    return RatedFilms(number, film.astype(np.int32)[:, None], ratings, stage.seed)


def _application(name: str, models: tuple[str, ...], *, per_context: bool) -> Application:
    parameters = {"features": float(movies.FEATURES), "low": movies.LEAST, "high": movies.MOST}
    return Application(
        name,
        models,
        "ridge",
        parameters,
        per_context=per_context,
        slo_ms=_SLO_MS,
        max_slo_ms=_PATIENT_MS,
        default_output=_DEFAULT,
        loss="squared",
        span=movies.MOST - movies.LEAST,
    )


def _packages(stage: Stage) -> dict[str, Path]:
    folders = {name: stage.folder / name for name in (OLD, NEW)}
    for name, folder in folders.items():
        sample = np.zeros((5, 1), np.int32)
        package_function(f"load.research.models.movies:{name}", folder, name, "1", sample, output="scores")
    return folders


def _changes(
    driver: Driver, wire: Wire, served: Application, count: int, backfill: Callable[[], None]
) -> dict[int, Callable[[], None]]:
    """Return what happens from a quarter to three: the new model comes, the learner dies, the old model goes."""

    def configure(*models: str) -> None:
        changed = replace(served, models=models)
        wire.produce(skysail.APPLICATIONS, changed.name.encode(), Codec().encode(changed))

    return {
        count // 4: lambda: configure(OLD, NEW),
        count * 5 // 16: lambda: os.kill(driver.system.pids["learner"], signal.SIGKILL),
        count * 3 // 8: backfill,
        count * 3 // 4: lambda: configure(NEW),
    }


def errors(replay: RatedFilms) -> dict[str, float]:
    """Return root mean squares of what is missed, by lane and by how often the user had rated before.

    `films_rmse` is that of each film's mean rating, `least_rmse` that of whoever knows all but the noise.
    """
    before = nth_of_user(replay.users) - 1
    means = movies.computed(movies.OTHERS)[replay.films[:, 0], 0] + movies.MEAN
    last = len(replay.users) * 3 // 4  # from then on the new features answer alone
    found = {
        **{f"{lane}_rmse": _rms(missed) for lane, missed in zip(LANES, replay.missed, strict=True)},
        "films_rmse": _rms(means - replay.ratings),
        "least_rmse": movies.NOISE,
        "users": len(np.unique(replay.users)),
        "saved": _rms(replay.missed[1]) - _rms(replay.missed[0]),
        "retrained_saved": _rms(replay.missed[0, last:]) - _rms(replay.missed[2, last:]),
    }
    for least, beyond in zip(HISTORY, (*HISTORY[1:], len(before) + 1), strict=True):
        theirs = (before >= least) & (before < beyond)
        found |= {
            f"{lane}_rmse_{least}": _rms(missed[theirs]) for lane, missed in zip(LANES, replay.missed, strict=True)
        }
    return found


def _rms(missed: NDArray[np.floating]) -> float:
    return float(np.sqrt((missed**2).mean())) if missed.size else 0.0


def curves(replay: RatedFilms) -> list[dict[str, float]]:
    """Return the error of each lane over the queries since the point before."""
    return [
        {
            "queries": int(part[-1]) + 1,
            **{lane: _rms(missed[part]) for lane, missed in zip(LANES, replay.missed, strict=True)},
        }
        for part in np.array_split(np.arange(len(replay.ratings)), 20)
    ]


def costs(seed: int) -> dict[str, float]:
    """Return the median time of an update and of an answer by dimension, of one user and model, and what is kept."""
    found: dict[str, float] = {}
    for dimension in DIMENSIONS:
        policy, random = Ridge(features=dimension), np.random.default_rng(seed)
        rows = [Tensor.of(row) for row in random.normal(size=(_TIMED, dimension))]
        state, updates, answers = policy.init(1), [], []
        for row in rows:
            begun = time.perf_counter()
            state = policy.observe(state, 1, Lesson((0,), (1.0,), (0.1,), scores=(row,), label=3.0))
            learnt = time.perf_counter()
            policy.reading(state, 1)({0: row})
            updates.append(learnt - begun)
            answers.append(time.perf_counter() - learnt)
        found[f"update_{dimension}_us"] = float(np.median(updates)) * 1e6
        found[f"answer_{dimension}_us"] = float(np.median(answers)) * 1e6
        found[f"numbers_{dimension}"] = len(state)
    found["update_growth"] = found[f"update_{DIMENSIONS[-1]}_us"] / found[f"update_{DIMENSIONS[0]}_us"]
    return found
