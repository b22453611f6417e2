"""Runs boosters of LightGBM, stored in its own text format, which holds no code. NaN is a missing value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np

from workers.errors import PackageError
from workers.runtimes.boosters import answered, classes_of
from workers.runtimes.contract import part

if TYPE_CHECKING:
    from pathlib import Path

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Outputs, Rows

FILE = "booster.txt"
_CLASSIFYING = ("binary", "multiclass", "multiclassova")


class LightGBMRuntime:
    """A booster as a model.

    Attributes:
        leaves_lock: it computes without Python's lock.
    """

    leaves_lock = True

    def __init__(self, manifest: Manifest, booster: lightgbm.Booster, threads: int) -> None:
        self._manifest, self._booster, self._threads = manifest, booster, threads

    def predict_batch(self, rows: Rows) -> Outputs:
        """Send the whole batch down all trees."""
        predicted = self._booster.predict(np.ascontiguousarray(rows), num_threads=self._threads)
        return answered(self._manifest, np.asarray(predicted))


def save(booster: Any, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Write a booster, or that of an estimator, into `folder`.

    Returns:
        The file, and what the package says of it: output and classes.

    Raises:
        PackageError: it is none.
    """
    found = getattr(booster, "booster_", booster)
    if not isinstance(found, lightgbm.Booster):
        raise PackageError(f"{type(booster).__name__} is no booster of LightGBM and no estimator with one")
    file = folder / FILE
    found.save_model(file)
    is_classifier = str(found.dump_model(num_iteration=1).get("objective", "")).partition(" ")[0] in _CLASSIFYING
    return file, {"output": "label" if is_classifier else "value", "classes": classes_of(booster)}


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> LightGBMRuntime:  # noqa: ARG001 - the contract's
    """Load the booster of a verified package.

    Raises:
        PackageError: there is none, or it is not what `save` wrote.
    """
    try:
        booster = lightgbm.Booster(model_str=part(files, FILE).decode())
    except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as error:
        raise PackageError(f"{FILE} holds no booster ({error}): package the model again") from error
    return LightGBMRuntime(manifest, booster, threads)
