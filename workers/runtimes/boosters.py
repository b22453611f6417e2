"""Shared by the runtimes of XGBoost and LightGBM: their trees as arrays, and from what is computed to answers.

A booster's trees run as the arrays of `trees` where these answer as the library does: to 1e-5, of values relative to
the largest, on rows beside the trees' own thresholds. For small batches that saves most of the time. Else the library
predicts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np

from workers.errors import PackageError
from workers.runtimes.contract import Outputs, scored, values
from workers.runtimes.trees import IS_COMPILED, TreesRuntime
from workers.runtimes.trees_conversion import arrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Rows
    from workers.runtimes.trees import Trees
    from workers.runtimes.trees_conversion import Ensemble

_log = logging.getLogger(__name__)
TOLERANCE: Final = 1e-5  # XGBoost adds float32, the arrays add float64
_PROBES: Final = 256  # rows on which the two are compared


def answered(manifest: Manifest, predicted: NDArray[np.floating]) -> Outputs:
    """Return the answers of a booster.

    Args:
        manifest: says what is wanted.
        predicted: (n,) numbers, for two classes the probability of the second; or (n, k), one for each class.

    Raises:
        OutputError: it is not what the manifest says.
    """
    if manifest.output == "value":
        return values(predicted)
    scores = np.stack([1.0 - predicted, predicted], axis=1) if predicted.ndim == 1 else predicted
    return scored(scores, manifest.classes, keep=manifest.output == "scores")


def plain(manifest: Manifest) -> bool:
    """Tell whether rows are numbers alone, which need no data frame."""
    return all(kind in {"float64", "int64", "bool", "any"} for _, kind in manifest.input.columns)


def as_arrays(
    manifest: Manifest, ensemble: Callable[[], Ensemble], predict: Callable[[Rows], Outputs]
) -> TreesRuntime | None:
    """Return a runtime of a booster's trees as arrays; None if it has others, or they answer otherwise.

    Args:
        manifest: of the package.
        ensemble: reads the trees; raises `PackageError` where they cannot be run so.
        predict: the library's own answers.
    """
    if not IS_COMPILED or manifest.input.kind != "tensor":
        return None
    try:
        read = ensemble()
        trees = arrays(read, np.dtype(read.dtype))
        runtime = TreesRuntime(manifest, trees)
        rows = _probes(trees, manifest)
        apart = _apart(predict(rows), runtime.predict_batch(rows))
    except (PackageError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        _log.info("%s %s runs under %s itself: %s", manifest.name, manifest.version, manifest.runtime, error)
        return None
    if apart > TOLERANCE:
        _log.warning("%s %s: its trees as arrays differ by %.2g", manifest.name, manifest.version, apart)
        return None
    return runtime


def _probes(trees: Trees, manifest: Manifest) -> NDArray[np.generic]:
    """Return rows (256, features) whose numbers lie at thresholds of their feature, or next to them."""
    random, (width,) = np.random.default_rng(0), manifest.input.shape
    rows = np.zeros((_PROBES, width))
    inner = np.isfinite(trees.threshold)
    for feature in range(width):
        known = trees.threshold[inner & (trees.feature == feature)]
        if len(known):
            at = random.choice(known, _PROBES)
            rows[:, feature] = np.where(random.random(_PROBES) < 0.5, at, np.nextafter(at, np.inf, dtype=at.dtype))
    if manifest.input.allow_nan:
        rows[random.random(rows.shape) < 0.1] = np.nan
    return rows.astype(str(manifest.input.dtype))


def _apart(own: Outputs, found: Outputs) -> float:
    """Return how far scores or values lie apart; of labels the share that differs."""
    if own.scores is not None and found.scores is not None:
        return float(np.abs(own.scores.astype(np.float64) - found.scores.astype(np.float64)).max())
    one, other = np.asarray(own.answers), np.asarray(found.answers)
    if one.dtype.kind == "f":
        return float(np.abs(one - other).max() / max(1.0, np.abs(one).max()))
    return float((one != other).mean())
