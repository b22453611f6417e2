"""How far counts of bins lie apart: the share of the values that would have to be in other bins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streams.control.drift.evidence import Counts


def shares_of(counts: Counts) -> NDArray[np.float64]:
    """Return counts as shares; of nothing 0."""
    return np.asarray(counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1))


def is_as_ever(usual: Counts, lately: Counts, least: float) -> bool:
    """Return whether a column is lately near to what it was before, as a whole or in one of its hours.

    Args:
        usual: counts of before, as a whole and by hours.
        lately: counts of the last minutes.
        least: what matters; half of it is near.
    """
    far = distance(shares_of(usual[usual.any(axis=-1)]), shares_of(lately))
    return bool(far.min(initial=1.0) < least / 2 + _by_chance(lately))


def _by_chance(counts: Counts) -> float:
    """Return how far from their shares counts are by chance alone, on average: half the sum of their errors."""
    shares, size = shares_of(counts), max(1, int(counts.sum()))
    return float(np.sqrt(shares * (1 - shares) / size / (2 * np.pi)).sum())


def distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of values that would have to be in other bins; 0 where there are no values."""
    are_known = (one.sum(axis=-1) > 0) & (other.sum(axis=-1) > 0)
    return np.asarray(np.where(are_known, np.abs(one - other).sum(axis=-1) / 2, 0.0))
