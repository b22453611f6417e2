"""The demo's five models, good to poor, trained and packaged; the best one is the one that will break."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from deploy.demo.breakable import FOLDER_VARIABLE, INNER
from workers.packages.loading import load_package
from workers.packages.packaging import package_function, package_sklearn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from deploy.demo.digits import Digits

BREAKING = "svc"
VERSION = "1"
# The model that gets a second version: the runner-up, trained on all rows where version 1 has seen few.
RETRAINED = "neighbours"
NEW_VERSION = "2"


class Recipe(NamedTuple):
    """An estimator, how many of the training rows it may see, and what it is converted to."""

    name: str
    estimator: Any
    rows: int | None
    convert: str = "none"


def recipes(seed: int) -> tuple[Recipe, ...]:
    """Return the five; errors on the held-out rows run from about 1 % to 32 %."""
    return (
        Recipe(BREAKING, SVC(gamma=0.001, C=10.0), None),
        Recipe("neighbours", KNeighborsClassifier(3), 300),
        Recipe("logistic", LogisticRegression(max_iter=1000), 100, "linear"),
        Recipe("bayes", GaussianNB(), 400),
        Recipe("tree", DecisionTreeClassifier(max_depth=8, random_state=seed), 150, "trees"),
    )


def train(data: Digits, folder: Path, seed: int) -> Iterator[tuple[str, Path]]:
    """Train and package one model after the other; yields its name and its package, best model first.

    Sets the variable by which the breakable model finds its folder, for this process and the workers it starts.
    """
    os.environ[FOLDER_VARIABLE] = str(folder)
    for recipe in recipes(seed):
        estimator = recipe.estimator.fit(data.train_rows[: recipe.rows], data.train_labels[: recipe.rows])
        package = folder / "models" / recipe.name
        sample = data.train_rows[:5]
        if recipe.name == BREAKING:
            package_sklearn(estimator, folder / INNER, recipe.name, VERSION, sample)
            package_function("deploy.demo.served:model.predict_batch", package, recipe.name, VERSION, sample)
        else:
            package_sklearn(estimator, package, recipe.name, VERSION, sample, convert=recipe.convert)
        yield recipe.name, package


def retrain(data: Digits, folder: Path, seed: int) -> Path:
    """Train the second version of one of the models on all training rows; returns its package."""
    (recipe,) = (recipe for recipe in recipes(seed) if recipe.name == RETRAINED)
    package = folder / "models" / f"{recipe.name}-{NEW_VERSION}"
    estimator = recipe.estimator.fit(data.train_rows, data.train_labels)
    package_sklearn(estimator, package, recipe.name, NEW_VERSION, data.train_rows[:5], convert=recipe.convert)
    return package


def answers(package: Path, rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Run a package offline on rows of shape (n, 64); returns n digits."""
    return np.asarray(load_package(package).runtime.predict_batch(rows).answers, dtype=np.int64)
