"""Compiles scikit-learn's linear models into arrays for `linear`, read from the fitted estimators.

It takes classifiers and regressors of one output, and pipelines of scalers before one. It neither imports scikit-learn
nor calls the estimator.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from workers.runtimes.estimators import Family, refusal
from workers.runtimes.linear import Linear, LinearRuntime, check, save

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.estimators import LinearModel, MinMaxScaler, Pipeline, StandardScaler

_SOFTMAX = {"LogisticRegression", "LogisticRegressionCV"}
_LABELS = {"RidgeClassifier", "RidgeClassifierCV", "LinearSVC", "SGDClassifier", "Perceptron"}
_REGRESSORS = {"LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV", "SGDRegressor"}
LINEAR: Family[LinearModel] = Family(*_SOFTMAX, *_LABELS, *_REGRESSORS)
PIPELINES: Family[Pipeline] = Family("Pipeline")
STANDARD: Family[StandardScaler] = Family("StandardScaler")
MIN_MAX: Family[MinMaxScaler] = Family("MinMaxScaler")
_FLOATS = ("float32", "float64")  # what BLAS computes in
_refusal = partial(refusal, "compiled to arrays")


def convert(estimator: object, folder: Path, rows: NDArray[np.generic]) -> str:
    """Write the estimator's arrays into `folder` and return the name of the file.

    Args:
        estimator: fitted.
        folder: of the package.
        rows: a batch, of the dtype that will come.

    Raises:
        PackageError: it is not one of those that can be compiled.
    """
    return save(compiled(estimator, rows.dtype), folder)


def runtime(manifest: Manifest, estimator: object, dtype: np.dtype[np.generic], _threads: int = 1) -> LinearRuntime:
    """Return a runtime that runs the estimator as arrays, for rows of `dtype`.

    Raises:
        PackageError: it is not one of those that can be compiled, or cannot answer what the manifest says.
    """
    linear = compiled(estimator, dtype)
    check(manifest, linear)
    return LinearRuntime(manifest, linear)


def compiled(estimator: object, dtype: np.dtype[np.generic]) -> Linear:
    """Return the estimator as arrays, for rows of `dtype`.

    Raises:
        PackageError: it is not one of those that can be compiled.
    """
    *before, last = [step for _, step in estimator.steps] if PIPELINES.has(estimator) else [estimator]
    if not LINEAR.has(last):
        raise _refusal(last, "it is not one of scikit-learn's linear models, with scalers before it or without")
    scalers = [step for step in before if step is not None and step != "passthrough"]
    link = link_of(last)
    weights, intercept = coefficients(last)
    scaled = dtype if not scalers or dtype.name in _FLOATS else np.dtype("float64")
    computed = np.result_type(scaled, weights, intercept)
    if computed.name not in _FLOATS:
        raise _refusal(estimator, f"it computes in {computed.name}: give a sample of float32")
    scaling = tuple(found for scaler in scalers for found in operations_of(scaler, scaled))
    return Linear(weights.astype(computed), intercept.astype(computed), link, scaled, scaling)


def link_of(estimator: LinearModel) -> str:
    """Return what makes probabilities of its scores, one of `linear.LINKS`."""
    name = type(estimator).__name__
    if name in _REGRESSORS:
        return "identity"
    if name in _SOFTMAX:
        return "softmax" if _classes(estimator) > 2 else "logistic"
    return "logistic" if name == "SGDClassifier" and getattr(estimator, "loss", "") == "log_loss" else "label"


def _classes(estimator: LinearModel) -> int:
    return len(getattr(estimator, "classes_", ()))


def coefficients(estimator: LinearModel) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Return weights (f, k) and intercept (k,), or (f,) and () of one output, laid out as scikit-learn multiplies."""
    weights, intercept = estimator.coef_, estimator.intercept_
    if not isinstance(weights, np.ndarray):
        raise _refusal(estimator, "its coefficients are sparse: call its densify()")
    several = hasattr(estimator, "_label_binarizer") and estimator._label_binarizer.y_type_.startswith("multilabel")  # noqa: SLF001 - no public name
    rows = 1 if weights.ndim == 1 else len(weights)
    if several or rows not in {1, _classes(estimator)}:
        raise _refusal(estimator, "it has several outputs")
    # The intercept of a model that was fitted without is a Python number, which leaves the dtype of a sum as it is.
    added = np.asarray(intercept, dtype=weights.dtype if type(intercept) in {int, float} else None)
    if rows == 1:
        return weights.reshape(-1), added.reshape(-1)[0]
    return weights.T, np.broadcast_to(added, (rows,))


def operations_of(scaler: object, dtype: np.dtype[np.generic]) -> Sequence[tuple[str, NDArray[np.generic]]]:
    """Return the operations of a scaler on rows of `dtype`, in its order and its dtypes."""
    if STANDARD.has(scaler):
        return [
            *([("subtract", scaler.mean_.astype(dtype))] if scaler.with_mean else []),
            *([("divide", scaler.scale_.astype(dtype))] if scaler.with_std else []),
        ]
    if MIN_MAX.has(scaler):
        clip = [("clip", np.asarray(scaler.feature_range, dtype=dtype))] if scaler.clip else []
        return [("multiply", scaler.scale_), ("add", scaler.min_), *clip]
    raise _refusal(scaler, "before a linear model only StandardScaler and MinMaxScaler can be converted")
