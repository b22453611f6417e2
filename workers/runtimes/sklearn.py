"""Runs a scikit-learn estimator: stored with skops, loaded only from types that are listed here.

BLAS and OpenMP get one thread unless the settings say otherwise. Small batches gain nothing from more, and threads of
several workers fight for the cores. With one thread the order of a sum never changes.
"""

from __future__ import annotations

import io
import pickle
import threading
from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import threadpoolctl  # type: ignore[import-untyped] # has no annotations

from workers.entry_point import look_here
from workers.errors import PackageError
from workers.imports import library
from workers.runtimes import estimators
from workers.runtimes.contract import Outputs, labels, part, scored, tensors, values
from workers.runtimes.estimators import Family, classes_of
from workers.runtimes.tables import shaper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Rows
    from workers.runtimes.estimators import Estimator

# The types beyond skops's own list that packages may hold. Loading one never runs code of the file. But the trees and
# the KD tree index memory by numbers in the file, so a forged file can crash the process (not run code). A booster is
# bytes in its library's own format, which that library parses.
TRUSTED_TYPES = (
    "collections.OrderedDict",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "lightgbm.sklearn.LGBMRanker",
    "lightgbm.sklearn.LGBMRegressor",
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
    "xgboost.sklearn.XGBRFClassifier",
    "xgboost.sklearn.XGBRFRegressor",
    "xgboost.sklearn.XGBRanker",
    "xgboost.sklearn.XGBRegressor",
)
SKOPS_FILE = "model.skops"
PICKLE_FILE = "model.pickle"
# Importing skops walks through all of scikit-learn, which imports these modules if they are installed. That takes
# 500 MB and three seconds for nothing (skops 0.16, scikit-learn 1.9, torch 2.15).
_NOT_NEEDED = frozenset({"torch", "pytest", "dask", "cupy", "jax"})


# These answer by a threshold or a vote of their own, which may differ from the highest score on other rows.
_DECIDES = Family[object]("FixedThresholdClassifier", "TunedThresholdClassifierCV", "SVC", "NuSVC")
_COLUMNS = Family[Any]("ColumnTransformer")


def _skops() -> ModuleType:
    """Return skops.io; slow the first time."""
    return library("skops.io", without=_NOT_NEEDED)


class SklearnRuntime:
    """An estimator as a model.

    Attributes:
        estimator: that answers.
    """

    def __init__(self, manifest: Manifest, estimator: Estimator, threads: int) -> None:
        self._manifest = manifest
        self._shaped = shaper(manifest.input)
        self.estimator = estimator
        self._threads = threads
        self._pools = threadpoolctl.ThreadpoolController()
        self._here = threading.local()  # OpenMP's limit holds for one thread, BLAS's for the process

    def predict_batch(self, rows: Rows) -> Outputs:
        """Ask the estimator once for the whole batch."""
        if not hasattr(self._here, "limit"):
            self._here.limit = self._pools.limit(limits=self._threads)
        shaped = self._shaped(rows)
        if self._manifest.output == "scores":
            return scored(self.estimator.predict_proba(shaped), self._manifest.classes)
        raw = self.estimator.predict(shaped)
        if self._manifest.output == "tensors":
            return tensors(raw, self._manifest.outputs, len(rows))
        return values(raw) if self._manifest.output == "value" else Outputs(labels(raw))


def answered_by(estimator: Any, rows: object) -> object:
    """Return what an estimator itself predicts."""
    found: object = estimator.predict(rows)
    return found


def save(estimator: object, folder: Path, *, allow_pickle: bool) -> str:
    """Write the estimator into `folder` and return the name of the file.

    Raises:
        PackageError: it needs a type that is not trusted.
    """
    if allow_pickle:
        (folder / PICKLE_FILE).write_bytes(_pickled(estimator))
        return PICKLE_FILE
    content = _skops().dumps(estimator)
    with _hinting(estimator):
        _check_types(content)
    (folder / SKOPS_FILE).write_bytes(content)
    return SKOPS_FILE


class _Elsewhere(pickle.Pickler):
    """Pickles what other processes can load: a pickle names code, and workers have no script or notebook."""

    def reducer_override(self, obj: object) -> Any:
        """Refuse classes and functions of the program that runs; leave the rest as it is."""
        if getattr(obj, "__module__", None) == "__main__" and isinstance(obj, type | FunctionType):
            raise PackageError(
                f"the estimator needs {obj.__qualname__}, which is defined in the script or notebook that runs: workers"
                " cannot import it; move it into a module beside, and import it from there"
            )
        return NotImplemented


def _pickled(estimator: object) -> bytes:
    content = io.BytesIO()
    _Elsewhere(content, protocol=5).dump(estimator)
    return content.getvalue()


