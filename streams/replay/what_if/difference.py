"""What a change adds to the error, with an interval: the same queries in both columns, compared one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from policies.estimators.sequence import ConfidenceSequence
from streams.replay.what_if.outcomes import BINS

if TYPE_CHECKING:
    from streams.replay.what_if.outcomes import Numbers, QueryOutcomes

ALPHA: Final = 0.05


class DifferenceMoment(NamedTuple):
    """What the queries so far say of the difference.

    Attributes:
        queries: that feedback tells in both columns.
        mean: of changed loss - unchanged loss.
        low, high: the interval, of 95 %.
    """

    queries: int
    mean: float
    low: float
    high: float


def difference(unchanged: QueryOutcomes, changed: QueryOutcomes, order: Numbers) -> tuple[DifferenceMoment, ...]:
    """Return what the queries say of the difference of errors, after each of `BINS` parts of them.

    The last moment is that of all queries; there is none if no query is told in both columns. The bounds hold at all
    moments at once, and for policies that learn (`ConfidenceSequence`); losses lie in [0, 1].
    """
    added = changed.costs(order) - unchanged.costs(order)
    sequence, found = ConfidenceSequence(), []
    for part in np.array_split(added, BINS):
        known = part[~np.isnan(part)]
        if len(known):
            sequence.extend(known)
            found.append(DifferenceMoment(sequence.count, sequence.mean, *sequence.bounds(ALPHA)))
    return tuple(found)
