"""Compiles scikit-learn's ensembles of trees into arrays for `trees`, read from the fitted estimators.

It takes single trees, random forests, extra trees, gradient boosting and histogram gradient boosting: classifiers and
regressors of one output. It does not import scikit-learn. Of an estimator it calls only the constant at which boosting
starts.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workers.runtimes.estimators import Family, refusal
from workers.runtimes.trees import Trees, TreesRuntime, save

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.estimators import Forest, GradientBoosting, HistogramBoosting, Tree, TreeArrays

_SINGLE: Family[Tree] = Family(
    "DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"
)
_FORESTS: Family[Forest] = Family(
    "RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor"
)
_BOOSTING: Family[GradientBoosting] = Family("GradientBoostingClassifier", "GradientBoostingRegressor")
_HISTOGRAM: Family[HistogramBoosting] = Family("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")
_refusal = partial(refusal, "compiled to arrays of trees")


class OneTree(NamedTuple):
    """One tree as it was fitted: a node's children are `left` and `right`, of no meaning at leaves."""

    leaf: NDArray[np.bool_]
    left: NDArray[np.integer]
    right: NDArray[np.integer]
    feature: NDArray[np.integer]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    values: NDArray[np.float64]  # (nodes, k)
    depth: int


class Ensemble(NamedTuple):
    """Trees stage by stage, and how their sums become an answer."""

    trees: Sequence[OneTree]
    stages: int
    link: str
    base: NDArray[np.float64] | None = None
    tie: float = 0.0
    dtype: str = "float32"  # in which the estimator compares


def convert(estimator: object, folder: Path, rows: NDArray[np.generic]) -> str:
    """Write the estimator's trees into `folder` and return the name of the file.

    Args:
        estimator: fitted.
        folder: of the package.
        rows: a batch, of the dtype that will come.

    Raises:
        PackageError: it is not one of those that can be compiled.
    """
    return save(compiled(estimator, rows.dtype), folder)


def runtime(manifest: Manifest, estimator: object, dtype: np.dtype[np.generic], _threads: int = 1) -> TreesRuntime:
    """Return a runtime that runs the estimator's trees as arrays, for rows of `dtype`.

    Raises:
        PackageError: it is not one of those that can be compiled.
    """
    return TreesRuntime(manifest, compiled(estimator, dtype))


def compiled(estimator: object, dtype: np.dtype[np.generic]) -> Trees:
    """Return the estimator's trees as arrays, for rows of `dtype`.

    Raises:
        PackageError: it is not one of those that can be compiled.
    """
    ensemble = _read(estimator)
    exact = "float32" if dtype == np.float32 else ensemble.dtype
    return arrays(ensemble, np.dtype(exact))


def _read(estimator: object) -> Ensemble:
    if _HISTOGRAM.has(estimator):
        return _histogram(estimator)
    if _BOOSTING.has(estimator):
        return _boosting(estimator)
    if _SINGLE.has(estimator):
        return _mean(estimator, [estimator])
    if _FORESTS.has(estimator):
        return _mean(estimator, estimator.estimators_)
    raise _refusal(estimator, "it is not one of scikit-learn's trees, forests and gradient boosting")


def _mean(estimator: Tree | Forest, trees: Sequence[Tree]) -> Ensemble:
    if estimator.n_outputs_ != 1:
        raise _refusal(estimator, "it has several outputs")
    return Ensemble([_tree(tree.tree_) for tree in trees], len(trees), "mean")


def _tree(tree: TreeArrays, scale: float = 1.0) -> OneTree:
    leaf = tree.children_left == -1
    missing_left = tree.missing_go_to_left.astype(bool)
    values = scale * tree.value[:, 0, :]
    return OneTree(
        leaf,
        tree.children_left,
        tree.children_right,
        tree.feature,
        tree.threshold,
        missing_left,
        values,
        tree.max_depth,
    )


