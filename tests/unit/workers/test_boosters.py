"""Boosters' trees as arrays: they answer as the library does, or the library answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from workers.packages.loading import load_package
from workers.packages.packaging import package_lightgbm, package_xgboost
from workers.runtimes.boosters import TOLERANCE
from workers.runtimes.trees import IS_COMPILED, TreesRuntime

if TYPE_CHECKING:
    from pathlib import Path

_RANDOM = np.random.default_rng(2)
X = _RANDOM.normal(size=(300, 5)).astype(np.float32)
X[_RANDOM.random(X.shape) < 0.1] = 0.0
CLASS = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
CASES = [
    ("xgboost", "XGBClassifier", CLASS),
    ("xgboost", "XGBClassifier", CLASS % 2),
    ("xgboost", "XGBRegressor", 1_000 * X[:, 2]),
    ("lightgbm", "LGBMClassifier", CLASS),
    ("lightgbm", "LGBMClassifier", CLASS % 2),
    ("lightgbm", "LGBMRegressor", 1_000 * X[:, 2]),
]


def packaged(folder: Path, library: str, kind: str, target: Any, **options: Any) -> tuple[Any, Any]:
    """Fit and package an estimator; returns it and the runtime that a worker loads."""
    module = pytest.importorskip(library)
    more = {"n_jobs": 1} | ({"verbose": -1} if library == "lightgbm" else {})
    estimator = getattr(module, kind)(n_estimators=30, max_depth=4, **more, **options).fit(X, target)
    make = package_lightgbm if library == "lightgbm" else package_xgboost
    make(estimator, folder, "toy", 1, X[:3], output="value" if kind.endswith("Regressor") else "scores")
    return estimator, load_package(folder).runtime


@pytest.mark.skipif(not IS_COMPILED, reason="Skysail is not compiled")
@pytest.mark.parametrize(("library", "kind", "target"), CASES)
def test_trees_run_as_arrays_and_answer_as_the_library_does(
    tmp_path: Path, library: str, kind: str, target: Any
) -> None:
    """Within the tolerance, zeros among the numbers included."""
    estimator, runtime = packaged(tmp_path / "p", library, kind, target)
    assert isinstance(runtime, TreesRuntime)
    outputs = runtime.predict_batch(X)
    if outputs.scores is None:
        expected = estimator.predict(X)
        assert np.abs(outputs.answers - expected).max() <= TOLERANCE * np.abs(expected).max()
    else:
        assert np.abs(outputs.scores - estimator.predict_proba(X)).max() <= TOLERANCE


@pytest.mark.parametrize(
    ("library", "kind", "options"),
    [
        ("xgboost", "XGBRegressor", {"booster": "dart"}),
        ("xgboost", "XGBRegressor", {"objective": "reg:gamma"}),
        ("lightgbm", "LGBMRegressor", {"objective": "gamma"}),
        ("lightgbm", "LGBMRegressor", {"zero_as_missing": True}),
    ],
)
def test_what_arrays_cannot_do_the_library_does(tmp_path: Path, library: str, kind: str, options: Any) -> None:
    """The answers are its own, to the bit."""
    estimator, runtime = packaged(tmp_path / "p", library, kind, np.abs(X[:, 2]) + 1.0, **options)
    assert not isinstance(runtime, TreesRuntime)
    assert runtime.predict_batch(X).answers.tolist() == estimator.predict(X).astype(float).tolist()
