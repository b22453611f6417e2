"""`laser`: answers by the deadline with a source of features whose p99 is beyond it, and two speeds beside one (LASER).

Three applications are asked about the same impressions, whose clicks are made up (`load/research/models/clicks.py`), by
one model.
`knows` gets all features from its client. `waits` and `hurries` get those of the page. They find who the user is in the
topic, and look up what the user did lately in a Redis behind a server that lets answers wait: 20 ms at the median and
400 ms at the 99th percentile. The objective is 200 ms. `waits` waits for half of its time, `hurries` not at all. At
three quarters the server is closed.

Then the policy `two_speed` beside each of its halves: where the truth is known, and on Open Bandit by replay.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np
from redis import Redis

from load.errors import MissingDataError
from load.figures import IN_FULL, NONE, P50_MS, P99_MS, SHOWN, SHOWN_MS, Better, Figures, Kind, at_least
from load.harness import topics
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.openloop import Asked
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.research.harness.slow_server import slowed
from load.research.learning.replay import InTurns
from load.research.models import clicks
from load.research.recommend import two_speeds
from load.research.recommend.two_speeds import BOTH, CAMPAIGNS, COLD, LANES, WARM
from load.results.results import Result
from schemas.codec import Codec
from schemas.records import Application, Features, Source, Tensor
from streams.client import Client
from streams.runtime.stores.redis import feature_name
from workers.packages.packaging import package_linear

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from load.harness.system import Stage
    from schemas.records import Prediction, Query

NAME = "laser"
KNOWS, WAITS, HURRIES = APPLICATIONS = ("knows", "waits", "hurries")
LOOKING = (WAITS, HURRIES)
_QUERIES, _FEW_QUERIES = 4_500, 1_000  # of each application
_USERS, _FEW_USERS, _PAGES = 3_000, 700, 50
_RATE = 120.0  # queries a second, all applications
_SLO_MS, _MEDIAN_S, _P99_S = 200.0, 0.02, 0.4
_NORMAL_99 = 2.326348
_DOWN_AFTER_US = 2_000_000  # a store that is silent for a second counts as down
_MODEL, _PROFILES = "clicks", "profiles"
_HALF = clicks.USER // 2  # of a user's features: in the topic, and in Redis
_RUNS, _STEPS, _FEW_STEPS = 3, 5_000, 1_000  # of a market
_ROWS, _FEW_ROWS = 10_000, 1_000  # of Open Bandit


@dataclass(slots=True)
class Answered:
    """What came of one query."""

    sent_us: int
    took_us: int
    score: float
    is_imputed: bool
    is_in_time: bool


class ClickReplay(InTurns):
    """Asks about the same impressions.

    Args:
        shown: what is asked about.
        seed: of the ids.
        close: closes the source of features.

    Attributes:
        answers: by application, by the number of the impression.
        closed_us: when the source was closed.
    """

    def __init__(self, shown: clicks.Impressions, seed: int, close: Callable[[], None]) -> None:
        super().__init__(APPLICATIONS, seed)
        self.shown, self.close = shown, close
        self.answers: dict[str, dict[int, Answered]] = {name: {} for name in APPLICATIONS}
        self.closed_us = 0

    @property
    def last(self) -> int:
        """The number of the impression before which the source is closed."""
        return len(self.shown.users) * 3 // 4

    def ask(self, query: Query, lane: int, t: int) -> Asked:
        """Return a user's query, with as much as the application is told."""
        if t == self.last and not self.closed_us:
            self.closed_us = query.sent_us
            self.close()
        row, asked = self.shown.rows[t], query._replace(context=_user(int(self.shown.users[t])))
        if query.application == KNOWS:
            return Asked(asked._replace(input=Tensor.of(row)))
        return Asked(asked._replace(features=tuple(row[clicks.USER :].tolist())))

    def take(self, made: Prediction, lane: int, t: int) -> None:
        """Note what is answered."""
        scores = made.outputs[0].scores if made.outputs else None
        self.answers[APPLICATIONS[lane]][t] = Answered(
            made.sent_us,
            made.answered_us - made.received_us,
            0.0 if scores is None else float(scores.numpy()[1]),
            bool(made.imputed),
            made.answered_us <= made.deadline_us,
        )


