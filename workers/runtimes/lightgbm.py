"""Runs boosters of LightGBM, stored in its own text format, which holds no code. NaN is a missing value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import lightgbm
import numpy as np

from workers.errors import PackageError
from workers.runtimes.boosters import answered, as_arrays, plain
from workers.runtimes.contract import part
from workers.runtimes.estimators import ask, classes_of, output_of
from workers.runtimes.tables import shaper
from workers.runtimes.trees_conversion import Ensemble, OneTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Outputs, Rows, Runtime

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
        self._shaped = None if plain(manifest) else shaper(manifest.input)

    def predict_batch(self, rows: Rows) -> Outputs:
        """Send the whole batch down all trees."""
        given = np.ascontiguousarray(rows) if self._shaped is None else self._shaped(rows)
        predicted = self._booster.predict(given, num_threads=self._threads)
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
    told = found.dump_model(num_iteration=1)
    said: dict[str, Any] = {"output": "value", "classes": classes_of(booster)}
    if str(told.get("objective", "")).partition(" ")[0] in _CLASSIFYING:
        said["output"] = output_of(max(2, int(told["num_class"])))
    return file, said


def read(file: Path) -> lightgbm.Booster:
    """Read a booster that LightGBM has saved as its text.

    Raises:
        PackageError: it holds none.
    """
    try:
        return lightgbm.Booster(model_str=file.read_text(encoding="utf-8"))
    except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as error:
        raise PackageError(f"{file} holds no booster of LightGBM: {error}") from error


def original(booster: Any, manifest: Manifest) -> Callable[[Any], Outputs]:
    """Return what asks a trained booster or estimator itself."""
    if hasattr(booster, "booster_"):
        return ask(booster, manifest)
    return lambda rows: answered(manifest, np.asarray(booster.predict(rows)))


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> Runtime:  # noqa: ARG001 - the contract's
    """Load the booster of a verified package.

    Raises:
        PackageError: there is none, or it is not what `save` wrote.
    """
    try:
        booster = lightgbm.Booster(model_str=part(files, FILE).decode())
    except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as error:
        raise PackageError(f"{FILE} holds no booster ({error}): package the model again") from error
    own = LightGBMRuntime(manifest, booster, threads)
    text, allow_nan = booster.model_to_string(), manifest.input.allow_nan
    return as_arrays(manifest, lambda: _ensemble(text, allow_nan=allow_nan), own.predict_batch) or own


_ZERO: Final = float(np.float32(1e-35))  # numbers up to this are 0 to LightGBM, and so above a threshold of -_ZERO
# Bits of a node's decision type.
_CATEGORICAL, _DEFAULT_LEFT, _MISSING, _NAN = 1, 2, 12, 8


_LINKS: Final = {
    "regression": "identity",
    "regression_l1": "identity",
    "huber": "identity",
    "poisson": "exp",
    "binary sigmoid:1": "logistic",
    "multiclass": "softmax",
}


def _ensemble(text: str, *, allow_nan: bool) -> Ensemble:
    """Return the trees in a booster's text: its JSON has fewer digits.

    Raises:
        PackageError: they have steps that arrays have not.
    """
    head, *parts = text.partition("end of trees")[0].split("\nTree=")
    given = _fields(head)
    kind = given.get("objective", "")
    link = _LINKS.get(kind) or _LINKS.get("multiclass" if kind.startswith("multiclass ") else "")
    if link is None or "average_output" in head:
        raise PackageError(f"its objective {kind} has no arrays")
    outputs = int(given["num_tree_per_iteration"])
    trees = [_tree(_fields(part), allow_nan=allow_nan) for part in parts]
    return Ensemble(trees, len(trees) // outputs, link, np.zeros(outputs), dtype="float64")


def _fields(part: str) -> dict[str, str]:
    return {name: value for name, equals, value in (line.partition("=") for line in part.splitlines()) if equals}


def _tree(given: dict[str, str], *, allow_nan: bool) -> OneTree:
    """Return a tree: its inner nodes as they are numbered there, then its leaves, whose numbers are negative there."""
    leaf_values = np.array(given["leaf_value"].split(), dtype=np.float64)
    inner = len(leaf_values) - 1
    kinds = np.array(given.get("decision_type", "").split()[:inner], dtype=int)
    known = (_NAN,) if allow_nan else (_NAN, 0)
    if given.get("is_linear", "0") != "0" or (kinds & _CATEGORICAL).any() or not np.isin(kinds & _MISSING, known).all():
        raise PackageError("it has categorical features or linear leaves, or takes zero for missing")
    nodes, beyond = inner + len(leaf_values), np.full(len(leaf_values), -1)
    children = [np.array(given.get(side, "").split()[:inner], dtype=int) for side in ("left_child", "right_child")]
    left, right = (np.concatenate([np.where(one < 0, inner + ~one, one), beyond]) for one in children)
    depth, none = np.zeros(nodes, dtype=int), np.zeros(len(leaf_values))
    for node in range(inner):  # parents stand before their children
        depth[[left[node], right[node]]] = depth[node] + 1
    feature = np.array(given.get("split_feature", "").split()[:inner], dtype=int)
    threshold = np.array(given.get("threshold", "").split()[:inner], dtype=np.float64)
    threshold[(threshold >= -_ZERO) & (threshold < 0.0)] = np.nextafter(-_ZERO, -np.inf)
    return OneTree(
        left == -1,
        left,
        right,
        np.concatenate([feature, none.astype(int)]),
        np.concatenate([threshold, none]),
        np.concatenate([kinds & _DEFAULT_LEFT, none.astype(int)]).astype(bool),
        np.concatenate([np.zeros(inner), leaf_values])[:, None],
        int(depth.max()),
    )
