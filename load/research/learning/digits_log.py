"""obp's example on digits: classifiers as policies, classes as arms, so that the true value of a policy is known.

Settings, seeds and published errors are those of `examples/multiclass` of st-tech/zr-obp@8cbd5fa: the behaviour policy
a logistic regression mixed with chance (0.4), the one in question a random forest (0.9), the model boosted trees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, train_test_split

from policies.estimators.estimate import Estimate
from policies.estimators.log import Log
from policies.estimators.registry import estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.estimators.log import Floats

# Mean relative error of 30 runs, and its standard deviation.
PUBLISHED = {
    "dm": (0.436541, 0.017629),
    "ipw": (0.030288, 0.024506),
    "snipw": (0.022764, 0.017917),
    "dr": (0.016156, 0.012679),
}
RUNS = 30
_SEED, _CLASSES = 12345, 10
_TREES = {"n_estimators": 30, "max_depth": 5, "min_samples_leaf": 10, "random_state": _SEED}


def relative_errors(runs: int) -> dict[str, Floats]:
    """Return by estimator the relative error of each run."""
    images, labels = load_digits(return_X_y=True)
    found: dict[str, list[float]] = {name: [] for name in PUBLISHED}
    for run in range(runs):
        log, truth = _log(images, labels, run)
        for name, each in estimate(log, found, least=0.0).items():
            assert isinstance(each, Estimate)
            found[name].append(abs(each.value - truth) / truth)
    return {name: np.array(errors) for name, errors in found.items()}


def _log(images: Floats, labels: NDArray[np.intp], run: int) -> tuple[Log, float]:
    """Return one run's log, whose losses are rewards (1 = the class is right), and the true value."""
    taught, judged, taught_labels, truth = train_test_split(images, labels, test_size=0.7, random_state=run)
    behaviour = LogisticRegression(max_iter=10_000, C=100, random_state=_SEED).fit(taught, taught_labels)
    candidate = RandomForestClassifier(**_TREES).fit(taught, taught_labels)
    logged, target = _mixed(behaviour.predict(judged), 0.4), _mixed(candidate.predict(judged), 0.9)
    random, rows = np.random.RandomState(run), np.arange(len(judged))  # as obp draws
    asked = np.minimum((logged.cumsum(axis=1) <= random.uniform(size=(len(judged), 1))).sum(axis=1), _CLASSES - 1)
    rewards = np.full(logged.shape, np.nan)
    rewards[rows, asked] = asked == truth
    return Log(logged, target, rewards, _expected(judged, asked, rewards[rows, asked])), float(
        target[rows, truth].mean()
    )


def _mixed(predicted: NDArray[np.intp], share: float) -> Floats:
    """Return the propensities of what a classifier says, mixed with chance."""
    found = np.full((len(predicted), _CLASSES), (1.0 - share) / _CLASSES)
    found[np.arange(len(predicted)), predicted] += share
    return found


def _expected(images: Floats, asked: NDArray[np.intp], rewards: Floats) -> Floats:
    """Return what boosted trees expect of each class, cross-fitted in three."""
    found, classes = np.empty((len(images), _CLASSES)), np.eye(_CLASSES)
    for taught, held in KFold(3, shuffle=True, random_state=_SEED).split(images):
        model = GradientBoostingClassifier(learning_rate=0.01, **_TREES)
        model.fit(np.hstack([images[taught], classes[asked[taught]]]), rewards[taught])
        for arm in range(_CLASSES):
            rows = np.hstack([images[held], np.tile(classes[arm], (len(held), 1))])
            found[held, arm] = model.predict_proba(rows)[:, 1]
    return found
