"""Clicks that are made up from a seed: their truth is known, so that what is lost or gained can be told.

Impressions   users and pages with features; a click has log-odds that are linear in them
Market        items whose log-odds are a model's, trained last week, and what has changed since
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

USER, PAGE = 4, 4  # features of a user and of a page
_BASE = -1.0
ITEMS, FEATURES = 20, 4
_RATE, _COLD, _CHANGED = -2.5, 0.7, 0.7  # log-odds of a click; deviations of coefficients, and of what has changed


class Impressions(NamedTuple):
    """What was shown to whom: users (n,) and pages (n,), features of all users and pages, log-odds and clicks (n,)."""

    users: NDArray[np.int64]
    pages: NDArray[np.int64]
    user_features: Floats
    page_features: Floats
    log_odds: Floats
    clicks: NDArray[np.bool_]

    @property
    def rows(self) -> Floats:
        """(n, USER + PAGE) as a client would send them: the user's, then the page's."""
        return np.column_stack([self.user_features[self.users], self.page_features[self.pages]])


def weights() -> Floats:
    """Return the coefficients (USER + PAGE,) of a click: most depends on what the user did lately, the second half."""
    return np.array([0.5, -0.4, 1.1, -0.9, 0.5, -0.4, 0.3, 0.2])


def impressions(count: int, users: int, pages: int, seed: int) -> Impressions:
    """Draw what is shown, and whether it is clicked on."""
    random = np.random.default_rng(seed)
    who, where = random.integers(0, users, count), random.integers(0, pages, count)
    user_features, page_features = random.normal(size=(users, USER)), random.normal(size=(pages, PAGE))
    log_odds = _BASE + np.column_stack([user_features[who], page_features[where]]) @ weights()
    return Impressions(who, where, user_features, page_features, log_odds, random.random(count) < chance(log_odds))


def chance(log_odds: Floats) -> Floats:
    """Return the logistic function."""
    return np.asarray(1.0 / (1.0 + np.exp(-log_odds)))


@dataclass(frozen=True, slots=True)
class Market:
    """Items and the queries about them.

    Attributes:
        rows: (n, FEATURES) of the queries.
        cold: (n, ITEMS) log-odds that a model of last week finds.
        true: (n, ITEMS) log-odds of today.
        draws: (n,) in [0, 1): a click comes where the chance is above.
    """

    rows: Floats
    cold: Floats
    true: Floats
    draws: Floats


def market(count: int, seed: int) -> Market:
    """Draw a market."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(count, FEATURES))
    x = np.column_stack([np.ones(count), rows])
    learnt = random.normal(0.0, _COLD, (FEATURES + 1, ITEMS))
    changed = random.normal(0.0, _CHANGED, (FEATURES + 1, ITEMS))
    cold = _RATE + x @ learnt
    return Market(rows, cold, cold + x @ changed, random.random(count))


def area(scores: Floats, clicks: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve: how often a click has a higher score than none; equal ones count half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[places]
    positive = int(clicks.sum())
    negative = len(clicks) - positive
    if not positive or not negative:
        return 0.5
    return float((ranks[clicks].sum() - positive * (positive + 1) / 2.0) / (positive * negative))
