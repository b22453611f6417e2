"""Runs a scikit-learn estimator: stored with skops, loaded only from types that are listed here.

BLAS and OpenMP get one thread unless the settings say otherwise. Small batches gain nothing from more, and threads of
several workers fight for the cores. With one thread the order of a sum never changes.
"""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING

import threadpoolctl  # type: ignore[import-untyped] # has no annotations

from workers.entry_point import look_here
from workers.errors import PackageError
from workers.imports import library
from workers.runtimes.contract import Outputs, labels, part, scored, values
from workers.runtimes.tables import shaper

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Rows
    from workers.runtimes.estimators import Estimator

# The types beyond skops's own list that packages may hold. Loading one never runs code of the file. But the trees and
# the KD tree index memory by numbers in the file, so a forged file can crash the process (not run code).
TRUSTED_TYPES = (
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
)
SKOPS_FILE = "model.skops"
PICKLE_FILE = "model.pickle"
# Importing skops walks through all of scikit-learn, which imports these modules if they are installed. That takes
# 500 MB and three seconds for nothing (skops 0.16, scikit-learn 1.9, torch 2.15).
_NOT_NEEDED = frozenset({"torch", "pytest", "dask", "cupy", "jax"})


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
        return values(raw) if self._manifest.output == "value" else Outputs(labels(raw))


def save(estimator: object, folder: Path, *, allow_pickle: bool) -> str:
    """Write the estimator into `folder` and return the name of the file.

    Raises:
        PackageError: it needs a type that is not trusted.
    """
    if allow_pickle:
        (folder / PICKLE_FILE).write_bytes(pickle.dumps(estimator, protocol=5))
        return PICKLE_FILE
    content = _skops().dumps(estimator)
    _check_types(content)
    (folder / SKOPS_FILE).write_bytes(content)
    return SKOPS_FILE


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


def classes_of(estimator: object) -> tuple[int | str, ...]:
    """Return the labels that a fitted classifier answers, in the order of its scores; empty for a regressor."""
    found = getattr(estimator, "classes_", None)
    if found is None:
        return ()
    plain = labels(found)
    return plain if isinstance(plain, tuple) else tuple(plain.tolist())


def is_regressor(estimator: object) -> bool:
    """Tell whether an estimator answers numbers instead of labels."""
    tags = getattr(estimator, "__sklearn_tags__", None)
    kind = getattr(estimator, "_estimator_type", None) if tags is None else tags().estimator_type
    return bool(kind == "regressor")


def _check_types(content: bytes) -> None:
    unknown = sorted(set(_skops().get_untrusted_types(data=content)) - set(TRUSTED_TYPES))
    if unknown:
        raise PackageError(
            f"the estimator needs types that are not trusted: {', '.join(unknown)}; use an estimator without them, "
            "review and add them to TRUSTED_TYPES in workers/runtimes/sklearn.py, or package with allow_pickle=True"
        )


def _single_threaded(estimator: Estimator) -> Estimator:
    """Set every n_jobs inside to 1: joblib's threads would add up trees in any order."""
    jobs = [name for name in estimator.get_params() if name == "n_jobs" or name.endswith("__n_jobs")]
    return estimator.set_params(**dict.fromkeys(jobs, 1)) if jobs else estimator
