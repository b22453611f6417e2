"""One speed and two: cold log-odds alone, warm ones alone, and their sum, where the truth is known and on Open Bandit.

`cold` is a model that learns nothing more, `warm` learns from feedback alone, `both` is the policy `two_speed` as it
is. On Open Bandit each is taught by the impressions of the uniform policy in their order, and judged by each before it
is taught. Its cold log-odds are the shrunk click rates that another log, of the policy BernoulliTS, gives the items.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from load.harness.data import DATA, need
from load.research.models import clicks
from policies.draw import pick, uniform
from policies.estimators.estimate import Estimate
from policies.estimators.log import Log
from policies.estimators.registry import estimate
from policies.lessons import Lesson
from policies.two_speed import TwoSpeed
from schemas.records import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.contract import State

    Floats = NDArray[np.float64]

COLD, WARM, BOTH = LANES = ("cold", "warm", "both")
CAMPAIGNS = ("all", "men", "women")
_FOLDER = DATA / "labelled/obd"
_PRIOR = 500.0  # impressions that the belief in the mean click rate is worth
_USER = 4  # features of a user, each one of a few texts
_ESTIMATORS = ("ipw", "snipw")


class Lane:
    """One of the three, as it learns."""

    def __init__(self, name: str, items: int, features: int) -> None:
        self._is_taught = name != COLD
        self._is_cold = name != WARM
        self._policy = TwoSpeed(features=features, items=items, spread=0.0 if name == COLD else 1.0)
        self._state: State = self._policy.init(1)

    def shares(self, cold: Floats, x: Floats) -> tuple[float, ...]:
        """Return how likely each item is to be answered."""
        scores = self._scores(cold)
        return self._policy.reading(self._state, 1)({0: scores}, tuple(x.tolist())).first

    def learn(self, cold: Floats, x: Floats, item: int, *, is_click: bool) -> None:
        """Take what became of an item."""
        if self._is_taught:
            losses, scores = (float(not is_click),), (self._scores(cold),)
            lesson = Lesson((0,), (1.0,), losses, tuple(x.tolist()), answers=(item,), scores=scores)
            self._state = self._policy.observe(self._state, 1, lesson)

    def _scores(self, cold: Floats) -> Tensor:
        """Return the model's log-odds, or their mean for all items alike."""
        return Tensor.of(cold if self._is_cold else np.full(len(cold), cold.mean()))


def earned(name: str, count: int, seed: int) -> Floats:
    """Return the chance of a click (n,) of each item that a lane answers, in a market of which the truth is known."""
    found, market = Lane(name, clicks.ITEMS, clicks.FEATURES), clicks.market(count, seed)
    chances, got = clicks.chance(market.true), np.zeros(count)
    for number, (x, cold) in enumerate(zip(market.rows, market.cold, strict=True)):
        item = pick(found.shares(cold, x), uniform(f"{seed}-{number}", "item"))
        got[number] = chances[number, item]
        found.learn(cold, x, item, is_click=bool(market.draws[number] < chances[number, item]))
    return got


def best(count: int, seed: int) -> float:
    """Return the chance of a click of whoever knows the truth."""
    return float(clicks.chance(clicks.market(count, seed).true).max(axis=1).mean())


class Impression(NamedTuple):
    """What Open Bandit says of one."""

    item: int
    is_click: bool
    propensity: float
    user: tuple[str, ...]


def open_bandit(campaign: str, limit: int) -> dict[str, dict[str, Estimate]]:
    """Return by lane what it would have earned in clicks an impression, by estimator; `logged` is the log's own.

    A lane of which too few impressions tell has none.

    Raises:
        MissingDataError: the data set is not here.
    """
    seen, cold = _read("random", campaign)[:limit], _cold(campaign)
    rows, items = _rows(seen), len(cold)
    logged = np.repeat(np.array([[one.propensity] for one in seen]), items, axis=1)
    earned_ = np.full((len(seen), items), np.nan)
    earned_[np.arange(len(seen)), [one.item for one in seen]] = [float(one.is_click) for one in seen]
    targets = {"logged": logged / logged.sum(axis=1, keepdims=True)}
    for name in LANES:
        lane, targets[name] = Lane(name, items, _USER), np.zeros((len(seen), items))
        for number, (one, x) in enumerate(zip(seen, rows, strict=True)):
            targets[name][number] = lane.shares(cold, x)
            lane.learn(cold, x, one.item, is_click=one.is_click)
    found = {name: estimate(Log(logged, target, earned_), _ESTIMATORS) for name, target in targets.items()}
    return {
        name: {each: value for each, value in values.items() if isinstance(value, Estimate)}
        for name, values in found.items()
    }


def impressions(campaign: str, limit: int) -> tuple[list[Impression], Floats, int]:
    """Return the uniform policy's impressions, what is known of their users (n, 4), and how many items there are.

    Raises:
        MissingDataError: the data set is not here.
    """
    seen = _read("random", campaign)
    return seen[:limit], _rows(seen[:limit]), 1 + max(one.item for one in seen)


def _read(policy: str, campaign: str) -> list[Impression]:
    path = _FOLDER / f"{policy}_{campaign}.csv.gz"
    need(path)
    with gzip.open(path, "rt") as file:
        return [
            Impression(
                int(row["item_id"]),
                row["click"] == "1",
                float(row["propensity_score"]),
                tuple(row[f"user_feature_{number}"] for number in range(_USER)),
            )
            for row in csv.DictReader(file)
        ]


def _cold(campaign: str) -> Floats:
    """Return the log-odds of each item's click rate under BernoulliTS, drawn to the mean of all."""
    seen = _read("bts", campaign)
    items = 1 + max(one.item for one in seen)
    shown, clicked = (
        np.bincount([one.item for one in part], minlength=items).astype(np.float64)
        for part in (seen, [one for one in seen if one.is_click])
    )
    mean = clicked.sum() / shown.sum()
    rates = (clicked + _PRIOR * mean) / (shown + _PRIOR)
    return np.asarray(np.log(rates / (1.0 - rates)))


def _rows(seen: list[Impression]) -> Floats:
    """Return (n, _USER): of each feature of a user whether it has its most frequent value."""
    usual = [Counter(one.user[number] for one in seen).most_common(1)[0][0] for number in range(_USER)]
    return np.array([[0.5 if one.user[number] == usual[number] else -0.5 for number in range(_USER)] for one in seen])
