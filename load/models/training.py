"""Models and rows for scenarios: scikit-learn's digits, 64 features, or MNIST, 784 as bytes.

Scenarios ask with rows that no model was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from load.errors import MissingDataError
from load.harness.data import DATA, mnist
from schemas.records import Tensor
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_SEED = 0
# What `--convert auto` chooses for `linear_models`; see the table in docs/runtimes.md.
LINEAR_RUNTIME = "linear"
_SAMPLE_ROWS = 256  # by which a converted model is compared with the original
_TRAIN_ROWS, _TEST_ROWS = 5_000, 2_000
_NOISE, _COPIES = 0.35, 6  # make thousands of rows support vectors, as a kernel SVM on MNIST has


class Estimator(Protocol):
    """The common interface of scikit-learn's classifiers and regressors."""

    def fit(self, rows: NDArray[np.generic], truth: NDArray[np.generic], /) -> Self:
        """Learn from rows (n, features) and what each of them should give."""
        ...

    def predict(self, rows: NDArray[np.generic], /) -> NDArray[np.generic]:
        """Answer rows (n, features)."""
        ...


@dataclass(frozen=True, slots=True)
class Digits:
    """Digits, split: train_x (n, features) and test_x (m, features), float32 or bytes; labels int64."""

    train_x: NDArray[Any]
    train_y: NDArray[np.int64]
    test_x: NDArray[Any]
    test_y: NDArray[np.int64]

    @property
    def inputs(self) -> list[Tensor]:
        """The test rows as they travel."""
        return [Tensor.of(row) for row in self.test_x]

    @property
    def labels(self) -> list[int]:
        """The test rows' true labels."""
        return [int(label) for label in self.test_y]


def digits() -> Digits:
    """Return the data set with features in [0, 1], split in halves, the same way each time."""
    data = pixels()
    return Digits(_scaled(data.train_x), data.train_y, _scaled(data.test_x), data.test_y)


def pixels() -> Digits:
    """Return the data set as it is, split in the same way: 64 pixels of 0 to 16, a byte each."""
    x, y = load_digits(return_X_y=True)
    split = train_test_split(x.astype(np.uint8), y, test_size=0.5, random_state=_SEED, stratify=y)
    train_x, test_x, train_y, test_y = split
    return Digits(train_x, train_y, test_x, test_y)


