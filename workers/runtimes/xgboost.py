"""Runs boosters of XGBoost, stored in its own format (UBJSON), which holds no code.

Rows are rounded to float32, as XGBoost does. NaN is a missing value.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost

from workers.errors import PackageError
from workers.runtimes.boosters import answered, classes_of
from workers.runtimes.contract import part

if TYPE_CHECKING:
    from pathlib import Path

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Outputs, Rows

FILE = "booster.ubj"
# Of these objectives a prediction is a probability of the second class, or one of each class.
_BINARY, _SEVERAL = "binary:logistic", ("multi:softprob", "multi:softmax")


class XGBoostRuntime:
    """A booster as a model.

    Attributes:
        leaves_lock: it computes without Python's lock.
    """

    leaves_lock = True

    def __init__(self, manifest: Manifest, booster: xgboost.Booster) -> None:
        self._manifest, self._booster = manifest, booster
        self._is_label_alone = objective(booster) == "multi:softmax"

    def predict_batch(self, rows: Rows) -> Outputs:
        """Send the whole batch down all trees."""
        given = np.asarray(rows, dtype=np.float32)
        if not self._is_label_alone:
            return answered(self._manifest, self._booster.inplace_predict(given))
        margins = self._booster.inplace_predict(given, predict_type="margin")
        powers = np.exp(margins - margins.max(axis=1, keepdims=True))
        return answered(self._manifest, powers / powers.sum(axis=1, keepdims=True))


def objective(booster: xgboost.Booster) -> str:
    """Return what a booster was trained for, as XGBoost names it."""
    config = json.loads(booster.save_config())
    return str(config["learner"]["objective"]["name"])


def save(booster: Any, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Write a booster, or that of an estimator, into `folder`.

    Returns:
        The file, and what the package says of it: output and classes.

    Raises:
        PackageError: it is none, or its predictions are neither numbers nor probabilities.
    """
    found = booster.get_booster() if hasattr(booster, "get_booster") else booster
    if not isinstance(found, xgboost.Booster):
        raise PackageError(f"{type(booster).__name__} is no booster of XGBoost and no estimator with one")
    kind = objective(found)
    if kind.startswith(("binary:", "multi:")) and kind not in (_BINARY, *_SEVERAL):
        raise PackageError(f"the objective {kind} gives no probabilities: train with {_BINARY} or {_SEVERAL[0]}")
    file = folder / FILE
    found.save_model(file)
    is_classifier = kind.startswith(("binary:", "multi:"))
    return file, {"output": "label" if is_classifier else "value", "classes": classes_of(booster)}


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> XGBoostRuntime:  # noqa: ARG001 - the contract's
    """Load the booster of a verified package.

    Raises:
        PackageError: there is none, or it is not what `save` wrote.
    """
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(part(files, FILE)))
    except xgboost.core.XGBoostError as error:
        raise PackageError(
            f"{FILE} holds no booster ({str(error).splitlines()[0]}): package the model again"
        ) from error
    booster.set_param({"nthread": threads})
    return XGBoostRuntime(manifest, booster)
