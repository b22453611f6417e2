"""Which of several independent normal variables is the highest: probabilities by quadrature on fixed nodes.

It needs numpy alone, for the reason in `policies.beta`. The tests compare the result with scipy's.
"""

from __future__ import annotations

from math import erf, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Each variable brings nodes of its own, so that a narrow one is resolved beside a wide one.
_NODES: Final = np.linspace(-6.0, 6.0, 33)
# The normal distribution function: between two of these points it is straight to 5e-7.
_POINTS: Final = np.linspace(-8.0, 8.0, 4097)
_CUMULATIVE: Final = np.array([0.5 + 0.5 * erf(point / sqrt(2.0)) for point in _POINTS.tolist()])


def best_probabilities(means: Floats, deviations: Floats) -> Floats:
    """Return for each variable the probability that it is the highest of all.

    Args:
        means: (K,).
        deviations: (K,), positive.

    Returns:
        (K,), sums to 1.
    """
    points = np.sort((means + deviations * _NODES[:, None]).ravel())
    below = np.interp((points[:, None] - means) / deviations, _POINTS, _CUMULATIVE)  # (33 K, K)
    others = np.ones_like(below)  # the product of all columns but its own: of those before it, and those after it
    np.multiply.accumulate(below[:, :-1], axis=1, out=others[:, 1:])
    others[:, :-1] *= np.multiply.accumulate(below[:, :0:-1], axis=1)[:, ::-1]
    best = ((below[1:] - below[:-1]) * (others[1:] + others[:-1])).sum(axis=0)
    return np.asarray(best / best.sum())