def _scaled(rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    return (rows / 16).astype(np.float32)


def images() -> tuple[Digits, str]:
    """Return rows of 784 pixels, a byte each, and where they are from.

    That is `mnist`, or where that is not at hand `digits`, enlarged.
    """
    try:
        folder = DATA / "labelled/mnist"
        return Digits(*mnist(folder, "train", _TRAIN_ROWS), *mnist(folder, "t10k", _TEST_ROWS)), "mnist"
    except MissingDataError:
        data = digits()
        return Digits(enlarged(data.train_x), data.train_y, enlarged(data.test_x), data.test_y), "digits"


def enlarged(rows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return images (n, 64) in [0, 1] with every pixel three by three, a frame of two and 0 to 255: (n, 784)."""
    large = rows.reshape(-1, 8, 8).repeat(3, axis=1).repeat(3, axis=2) * 255
    return np.pad(large, ((0, 0), (2, 2), (2, 2))).reshape(len(rows), -1).round().astype(np.uint8)


def forest(data: Digits, trees: int) -> RandomForestClassifier:
    """Return a fitted random forest that computes in one thread: a call costs much before the first row does."""
    return RandomForestClassifier(trees, random_state=_SEED, n_jobs=1).fit(data.train_x, data.train_y)


def linear_models(data: Digits) -> dict[str, Estimator]:
    """Return two fitted estimators that cost next to nothing a row: what is measured is the system, not they."""
    return {
        "logistic": LogisticRegression(max_iter=200).fit(data.train_x, data.train_y),
        "ridge": RidgeClassifier().fit(data.train_x, data.train_y),
    }


def small_models(data: Digits) -> dict[str, Estimator]:
    """Return fitted estimators that take microseconds a row, by the runtime that each is for."""
    network = MLPClassifier((64,), max_iter=60, early_stopping=True, random_state=_SEED)
    return {
        "linear": LogisticRegression(max_iter=200).fit(data.train_x, data.train_y),
        "trees": RandomForestClassifier(30, max_depth=6, random_state=_SEED, n_jobs=1).fit(data.train_x, data.train_y),
        "onnx": network.fit(data.train_x, data.train_y),
    }


def linear_svm(data: Digits) -> LinearSVC:
    """Return a fitted linear SVM, the same one whether features are in [0, 1] or pixels are bytes of 0 to 16."""
    scale = 16.0 if data.train_x.dtype == np.uint8 else 1.0
    svm = LinearSVC(C=1.0 / scale**2, intercept_scaling=scale, random_state=_SEED)
    return svm.fit(data.train_x, data.train_y)


def cheap_and_dear(data: Digits) -> tuple[LogisticRegression, SVC]:
    """Return a fitted linear model with scores, and a kernel SVM: it errs half as often, and each row costs it as much.

    Rows are in [0, 1].
    """
    linear = LogisticRegression(C=0.05, tol=1e-3, max_iter=300)
    return linear.fit(data.train_x, data.train_y), SVC(C=5.0).fit(data.train_x, data.train_y)


def scored(data: Digits) -> tuple[RandomForestClassifier, LogisticRegression]:
    """Return a fitted forest and a fitted linear model, both with scores; noise upsets the first far more."""
    shallow = RandomForestClassifier(30, max_depth=10, random_state=_SEED, n_jobs=1)
    linear = LogisticRegression(C=0.05, tol=1e-3, max_iter=300)
    return shallow.fit(data.train_x, data.train_y), linear.fit(data.train_x, data.train_y)


def clippers(data: Digits) -> dict[str, Estimator]:
    """Return fitted estimators of the kinds in Clipper's figures 3 and 4, a network for its linear SVM on Spark."""
    random = np.random.default_rng(_SEED)
    noisy = np.concatenate([data.train_x + random.normal(0, _NOISE, data.train_x.shape) for _ in range(_COPIES)])
    network = MLPClassifier((64,), max_iter=60, early_stopping=True, random_state=_SEED)
    return {
        "linear-svm": linear_svm(data),
        "logistic": LogisticRegression(max_iter=200).fit(data.train_x, data.train_y),
        "network": network.fit(data.train_x, data.train_y),
        "forest": RandomForestClassifier(10, max_depth=16, random_state=_SEED).fit(data.train_x, data.train_y),
        "kernel-svm": SVC().fit(noisy.astype(np.float32), np.tile(data.train_y, _COPIES)),
    }


def package_all(
    models: Mapping[str, Estimator], sample: NDArray[np.float32], folder: Path, convert: str = "none"
) -> dict[str, Path]:
    """Package estimators, converted as `package_sklearn` says; returns the folders by model name."""
    folders = {name: folder / f"{name}-1" for name in models}
    for name, estimator in models.items():
        package_sklearn(estimator, folders[name], name, "1", sample[:_SAMPLE_ROWS], output="label", convert=convert)
    return folders


def rivals(data: Digits, count: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return what five models of rising quality say about `count` test rows, drawn with replacement, and the truth.

    Returns:
        predictions (count, 5), the last column the best model's; labels (count,).
    """
    models = (
        DecisionTreeClassifier(max_depth=6, random_state=_SEED),
        SGDClassifier(random_state=_SEED),
        LogisticRegression(max_iter=200),
        RandomForestClassifier(40, random_state=_SEED),
        KNeighborsClassifier(3),
    )
    few = slice(0, 200)  # of all rows they would hardly err
    predictions = [model.fit(data.train_x[few], data.train_y[few]).predict(data.test_x) for model in models]
    drawn = np.random.default_rng(_SEED).integers(0, len(data.test_y), count)
    return np.stack(predictions, axis=1)[drawn].astype(np.uint8), data.test_y[drawn].astype(np.uint8)


def trees(data: Digits, count: int, rows: int) -> NDArray[np.uint8]:
    """Return what `count` decision trees, each fitted on `rows` rows of its own, say about the test rows (n, count)."""
    random = np.random.default_rng(_SEED)
    said = []
    for number in range(count):
        few = random.choice(len(data.train_y), rows, replace=False)
        tree = DecisionTreeClassifier(random_state=number).fit(data.train_x[few], data.train_y[few])
        said.append(tree.predict(data.test_x))
    return np.stack(said, axis=1).astype(np.uint8)