_AUC = Kind("", Better.HIGHER, 0.0, 0.02)
_LOST = Kind("", Better.LOWER, 0.0, 0.01)
_CLICKS = Kind("", Better.HIGHER, 0.1)
FIGURES = Figures(
    Kind("", Better.HIGHER)("in_time", must=at_least(1.0, IN_FULL)),
    _AUC(*(f"{name}_auc" for name in APPLICATIONS), "means_auc"),
    _LOST("waits_auc_lost", "hurries_auc_lost"),
    SHOWN(*(f"{name}_in_time" for name in APPLICATIONS)),
    SHOWN("waits_imputed", "hurries_imputed", "waits_imputed_down"),
    SHOWN_MS("source_p50_ms", "source_p99_ms"),
    P50_MS(*(f"{name}_p50_ms" for name in APPLICATIONS), "waits_down_p50_ms"),
    P99_MS(*(f"{name}_p99_ms" for name in APPLICATIONS), "waits_down_p99_ms"),
    _CLICKS(*(f"market_{lane}" for lane in LANES), "market_best"),
    SHOWN(*(f"market_{lane}_error" for lane in LANES)),
    SHOWN(*(f"market_over_{lane}{end}" for lane in (COLD, WARM) for end in ("", "_error"))),
    Kind("", Better.HIGHER, 0.0, 0.02)("market_gained", must=at_least(0.0, IN_FULL)),
    SHOWN(*(f"obd_{campaign}_{lane}_*" for campaign in CAMPAIGNS for lane in ("logged", *LANES))),
    recorded("", *FAULTS_OF_A_STRETCH, lost=NONE, duplicates=NONE),
)


async def run(stage: Stage) -> Result:
    """Ask, with the source as it is and closed; then let the speeds learn."""
    count, users = (_FEW_QUERIES, _FEW_USERS) if stage.short else (_QUERIES, _USERS)
    shown = clicks.impressions(count, users, _PAGES, stage.seed)
    random = np.random.default_rng(stage.seed)
    draw_s: Callable[[], float] = lambda: float(random.lognormal(log(_MEDIAN_S), log(_P99_S / _MEDIAN_S) / _NORMAL_99))  # noqa: E731
    figures, faults = {}, {}
    with slowed(stage.redis_url, draw_s) as source:
        deployment = _deployment(stage, source.url)
        _fill(stage, deployment.prefix, shown)
        replay = ClickReplay(shown, stage.seed, source.stop)
        offsets_us = np.cumsum(random.exponential(1e6 / _RATE, count * len(APPLICATIONS))).astype(np.int64).tolist()
        async with deployed(stage, deployment, Tensor.of(shown.rows[0])) as driver:
            async with Client(stage.bootstrap, deployment.prefix, stage.properties) as client:
                halves = {_user(number): row[:_HALF] for number, row in enumerate(shown.user_features.tolist())}
                await client.set_features(_PROFILES, halves)
            del source.delays_s[:]
            stretch = await driver.drive(offsets_us, replay, int(_SLO_MS * 1e3), replay.judge)
            delays_ms = np.array(source.delays_s) * 1e3
        faults = stretch.faults
        figures = {"source_p50_ms": float(np.median(delays_ms)), "source_p99_ms": float(np.quantile(delays_ms, 0.99))}
    figures |= answered(replay) | await asyncio.to_thread(market, stage)
    bandit, there = await asyncio.to_thread(open_bandit, stage)
    parameters: dict[str, float | str] = {
        "form": stage.form,
        "queries": count * len(APPLICATIONS),
        "rate": _RATE,
        "seed": stage.seed,
        "open_bandit": there,
    }
    return Result(NAME, figures | bandit | faults, parameters, series={"waits": waited(replay)})


def _deployment(stage: Stage, features_url: str) -> Deployment:
    """Return the three applications, which ask one model inside selection."""
    folder, coefficients = stage.folder / _MODEL, clicks.weights()
    package_linear(np.column_stack([np.zeros(len(coefficients)), coefficients]), np.zeros(2), folder, _MODEL, "1")
    profiles = Source(_PROFILES, _HALF, wait=0.0)
    lately = {WAITS: 0.5, HURRIES: 0.0}
    applications = tuple(
        Application(
            name,
            (_MODEL,),
            "single",
            slo_ms=_SLO_MS,
            default_output=-1,
            sources=(profiles, Source(f"lately-{name}", _HALF, "context", "redis", lately[name]))
            if name in LOOKING
            else (),
        )
        for name in APPLICATIONS
    )
    settings = {"log_level": "warning", "selection": {"inline": (_MODEL,), "features_url": features_url}}
    return Deployment(topics.new_prefix(NAME), applications, {_MODEL: folder}, roles=("selection",), settings=settings)


