"""The Open Bandit Dataset (small, campaign "all") as a log: the uniform policy's impressions, BernoulliTS in question.

`open_bandit_choices.json` has how often each of 80 items is at each of 3 positions in 100,000 draws of BernoulliTS,
with the prior that obp 0.5.7 ships for the campaign. A draw is
`numpy.random.RandomState(12345).beta(alpha, beta).argsort()[::-1][:3]`.
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np

from load.harness.data import DATA, need
from policies.estimators.log import Log

IMPRESSIONS = DATA / "labelled/obd/random_all.csv.gz"
CHOICES = Path(__file__).with_name("open_bandit_choices.json")
DRAWS = 100_000
# As obp 0.5.7 gives them.
PUBLISHED = {"ipw": 0.00455288, "snipw": 0.00477583}


def open_bandit() -> Log:
    """Return the log; its losses are clicks, which are rewards.

    Raises:
        MissingDataError: the data set is not here.
    """
    need(IMPRESSIONS)
    with gzip.open(IMPRESSIONS, "rt") as file:
        rows = list(csv.DictReader(file))
    items, positions = (np.array([int(row[name]) for row in rows]) for name in ("item_id", "position"))
    target = np.array(json.loads(CHOICES.read_text()))[:, positions - 1].T / DRAWS
    clicks = np.full(target.shape, np.nan)
    clicks[np.arange(len(rows)), items] = [float(row["click"]) for row in rows]
    propensities = np.array([float(row["propensity_score"]) for row in rows])
    return Log(np.repeat(propensities[:, None], target.shape[1], axis=1), target, clicks)
