"""What an estimator is, and what it answers by itself: its labels, and whether its scores travel with them.

Shared by converters: which library an estimator comes from, and how one is refused. scikit-learn is not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeGuard, TypeVar

import numpy as np

from workers.errors import PackageError, refusing
from workers.runtimes.contract import FEW, SEVERAL, Outputs, labels, tensors, values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from workers.manifest import Manifest

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


def classes_of(estimator: object) -> tuple[int | str, ...]:
    """Return the labels of a fitted estimator, as they travel; none of a booster or a regressor.

    Raises:
        PackageError: it has several outputs, or labels that cannot travel.
    """
    found = getattr(estimator, "classes_", None)
    if found is None:
        return ()
    if isinstance(found, list) or np.ndim(found) != 1:
        raise PackageError("it has several outputs" + SEVERAL)
    with refusing("its labels cannot travel"):
        plain = labels(found)
    return plain if isinstance(plain, tuple) else tuple(plain.tolist())


def output_of(classes: int) -> str:
    """Return the output of what classifies, unless it is said: scores, if they are few enough to travel."""
    return "scores" if 1 < classes <= FEW else "label"


def ask(estimator: Any, manifest: Manifest) -> Callable[[Any], Outputs]:
    """Return what asks a fitted estimator, of scikit-learn's kind: its own labels or values, and its probabilities."""
    known = classes_of(estimator) if manifest.output not in {"value", "tensors"} else ()
    names = manifest.classes or tuple(range(len(known)))
    has_scores = hasattr(estimator, "predict_proba")

    def asked(rows: Any) -> Outputs:
        raw = estimator.predict(rows)
        if manifest.output == "tensors":
            return tensors(raw, manifest.outputs, len(rows))
        if np.ndim(raw) == 2 and np.shape(raw)[1] > 1:
            raise PackageError("it has several outputs" + SEVERAL)
        if manifest.output == "value":
            return values(raw)
        found = labels(raw)
        if names != known and len(names) == len(known):
            place = {label: at for at, label in enumerate(known)}
            found = labels([names[place[label]] for label in (found if isinstance(found, tuple) else found.tolist())])
        return Outputs(found, np.asarray(estimator.predict_proba(rows)) if has_scores else None)

    return asked
