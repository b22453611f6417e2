"""What each arm is expected to cost in each decision, by a model that has not seen the decision: for `dm` and `dr`.

Decisions are split in three by turns; the losses of a third are predicted from the other two (cross-fitting). With
features it is a ridge regression for each arm, with contexts the arm's mean in the context, drawn towards its mean over
all, else the arm's mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.estimators.log import Floats

FOLDS = 3
_RIDGE = 1.0
_PRIOR = 10.0  # observations that the mean over all contexts counts as


def expected(
    losses: Floats,
    contexts: NDArray[np.intp] | None = None,
    features: Floats | None = None,
    parts: Floats | None = None,
) -> Floats:
    """Return the losses expected, (n, arms) in [0, 1]; 0.5 for an arm that was never asked.

    Args:
        losses: (n, arms), NaN where not known.
        contexts: (n,) number of the context of each decision, from 0; None = they have none.
        features: (n, d); None = there are none.
        parts: (n,) what each decision counts; None = all alike.
    """
    counted = np.ones(len(losses)) if parts is None else parts
    found = np.empty_like(losses)
    for fold in range(FOLDS):
        held = np.arange(len(losses)) % FOLDS == fold
        seen, its = losses[~held], counted[~held]
        if features is not None:
            found[held] = _ridge(seen, its, features[~held], features[held])
        elif contexts is not None:
            found[held] = _by_context(seen, its, contexts[~held], contexts[held], int(contexts.max()) + 1)
        else:
            found[held] = _means(seen, its)
    return np.clip(found, 0.0, 1.0)


def _means(losses: Floats, parts: Floats) -> Floats:
    """Return each arm's mean loss; one that was never asked is as good as a coin."""
    counts = parts @ ~np.isnan(losses)
    return np.where(counts > 0.0, parts @ np.nan_to_num(losses) / np.where(counts > 0.0, counts, 1.0), 0.5)


def _by_context(
    losses: Floats, parts: Floats, contexts: NDArray[np.intp], wanted: NDArray[np.intp], count: int
) -> Floats:
    """Return for the wanted contexts each arm's mean, with the mean over all counted as a few observations."""
    means, known = _means(losses, parts), ~np.isnan(losses)
    columns = []
    for arm, mean in enumerate(means):
        at = known[:, arm]
        times = np.bincount(contexts[at], weights=parts[at], minlength=count)
        sums = np.bincount(contexts[at], weights=parts[at] * losses[at, arm], minlength=count)
        columns.append(((sums + _PRIOR * mean) / (times + _PRIOR))[wanted])
    return np.stack(columns, axis=1)


def _ridge(losses: Floats, parts: Floats, features: Floats, wanted: Floats) -> Floats:
    """Return a ridge regression's predictions for the wanted rows, one regression an arm."""
    means, center = _means(losses, parts), parts @ features / parts.sum()
    columns = []
    for arm, mean in enumerate(means):
        at = ~np.isnan(losses[:, arm])
        rows = features[at] - center
        gram = (rows.T * parts[at]) @ rows + _RIDGE * np.eye(rows.shape[1])
        weights = np.linalg.solve(gram, rows.T @ (parts[at] * (losses[at, arm] - mean)))
        columns.append(mean + (wanted - center) @ weights)
    return np.stack(columns, axis=1)
