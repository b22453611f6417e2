"""Shared by converters: which library an estimator comes from, and how one is refused. scikit-learn is not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeGuard, TypeVar

from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

E = TypeVar("E")


class Estimator(Protocol):
    """What answers rows."""

    def predict(self, rows: object, /) -> object:
        """Return n labels, or n numbers."""
        ...

    def predict_proba(self, rows: object, /) -> object:
        """Return probabilities (n, classes); only those have it that are packaged with the output `scores`."""
        ...

    def get_params(self) -> Mapping[str, object]:
        """Return its parameters, and those of what is inside."""
        ...

    def set_params(self, **parameters: object) -> Estimator:
        """Set some, and return itself."""
        ...


class Pipeline(Protocol):
    """Steps, each with its name; the last one answers."""

    steps: Sequence[tuple[str, object]]


class LinearModel(Protocol):
    """One product and an addition; `coef_` may be sparse."""

    coef_: object
    intercept_: ArrayLike


class StandardScaler(Protocol):
    """Subtracts the mean and divides by the scale, each only if it is `with` it."""

    with_mean: bool
    with_std: bool
    mean_: NDArray[np.float64]
    scale_: NDArray[np.float64]


class MinMaxScaler(Protocol):
    """Multiplies, adds, and may clip."""

    clip: bool
    feature_range: tuple[float, float]
    scale_: NDArray[np.floating]
    min_: NDArray[np.floating]


class TreeArrays(Protocol):
    """One tree, node by node; a leaf's children are -1."""

    children_left: NDArray[np.integer]
    children_right: NDArray[np.integer]
    feature: NDArray[np.integer]
    threshold: NDArray[np.float64]
    missing_go_to_left: NDArray[np.uint8]
    value: NDArray[np.float64]  # (nodes, outputs, k)
    max_depth: int


class Tree(Protocol):
    """A single decision tree."""

    n_outputs_: int
    tree_: TreeArrays


class Forest(Protocol):
    """Trees whose mean answers."""

    n_outputs_: int
    estimators_: Sequence[Tree]


class GradientBoosting(Protocol):
    """Stages of trees, which begin at a constant."""

    init_: object
    learning_rate: float
    loss: str
    n_features_in_: int
    estimators_: NDArray[np.object_]  # (stages, k), of `Tree`

    def _raw_predict_init(self, rows: NDArray[np.float32]) -> NDArray[np.float64]: ...


class HistogramTree(Protocol):
    """One tree of `HistogramBoosting`: a structure for each node."""

    nodes: NDArray[np.void]


class HistogramBoosting(Protocol):
    """Stages of trees over bins."""

    is_categorical_: object
    loss: str
    _predictors: Sequence[Sequence[HistogramTree]]
    _baseline_prediction: NDArray[np.float64]


class Family(Generic[E]):
    """Classes of scikit-learn's own of which the same is read."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def has(self, estimator: object) -> TypeGuard[E]:
        """Tell whether an estimator is of one of these classes."""
        cls = type(estimator)
        return cls.__name__ in self._names and cls.__module__.startswith("sklearn.")


def refusal(done: str, estimator: object, reason: str) -> PackageError:
    """Return the error of an estimator that cannot be `done`, e.g. "compiled to arrays"."""
    return PackageError(f"{type(estimator).__name__} cannot be {done} ({reason}): package it without conversion")
