"""The last steps of pipelines: linear models and trees, as a store can hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workers.errors import PackageError
from workers.runtimes.linear import Linear
from workers.runtimes.stages.texts import grams
from workers.runtimes.trees import LINKS, Trees

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workers.runtimes.stages.steps import FittedStep


class ExactLinear(Linear):
    """A linear model whose probabilities are scikit-learn's to the bit."""

    __slots__ = ("__weakref__",)

    def probabilities(self, raw: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the probabilities (n, classes) of scores, which are overwritten."""
        if self.link != "logistic" or raw.dtype != np.float64:
            return super().probabilities(raw)
        found = np.ascontiguousarray(raw)
        grams.logistic(found.reshape(-1))
        if found.ndim == 1:
            return np.stack([1 - found, found], axis=1)
        found[~found.any(axis=1)] = 1.0  # no class is possible: all are as likely
        found /= np.add.reduce(found, axis=1, keepdims=True)
        return found


class SharedTrees(Trees):
    """Trees that a store can hold."""

    __slots__ = ("__weakref__",)


def linear_of(step: FittedStep) -> ExactLinear:
    """Read a linear model."""
    weights, intercept = step.arrays["weights"], step.arrays["intercept"]
    if not {weights.dtype.kind, intercept.dtype.kind} <= {"f"} or intercept.shape not in {(), weights.shape[1:]}:
        raise PackageError("a linear model's arrays do not fit each other")
    return ExactLinear(weights, intercept, str(step.options["link"]), np.dtype("float64"))  # type: ignore[arg-type] # floats


def trees_of(step: FittedStep) -> SharedTrees:
    """Read trees."""
    arrays, options = step.arrays, step.options
    link = str(options["link"])
    if link not in LINKS:
        raise PackageError(f"trees have the unknown link {link!r}")
    names = ("roots", "feature", "threshold", "left", "missing_right", "leaves", "base")
    plain = {
        "depth": int(options["depth"] or 0),
        "stages": int(options["stages"] or 0),
        "tie": float(options["tie"] or 0),
    }
    return SharedTrees(**{name: arrays[name] for name in names}, **plain, link=link)  # type: ignore[arg-type] # arrays and numbers
