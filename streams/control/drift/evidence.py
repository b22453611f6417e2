"""Whether the counts of a window come from the same shares as those before it: evidence that holds at any time.

Let values be independent and of the same shares of bins, which nobody knows. Two forecasters say how likely each value
is before it comes: one up to a time s, a new one from then on (of Krichevsky and Trofimov: a mixture of all shares).
Divided by what the true shares say, the product of what they said is a martingale that starts at 1. And what the true
shares say is at most what the best shares say afterwards. So the quotient

    said before s * said from s on / what the best shares say of both

is above 1 / a at any time with probability a at most (Ville, 1939; Wasserman, Ramdas and Balakrishnan, Universal
inference, 2020). There is one such quotient for each time s at which a change may have begun, as in the e-detectors of
Shin, Ramdas and Rinaldo (2022). A year has `STARTS` of them. All of all columns together are above `sure(columns)` with
probability `A_YEAR` at most.

Values that come in runs, or by the hour of the day, say less than independent ones. How much less is seen before the
window, in minutes, in windows of the same length, and in hours: evidence is divided by as much as their counts vary
more than those of independent values would. It counts still less where that is seen in few of them, as in Student's
t.
"""

from __future__ import annotations

from math import lgamma, log
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts: TypeAlias = NDArray[Any]  # (..., bins)

A_YEAR: Final = 0.01
# Minutes of a year at which a change may begin, each with what is known before it: that loses its oldest hour up to
# five times while the window grows.
STARTS: Final = 365 * 1_440 * 5
_LARGE: Final = 8  # from here on Stirling's series is exact to 12 digits


def sure(columns: int) -> float:
    """Return the logarithm of the evidence that chance brings in a year with probability `A_YEAR` at most."""
    return log(STARTS * max(1, columns) / A_YEAR)


def log_evidence(before: Counts, window: Counts) -> NDArray[np.float64]:
    """Return the logarithm of the quotient of the module's text, for each column.

    Examples:
        >>> same, other = np.array([[500, 500]]), np.array([[0, 60]])
        >>> log_evidence(same, other).round(1)
        array([33.6])
        >>> bool(log_evidence(same, same)[0] < 0.0)
        True
    """
    both = before + window
    share = both / np.maximum(both.sum(axis=-1, keepdims=True), 1)
    best = (both * np.log(np.where(both, share, 1.0))).sum(axis=-1)
    return np.asarray(_forecast(before) + _forecast(window) - best)


def dispersion(blocks: Counts) -> NDArray[np.float64]:
    """Return how many times more the counts of blocks (n, columns, bins) vary than independent ones; at least 1."""
    total = blocks.sum(axis=0)
    used = np.maximum((total > 0).sum(axis=-1) - 1, 1)
    shares = total / np.maximum(total.sum(axis=-1, keepdims=True), 1)
    sizes = blocks.sum(axis=-1, keepdims=True)
    expected = sizes * shares
    squares = np.where(expected > 0, (blocks - expected) ** 2 / np.maximum(expected, 1e-9), 0.0).sum(axis=(0, -1))
    return np.asarray(np.maximum(1.0, squares / (used * np.maximum((sizes[..., 0] > 0).sum(axis=0) - 1, 1))))


def tempered(found: NDArray[np.float64], blocks: Counts) -> NDArray[np.float64]:
    """Return what is left of evidence, given how much the counts of earlier blocks (n, columns, bins) vary."""
    used = np.maximum((blocks.sum(axis=0) > 0).sum(axis=-1) - 1, 1)
    freedom = used * np.maximum((blocks.sum(axis=-1) > 0).sum(axis=0) - 1, 1)
    return np.asarray(freedom / 2 * np.log1p(2 * np.maximum(found, 0.0) / (dispersion(blocks) * freedom)))


def _forecast(counts: Counts) -> NDArray[np.float64]:
    """Return the logarithm of how likely the forecaster has said that the values are, in their order."""
    bins = counts.shape[-1]
    each = (_log_gamma(counts + 0.5) - lgamma(0.5)).sum(axis=-1)
    return np.asarray(each + lgamma(bins / 2) - _log_gamma(counts.sum(axis=-1) + bins / 2))


def _log_gamma(x: Counts) -> NDArray[np.float64]:
    """Return the logarithm of the gamma function of numbers above 0."""
    steps = np.log(np.asarray(x)[..., None] + np.arange(_LARGE)).sum(axis=-1)
    y = np.asarray(x) + _LARGE
    series = 1 / (12 * y) - 1 / (360 * y**3) + 1 / (1260 * y**5) - 1 / (1680 * y**7)
    return np.asarray((y - 0.5) * np.log(y) - y + 0.5 * log(2 * np.pi) + series - steps)