@contextmanager
def _hinting(estimator: object) -> Iterator[None]:
    """Say of a search over parameters what of it is the model."""
    try:
        yield
    except PackageError as error:
        if not hasattr(estimator, "best_estimator_"):
            raise
        raise PackageError(f"{error}; of a search, package its best_estimator_") from error


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> SklearnRuntime:
    """Load the estimator of a verified package.

    Raises:
        PackageError: a type in it is not trusted, or it is a pickle and `allow_pickle` is false.
    """
    if PICKLE_FILE in files:
        if not allow_pickle:
            raise PackageError(
                f"{manifest.name} {manifest.version} is a pickle, which can run any code when it is loaded: "
                "package the model without "
                "allow_pickle or, if you made it yourself, set worker.allow_pickle (from Python: allow_pickle=True and "
                "its digest)"
            )
        look_here()  # for modules that it names
        estimator: Estimator = pickle.loads(files[PICKLE_FILE])  # noqa: S301 - asked for, and its digest was checked
    else:
        content = part(files, SKOPS_FILE)
        _check_types(content)
        estimator = _skops().loads(content, trusted=list(TRUSTED_TYPES))
    return SklearnRuntime(manifest, _single_threaded(estimator), threads)


def read(file: Path) -> Estimator:
    """Read an estimator that skops has saved, of types that are trusted.

    Raises:
        PackageError: it needs others.
    """
    content = file.read_bytes()
    _check_types(content)
    found: Estimator = _skops().loads(content, trusted=list(TRUSTED_TYPES))
    return found


def output_of(estimator: Any, rows: object) -> str:
    """Return the output of a fitted estimator, unless it is said.

    A classifier gives its scores if their classes are few, and if it answers the class of its highest score. What
    answers several numbers gives them as a tensor.
    """
    if is_regressor(estimator):
        return "tensors" if np.ndim(raw := estimator.predict(rows)) == 2 and np.shape(raw)[1] > 1 else "value"
    if not hasattr(estimator, "predict_proba") or estimators.output_of(len(classes_of(estimator))) == "label":
        return "label"
    try:
        return "scores" if answers_best(estimator, rows) else "label"
    except Exception:  # noqa: BLE001 - foreign code, and rows that nobody has seen
        return "label"


def answers_best(estimator: Any, rows: object) -> bool:
    """Tell whether it answers the class of its highest score: not behind a threshold, nor by another vote."""
    if _DECIDES.has(_last(estimator)):
        return False
    known = np.asarray(classes_of(estimator))
    best = known[np.asarray(estimator.predict_proba(rows)).argmax(axis=1)]
    return np.array_equal(best, np.asarray(labels(estimator.predict(rows))))


def _last(estimator: Any) -> object:
    """Return what answers of a pipeline or a search over parameters."""
    while (
        inner := getattr(estimator, "best_estimator_", None)
        or (getattr(estimator, "steps", None) or [("", None)])[-1][1]
    ):
        estimator = inner
    return estimator


def unused(estimator: Any) -> frozenset[str]:
    """Return the columns of a data frame that an estimator does not read: its first step drops them."""
    step = getattr(estimator, "best_estimator_", estimator)
    while getattr(step, "steps", None):
        step = step.steps[0][1]
    if not _COLUMNS.has(step) or not hasattr(step, "feature_names_in_"):
        return frozenset()
    places = step._transformer_to_input_indices  # noqa: SLF001 - columns may be said by place, mask or function
    used = {
        at for name, made, _ in step.transformers_ if not isinstance(made, str) or made != "drop" for at in places[name]
    }
    return frozenset(str(name) for at, name in enumerate(step.feature_names_in_) if at not in used)


def is_regressor(estimator: object) -> bool:
    """Tell whether an estimator answers numbers instead of labels."""
    tags = getattr(estimator, "__sklearn_tags__", None)
    kind = getattr(estimator, "_estimator_type", None) if tags is None else tags().estimator_type
    return bool(kind == "regressor")


def _check_types(content: bytes) -> None:
    unknown = sorted(set(_skops().get_untrusted_types(data=content)) - set(TRUSTED_TYPES))
    if unknown:
        raise PackageError(
            f"the estimator needs types that are not trusted: {', '.join(unknown)}; use an estimator without them,"
            " package a function that calls it (package_container), or package with allow_pickle=True"
        )


def _single_threaded(estimator: Estimator) -> Estimator:
    """Set every n_jobs inside to 1: joblib's threads would add up trees in any order."""
    jobs = [name for name in estimator.get_params() if name == "n_jobs" or name.endswith("__n_jobs")]
    return estimator.set_params(**dict.fromkeys(jobs, 1)) if jobs else estimator