def _boosting(estimator: GradientBoosting) -> Ensemble:
    init = estimator.init_
    if init != "zero" and type(init).__name__ not in {"DummyClassifier", "DummyRegressor"}:
        raise _refusal(estimator, "its `init` is an estimator")
    trees = [_tree(tree.tree_, estimator.learning_rate) for tree in estimator.estimators_.ravel()]
    base = estimator._raw_predict_init(np.zeros((1, estimator.n_features_in_), dtype=np.float32))[0]  # noqa: SLF001 - no public name
    halved = "half_logistic" if estimator.loss == "exponential" else "logistic"
    tie = float(np.nextafter(0.0, -1.0))  # it answers the second label at 0, too
    return Ensemble(trees, len(estimator.estimators_), _boosted(estimator, len(base), halved), base, tie)


def _histogram(estimator: HistogramBoosting) -> Ensemble:
    if estimator.is_categorical_ is not None:
        raise _refusal(estimator, "it has categorical features")
    trees = [_histogram_tree(tree.nodes) for stage in estimator._predictors for tree in stage]  # noqa: SLF001 - no public name
    base = np.ravel(estimator._baseline_prediction)  # noqa: SLF001 - no public name
    identity = "exp" if estimator.loss in {"poisson", "gamma"} else "identity"
    link = _boosted(estimator, len(base), "logistic", identity)
    return Ensemble(trees, len(trees) // len(base), link, base, dtype="float64")


def _histogram_tree(nodes: NDArray[np.void]) -> OneTree:
    columns = ("is_leaf", "left", "right", "feature_idx", "num_threshold", "missing_go_to_left")
    leaf, left, right, feature, threshold, missing_left = (nodes[name] for name in columns)
    depth = int(nodes["depth"].max())
    values = nodes["value"][:, None]
    return OneTree(leaf.astype(bool), left, right, feature, threshold, missing_left.astype(bool), values, depth)


def _boosted(estimator: object, outputs: int, logistic: str, identity: str = "identity") -> str:
    if not hasattr(estimator, "classes_"):
        return identity
    return logistic if outputs == 1 else "softmax"


def arrays(ensemble: Ensemble, dtype: np.dtype[np.generic]) -> Trees:
    """Return the trees as arrays, with thresholds of `dtype`, in which rows will be compared."""
    trees = ensemble.trees
    roots = np.cumsum([0, *(len(tree.leaf) for tree in trees)])
    count, width = int(roots[-1]), trees[0].values.shape[1]
    feature, left = np.zeros(count, dtype=np.intp), np.arange(count)
    threshold, missing_right = np.full(count, np.inf, dtype=dtype), np.zeros(count, dtype=bool)
    leaves = np.zeros((count, width))
    for tree, (start, end) in zip(trees, pairwise(roots.tolist()), strict=True):
        inner = np.flatnonzero(~tree.leaf)
        place = np.zeros(end - start, dtype=np.intp)  # the root stays first, the children of the i-th inner node follow
        children = 1 + 2 * np.arange(len(inner))
        place[tree.left[inner]], place[tree.right[inner]] = children, children + 1
        at = start + place[inner]
        feature[at], left[at] = tree.feature[inner], start + children
        threshold[at], missing_right[at] = below(tree.threshold[inner], dtype), ~tree.missing_left[inner]
        leaves[start + place[tree.leaf]] = tree.values[tree.leaf]
    base = np.zeros(width * len(trees) // ensemble.stages) if ensemble.base is None else ensemble.base
    depth = max(tree.depth for tree in trees)
    return Trees(
        roots[:-1], feature, threshold, left, missing_right, leaves, base.astype(np.float64),
        depth, ensemble.stages, ensemble.link, ensemble.tie,
    )  # fmt: skip


def below(threshold: NDArray[np.float64], dtype: np.dtype[np.generic]) -> NDArray[np.floating]:
    """Return the largest numbers of `dtype` not above the thresholds.

    Any number of `dtype` falls on the same side of both: scikit-learn compares float32 with thresholds of float64.
    """
    with np.errstate(over="ignore"):
        rounded = threshold.astype(dtype)
    low = np.nextafter(rounded, np.array(-np.inf, dtype=dtype))
    found: NDArray[np.floating] = np.where(rounded.astype(np.float64) > threshold, low, rounded)
    return found
