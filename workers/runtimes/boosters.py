"""Shared by the runtimes of XGBoost and LightGBM: from what a booster computes to answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workers.runtimes.contract import Outputs, scored, values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workers.manifest import Manifest


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


def classes_of(estimator: object) -> tuple[int | str, ...]:
    """Return the labels of a fitted estimator, as JSON can hold them; none of a booster or a regressor."""
    found = getattr(estimator, "classes_", None)
    return () if found is None else tuple(np.asarray(found).tolist())