def _fill(stage: Stage, prefix: str, shown: clicks.Impressions) -> None:
    """Write what users did lately, for each application that looks it up; it is gone after an hour."""
    codec = Codec()
    with Redis.from_url(stage.redis_url) as store, store.pipeline(transaction=False) as pipeline:
        for number, row in enumerate(shown.user_features.tolist()):
            value = codec.encode(Features(tuple(row[_HALF:])))
            for name in LOOKING:
                pipeline.set(feature_name(prefix, f"lately-{name}/{_user(number)}"), value, ex=3_600)
        pipeline.execute()


def _user(number: int) -> str:
    return f"user-{number}"


def answered(replay: ClickReplay) -> dict[str, float]:
    """Return how good answers are while the source is open, how long they took, and what closing it costs."""
    shown, every = replay.shown, [one for its in replay.answers.values() for one in its.values()]
    found = {"in_time": float(np.mean([one.is_in_time for one in every]))}
    for name, its in replay.answers.items():
        before = {t: one for t, one in its.items() if t < replay.last}
        numbers = np.array(sorted(before))
        found[f"{name}_auc"] = clicks.area(np.array([before[t].score for t in numbers]), shown.clicks[numbers])
        found |= _took(name, [*before.values()])
        found[f"{name}_in_time"] = float(np.mean([one.is_in_time for one in its.values()]))
        if name in LOOKING:
            found[f"{name}_imputed"] = float(np.mean([one.is_imputed for one in before.values()]))
    means = shown.rows[: replay.last].copy()
    means[:, _HALF : clicks.USER] = 0.0  # as they are drawn; their mean
    found["means_auc"] = clicks.area(means @ clicks.weights(), shown.clicks[: replay.last])
    found |= {f"{name}_auc_lost": found[f"{KNOWS}_auc"] - found[f"{name}_auc"] for name in LOOKING}
    down = [one for one in replay.answers[WAITS].values() if one.sent_us > replay.closed_us + _DOWN_AFTER_US]
    found["waits_imputed_down"] = float(np.mean([one.is_imputed for one in down])) if down else 0.0
    return found | _took(f"{WAITS}_down", down)


def _took(name: str, answers: Sequence[Answered]) -> dict[str, float]:
    took_ms = [one.took_us / 1e3 for one in answers] or [0.0]
    return {f"{name}_p50_ms": float(np.median(took_ms)), f"{name}_p99_ms": float(np.quantile(took_ms, 0.99))}


def waited(replay: ClickReplay) -> list[dict[str, float]]:
    """Return shares of the answers of `waits`, by how long they took at most (ms)."""
    took_ms = np.array([one.took_us / 1e3 for t, one in replay.answers[WAITS].items() if t < replay.last] or [0.0])
    return [{"ms": float(limit), "share": float(np.mean(took_ms <= limit))} for limit in range(0, 205, 5)]


def market(stage: Stage) -> dict[str, float]:
    """Return the clicks a query of each speed, with standard errors over markets, and of whoever knows the truth."""
    steps, seeds = _FEW_STEPS if stage.short else _STEPS, range(stage.seed, stage.seed + _RUNS)
    earned = {lane: [float(two_speeds.earned(lane, steps, seed).mean()) for seed in seeds] for lane in LANES}
    found = {f"market_{lane}": float(np.mean(each)) for lane, each in earned.items()}
    errors = {f"market_{lane}_error": float(np.std(each, ddof=1) / _RUNS**0.5) for lane, each in earned.items()}
    most = {"market_best": float(np.mean([two_speeds.best(steps, seed) for seed in seeds]))}
    for lane in (COLD, WARM):  # in the same markets, which differ more from each other than speeds do
        more = np.subtract(earned[BOTH], earned[lane])
        errors |= {f"market_over_{lane}": float(more.mean())}
        errors |= {f"market_over_{lane}_error": float(more.std(ddof=1) / _RUNS**0.5)}
    gained = found["market_both"] - max(found["market_cold"], found["market_warm"])
    return {**found, **errors, **most, "market_gained": gained}


def open_bandit(stage: Stage) -> tuple[dict[str, float], str]:
    """Return the clicks an impression on Open Bandit, with the ends of the intervals, and whether it is there."""
    found: dict[str, float] = {}
    try:
        for campaign in CAMPAIGNS:
            for lane, its in two_speeds.open_bandit(campaign, _FEW_ROWS if stage.short else _ROWS).items():
                for name, one in its.items():
                    found |= {
                        f"obd_{campaign}_{lane}_{name}": one.value,
                        f"obd_{campaign}_{lane}_{name}_low": one.low,
                        f"obd_{campaign}_{lane}_{name}_high": one.high,
                    }
    except MissingDataError:
        return {}, "absent"
    return found, "there"
