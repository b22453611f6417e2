"""The demo's models: the digits, five estimators from good to poor, the one that breaks, and each one in hindsight.

The best model is the one that breaks, as after an upstream change that nobody announced. It is a packaged scikit-learn
model like the others, run through the `function` runtime. While the file `broken` exists in the demo's folder, each of
its answers is one digit too high. Its worker imports this module, so scikit-learn is imported where it is used.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies.combine import combine
from policies.lessons import Lesson
from workers.packages.loading import load_package
from workers.packages.packaging import package_function, package_sklearn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from deploy.demo.tally import DemoQuestion
    from load.models.training import Estimator
    from policies.contract import Policy

HELD_OUT = 0.4  # of 1797 rows: 719 for queries, 1078 to train on
# The demo tells its workers where its folder is; outside the demo this model has no meaning.
FOLDER_VARIABLE = "DEMO_FOLDER"
INNER = "inner"
FLAG = "broken"
BREAKING = "svc"
VERSION = "1"
# The model that gets a second version: the runner-up, trained on all rows where version 1 has seen few.
RETRAINED = "neighbours"
NEW_VERSION = "2"
ENSEMBLE = "exp4"  # the policy by which all models vote


class Digits(NamedTuple):
    """Rows of 64 floats in 0..16 and their digits; `asked_*` are the held-out ones."""

    train_rows: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    asked_rows: NDArray[np.float32]
    asked_labels: NDArray[np.int64]


def digits(seed: int) -> Digits:
    """Return the data set, split by the seed; every digit has the same share on both sides."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    rows, labels = load_digits(return_X_y=True)
    train_rows, asked_rows, train_labels, asked_labels = train_test_split(
        rows.astype(np.float32), labels.astype(np.int64), test_size=HELD_OUT, random_state=seed, stratify=labels
    )
    return Digits(train_rows, train_labels, asked_rows, asked_labels)


def sample(count: int, size: int, seed: int) -> NDArray[np.intp]:
    """Return `count` row numbers below `size`, drawn with replacement."""
    return np.random.default_rng(seed).integers(size, size=count)


def repeating(order: NDArray[np.intp], share: float, within: int, seed: int) -> NDArray[np.intp]:
    """Return the order with a share of it asking again for one of the rows just before, as users do.

    Args:
        order: row numbers, shape (queries,).
        share: of the queries that repeat one, drawn by the seed.
        within: how many queries back that one is at most.
        seed: of both draws.
    """
    draw, asked = np.random.default_rng(seed), order.copy()
    repeats, back = draw.random(len(order)) < share, draw.integers(1, within + 1, size=len(order))
    for place in np.flatnonzero(repeats):
        asked[place] = asked[max(0, place - back[place])]
    return asked


class Breakable:
    """The packaged model in `folder`, as long as nobody breaks it."""

    def __init__(self, folder: Path) -> None:
        self._runtime = load_package(folder / INNER).runtime
        self._flag = folder / FLAG

    def predict_batch(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        """Answer a batch, shape (n, 64), with n digits."""
        answers = np.asarray(self._runtime.predict_batch(rows).answers, dtype=np.int64)
        return broken(answers) if self._flag.exists() else answers


@cache
def _breakable() -> Breakable:
    return Breakable(Path(os.environ[FOLDER_VARIABLE]))


def predict_breakably(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """What the package of the breakable model names; a worker loads the model as it warms up, before any query."""
    return _breakable().predict_batch(rows)


def broken(answers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what the model says instead of `answers` while it is broken: always wrong where it was right."""
    return (answers + 1) % 10


class Recipe(NamedTuple):
    """An estimator, how many of the training rows it may see, and what it is converted to."""

    name: str
    estimator: Estimator
    rows: int | None
    convert: str = "none"


def recipes(seed: int) -> tuple[Recipe, ...]:
    """Return the five; errors on the held-out rows run from about 1 % to 32 %."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

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
            package_sklearn(estimator, folder / INNER, recipe.name, VERSION, sample, output="label")
            package_function("deploy.demo.models:predict_breakably", package, recipe.name, VERSION, sample)
        else:
            package_sklearn(estimator, package, recipe.name, VERSION, sample, output="label", convert=recipe.convert)
        yield recipe.name, package


def retrain(data: Digits, folder: Path, seed: int) -> Path:
    """Train the second version of one of the models on all training rows; returns its package."""
    (recipe,) = (recipe for recipe in recipes(seed) if recipe.name == RETRAINED)
    package = folder / "models" / f"{recipe.name}-{NEW_VERSION}"
    estimator = recipe.estimator.fit(data.train_rows, data.train_labels)
    package_sklearn(
        estimator, package, recipe.name, NEW_VERSION, data.train_rows[:5], output="label", convert=recipe.convert
    )
    return package


def answers(package: Path, rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Run a package offline on rows of shape (n, 64); returns n digits."""
    return np.asarray(load_package(package).runtime.predict_batch(rows).answers, dtype=np.int64)


class Alone(NamedTuple):
    """One model's wrong answers, had it been asked every time."""

    wrong_by_second: Counter[int]
    error: float


def while_broken(question: DemoQuestion) -> bool:
    """Tell whether a query was meant for the time in which one model is broken."""
    return question.phase == "during"


class Says(NamedTuple):
    """What one model answers.

    Attributes:
        answers: to each held-out row, shape (rows,).
        others: at other times, shape (rows,); None = it always answers the same.
        when: those other times are; by default while one model is broken.
    """

    answers: NDArray[np.int64]
    others: NDArray[np.int64] | None = None
    when: Callable[[DemoQuestion], bool] = while_broken

    def to(self, question: DemoQuestion) -> int:
        """Return the answer to a question."""
        given = self.others if self.others is not None and self.when(question) else self.answers
        return int(given[question.row])


def alone(questions: Iterable[DemoQuestion], says: Says) -> Alone:
    """Judge one model on every question that was asked."""
    wrong: Counter[int] = Counter()
    asked = 0
    for question in questions:
        wrong[question.second] += says.to(question) != question.label
        asked += 1
    return Alone(wrong, sum(wrong.values()) / max(1, asked))


def voting_error(questions: Iterable[DemoQuestion], models: Sequence[Says], policy: Policy) -> float:
    """Return the share of wrong answers, had all models been asked every question, and told the truth before the next.

    Args:
        questions: in the order in which they were asked.
        models: who vote.
        policy: of full information; its weights count the votes.
    """
    arms, everyone = len(models), tuple(range(len(models)))
    state, wrong, asked = policy.init(arms), 0, 0
    for question in questions:
        answers = dict(enumerate([model.to(question) for model in models]))
        answer, _ = combine(dict(enumerate(policy.weights(state, arms))), answers)
        losses = [float(given != question.label) for given in answers.values()]
        state = policy.observe(state, arms, Lesson(everyone, (1.0,) * arms, losses))
        wrong += answer != question.label
        asked += 1
    return wrong / max(1, asked)


def best(models: Mapping[str, Alone]) -> str:
    """Return the name of the model with the fewest errors, the first of equals."""
    return min(models, key=lambda name: models[name].error)
