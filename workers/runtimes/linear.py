"""Runs linear models as arrays: a product, an addition, and the label that wins. A call takes a few microseconds.

scikit-learn checks every batch (types, namespaces, shapes, finiteness) before the same product. That takes 100 to
300 us a call, whatever its size. Rows that arrive here have been checked. `linear_conversion` writes the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import threadpoolctl  # type: ignore[import-untyped] # has no annotations

from workers.errors import PackageError
from workers.runtimes import arrays
from workers.runtimes.contract import Outputs, labels

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Answers, Files, Rows

LINEAR_FILE = "linear.npz"
LINKS = ("identity", "label", "log_odds", "logistic", "softmax")
OPERATIONS = ("subtract", "divide", "multiply", "add", "clip")


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear model of f features: `rows @ weights + intercept`, after the operations of its scalers.

    The dtypes are scikit-learn's, so the numbers are equal but for the last bits of a sum.
    """

    weights: NDArray[np.floating]  # (f, k), or (f,) of one output: a value, or the score of the second of two labels
    intercept: NDArray[np.floating]  # (k,) or ()
    link: str  # of LINKS: what makes probabilities of the scores; `label` where there are none, `identity` for values
    # `log_odds`: scores are answered as they are
    scaled: np.dtype[np.generic]  # of the rows while they are scaled
    scaling: tuple[tuple[str, NDArray[np.generic]], ...] = ()  # an operation and its operand (f,), of `clip` (2,)

    def raw(self, rows: NDArray[np.generic]) -> NDArray[np.floating]:
        """Return the scores or values of rows (n, f): (n, k) or (n,)."""
        if self.scaling:
            rows = self._scale(rows)
        found: NDArray[np.floating] = np.dot(rows, self.weights)
        found += self.intercept
        return found

    def probabilities(self, raw: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the probabilities (n, classes) of scores, which are overwritten."""
        if self.link == "softmax":
            raw -= np.maximum.reduce(raw, axis=1, keepdims=True)  # `raw.max` costs Python besides
            np.exp(raw, out=raw)
        else:
            with np.errstate(over="ignore"):  # far below 0 the logistic function is 0
                raw = 1.0 / (1.0 + np.exp(-raw))
            if raw.ndim == 1:
                return np.stack([1.0 - raw, raw], axis=1)
            raw[~raw.any(axis=1)] = 1.0  # no class is possible: all are as likely
        raw /= np.add.reduce(raw, axis=1, keepdims=True)
        return raw

    def _scale(self, rows: NDArray[np.generic]) -> NDArray[np.generic]:
        scaled = rows.astype(self.scaled)
        for operation, operand in self.scaling:
            if operation == "clip":
                np.clip(scaled, operand[0], operand[1], out=scaled)
            else:
                getattr(np, operation)(scaled, operand, out=scaled)
        return scaled


class LinearRuntime:
    """A linear model as a model."""

    def __init__(self, manifest: Manifest, linear: Linear) -> None:
        self._manifest, self._linear = manifest, linear
        classes = labels(manifest.classes) if manifest.classes else ()
        self._names = classes if isinstance(classes, tuple) else ()
        self._labels = np.zeros(0, dtype=np.int64) if isinstance(classes, tuple) else classes

    def predict_batch(self, rows: Rows) -> Outputs:
        """Multiply once for the whole batch."""
        return self.outputs(self._linear.raw(rows))  # type: ignore[arg-type] # tensors: `load` checks

    def outputs(self, raw: NDArray[np.floating]) -> Outputs:
        """Return the answers of scores or values (n, k) or (n,), which may be overwritten."""
        kind = self._manifest.output
        if kind == "label":
            return Outputs(self._taken(raw.argmax(axis=1) if raw.ndim == 2 else raw > 0))
        if kind == "value":
            return Outputs(raw.astype(np.float64, copy=False))
        scores = raw if self._linear.link == "log_odds" else self._linear.probabilities(raw)
        return Outputs(self._taken(scores.argmax(axis=1)), scores)

    def _taken(self, indices: NDArray[np.intp] | NDArray[np.bool_]) -> Answers:
        if self._names:
            return tuple([self._names[index] for index in indices.tolist()])
        return self._labels.take(indices)


def save(linear: Linear, folder: Path) -> str:
    """Write the arrays into `folder` and return the name of the file."""
    scaling = {f"scaling_{place}_{name}": operand for place, (name, operand) in enumerate(linear.scaling)}
    np.savez(
        folder / LINEAR_FILE,
        weights=linear.weights,
        intercept=linear.intercept,
        link=linear.link,
        scaled=linear.scaled.name,
        **scaling,  # type: ignore[arg-type] # arrays, not `allow_pickle`
    )
    return LINEAR_FILE


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> LinearRuntime:  # noqa: ARG001 - the contract's
    """Load the arrays of a verified package.

    Raises:
        PackageError: there are none, they are not what `save` wrote, or they cannot answer what the manifest says.
    """
    stored = arrays.read(files, LINEAR_FILE, "linear model")
    try:
        linear = _linear(stored)
    except (ValueError, KeyError, TypeError) as error:
        raise PackageError(f"{LINEAR_FILE} holds no linear model ({error}): package the model again") from error
    check(manifest, linear)
    _pools().limit(limits=threads, user_api="blas")  # for the process
    return LinearRuntime(manifest, linear)


@cache
def _pools() -> threadpoolctl.ThreadpoolController:
    """Return the pools of threads of this process. To look for them takes 4 ms, as long as all else of loading."""
    return threadpoolctl.ThreadpoolController()


def _linear(stored: Mapping[str, NDArray[Any]]) -> Linear:
    link = stored["link"].item()
    steps = [name.split("_") for name in stored if name.startswith("scaling_")]
    ordered = sorted((int(place), name) for _, place, name in steps)
    scaling = tuple((name, stored[f"scaling_{place}_{name}"]) for place, name in ordered)
    unknown = {link}.difference(LINKS) | {name for name, _ in scaling}.difference(OPERATIONS)
    if unknown:
        raise ValueError(f"unknown: {', '.join(unknown)}")
    return Linear(stored["weights"], stored["intercept"], link, np.dtype(stored["scaled"].item()), scaling)


def check(manifest: Manifest, linear: Linear) -> None:
    """Check that the arrays fit the form of rows and answers.

    Raises:
        PackageError: they do not fit.
    """
    if manifest.input.shape != linear.weights.shape[:1] or manifest.input.allow_nan:
        raise PackageError(f"{manifest.name}: a linear model takes rows of {len(linear.weights)} numbers without NaN")
    check_answers(manifest, linear)


def check_answers(manifest: Manifest, linear: Linear) -> None:
    """Check that the arrays fit the form of answers.

    Raises:
        PackageError: they do not fit.
    """
    outputs = 2 if linear.weights.ndim == 1 else linear.weights.shape[1]
    if (manifest.output == "value") != (linear.link == "identity"):
        raise PackageError(
            f"{manifest.name}: a linear regressor has the output value, a linear classifier label or scores"
        )
    if manifest.output != "value" and len(manifest.classes) != outputs:
        raise PackageError(f"{manifest.name} has {len(manifest.classes)} classes, but scores for {outputs}")
    if manifest.output == "scores" and linear.link == "label":
        raise PackageError(f"{manifest.name} has no probabilities: package it with the output label")
