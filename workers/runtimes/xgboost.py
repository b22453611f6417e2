"""Runs boosters of XGBoost, stored in its own format (UBJSON), which holds no code.

Rows are rounded to float32, as XGBoost does. NaN is a missing value.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import xgboost

from workers.errors import PackageError
from workers.runtimes.boosters import answered, as_arrays, plain
from workers.runtimes.contract import Outputs, labels, part
from workers.runtimes.estimators import ask, classes_of, output_of
from workers.runtimes.tables import shaper
from workers.runtimes.trees_conversion import Ensemble, OneTree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Rows, Runtime

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
        self._missing = float(cast("Mapping[str, float]", manifest.options).get("missing", np.nan))
        self._shaped = None if plain(manifest) else shaper(manifest.input)

    def predict_batch(self, rows: Rows) -> Outputs:
        """Send the whole batch down all trees."""
        given = np.asarray(rows, dtype=np.float32) if self._shaped is None else self._shaped(rows)
        if not self._is_label_alone:
            return answered(self._manifest, self._booster.inplace_predict(given, missing=self._missing))
        margins = self._booster.inplace_predict(given, predict_type="margin", missing=self._missing)
        powers = np.exp(margins - margins.max(axis=1, keepdims=True))
        return answered(self._manifest, powers / powers.sum(axis=1, keepdims=True))


def objective(booster: xgboost.Booster) -> str:
    """Return what a booster was trained for, as XGBoost names it."""
    config = json.loads(booster.save_config())
    return str(config["learner"]["objective"]["name"])


def save(booster: Any, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Write a booster, or that of an estimator, into `folder`.

    After early stopping an estimator answers with the trees up to its best round, so these alone are kept.

    Returns:
        The file, and what the package says of it: output, classes, and the number that an estimator takes for missing.

    Raises:
        PackageError: it is none, or its predictions are neither numbers nor probabilities.
    """
    is_estimator = hasattr(booster, "get_booster")
    found = booster.get_booster() if is_estimator else booster
    if not isinstance(found, xgboost.Booster):
        raise PackageError(f"{type(booster).__name__} is no booster of XGBoost and no estimator with one")
    kind = objective(found)
    if kind.startswith(("binary:", "multi:")) and kind not in (_BINARY, *_SEVERAL):
        raise PackageError(f"the objective {kind} gives no probabilities: train with {_BINARY} or {_SEVERAL[0]}")
    if (
        is_estimator
        and booster.booster != "gblinear"
        and (best := getattr(booster, "best_iteration", None)) is not None
    ):
        found = found[: best + 1]
    file = folder / FILE
    found.save_model(file)
    said: dict[str, Any] = {"output": "value", "classes": classes_of(booster)}
    if kind.startswith(("binary:", "multi:")):
        several = json.loads(found.save_config())["learner"]["learner_model_param"]["num_class"]
        said["output"] = output_of(max(2, int(several)))
    missing = getattr(booster, "missing", None)
    if missing is not None and not np.isnan(missing):
        said["options"] = {"missing": float(missing)}
    return file, said


# Classes that a file of XGBoost's own may be read by; none of them runs code of the file.
_READERS: Final = ("Booster", "XGBClassifier", "XGBRegressor", "XGBRanker", "XGBRFClassifier", "XGBRFRegressor")


def read(file: Path, kind: str = "") -> Any:
    """Read what XGBoost has saved in a format of its own.

    Args:
        file: UBJSON or JSON.
        kind: the class that saved it, such as `xgboost.sklearn.XGBClassifier`; empty = a booster.

    Raises:
        PackageError: it holds none, or the class is not one of XGBoost's.
    """
    name = kind.rpartition(".")[2] or "Booster"
    if name not in _READERS or (kind and not kind.startswith("xgboost.")):
        raise PackageError(f"{file} was saved by {kind}; there are: {', '.join(_READERS)}")
    found = getattr(xgboost, name)()
    try:
        found.load_model(file)
    except (xgboost.core.XGBoostError, ValueError, TypeError) as error:
        raise PackageError(f"{file} holds no model of XGBoost: {str(error).splitlines()[0]}") from error
    return found


def original(booster: Any, manifest: Manifest) -> Callable[[Any], Outputs]:
    """Return what asks a trained booster or estimator itself."""
    if hasattr(booster, "get_booster"):
        return ask(booster, manifest)

    def asked(rows: Any) -> Outputs:
        given = xgboost.DMatrix(rows, enable_categorical=True)
        if objective(booster) != "multi:softmax":
            return answered(manifest, booster.predict(given, validate_features=False))
        places = booster.predict(given, validate_features=False).astype(int)
        return Outputs(labels(np.asarray(manifest.classes)[places] if manifest.classes else places))

    return asked


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> Runtime:  # noqa: ARG001 - the contract's
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
    own = XGBoostRuntime(manifest, booster)
    if "missing" in manifest.options:
        return own
    return as_arrays(manifest, lambda: _ensemble(booster), own.predict_batch) or own


# Of these objectives: how raw outputs become an answer, and what the base score is in them.
_LINKS: Final[Mapping[str, tuple[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]]]] = {
    "reg:squarederror": ("identity", lambda base: base),
    "count:poisson": ("exp", np.log),
    "binary:logistic": ("logistic", lambda base: np.log(base / (1.0 - base))),
    "multi:softprob": ("softmax", lambda base: base),
    "multi:softmax": ("softmax", lambda base: base),
}


def _ensemble(booster: xgboost.Booster) -> Ensemble:
    """Return a booster's trees.

    Raises:
        PackageError: they have steps that arrays have not.
    """
    learner = json.loads(booster.save_raw("json"))["learner"]
    kind, model = objective(booster), learner["gradient_booster"].get("model")
    if kind not in _LINKS or model is None or learner["gradient_booster"]["name"] != "gbtree":
        raise PackageError(f"its objective {kind} or its kind of booster has no arrays")
    given = learner["learner_model_param"]
    outputs = max(1, int(given["num_class"]))
    groups, trees = model["tree_info"], model["trees"]
    if groups != [at % outputs for at in range(len(groups))] or int(given.get("num_target", 1)) != 1:
        raise PackageError("it has several trees a round, or several targets")
    link, margin = _LINKS[kind]
    base = np.broadcast_to(margin(np.ravel(json.loads(given["base_score"].lower()))), (outputs,)).astype(np.float64)
    return Ensemble([_tree(tree) for tree in trees], len(trees) // outputs, link, base)


def _tree(tree: dict[str, Any]) -> OneTree:
    """Return a tree; its rows go left below a threshold, so the arrays' threshold is the float32 before it."""
    if any(tree["split_type"]):
        raise PackageError("it has categorical features")
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    leaf, conditions = left == -1, np.array(tree["split_conditions"], dtype=np.float32)
    depth = np.zeros(len(left), dtype=int)
    for node in np.flatnonzero(~leaf):  # parents stand before their children
        depth[[left[node], right[node]]] = depth[node] + 1
    before = np.nextafter(conditions, np.float32(-np.inf)).astype(np.float64)
    missing_left = np.array(tree["default_left"], dtype=bool)
    leaves = conditions.astype(np.float64)[:, None]
    return OneTree(leaf, left, right, np.array(tree["split_indices"]), before, missing_left, leaves, int(depth.max()))
