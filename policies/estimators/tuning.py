"""Chooses a parameter of an estimator by the log alone: as little bias as the noise allows to see (SLOPE++)."""

from __future__ import annotations

from math import inf, sqrt
from typing import TYPE_CHECKING

from policies.estimators.estimate import Contributions, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Bounds on weights, the first cuts nothing and has no bias.
CANDIDATES = (inf, 1_000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
_TWO_SIDED_95 = 1.959964
_LATER = sqrt(6.0) - 1.0


def tuned(
    made: Callable[[float], Contributions], candidates: Sequence[float] = CANDIDATES
) -> tuple[float, Contributions]:
    """Return the parameter, and the contributions under it, that SLOPE++ chooses.

    Candidates are taken in order of their bias, the least first. The next one is taken as long as it agrees with all
    before it; the last one taken is the choice.

    Args:
        made: contributions under a parameter.
        candidates: parameters to choose from, in order of the bias that they bring.

    References:
        Su, Srinath and Krishnamurthy, Adaptive estimator selection for off-policy evaluation, ICML 2020; Tucker and
        Lee, Improved estimator selection for off-policy evaluation, 2021 (the constant).
    """
    chosen = (candidates[0], made(candidates[0]))
    accepted: list[tuple[float, float]] = []
    for candidate in candidates:
        rows = made(candidate)
        value, error = ratio(rows)
        half = _TWO_SIDED_95 * error
        if any(abs(value - other) > half + _LATER * its for its, other in accepted):
            break
        accepted.append((half, value))
        chosen = (candidate, rows)
    return chosen
