"""One figure from several rounds, so that a busy moment of the machine does not decide."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROUNDS = 3
_COUNTED = frozenset({"queries_sent", "predictions_distinct", "lost", "duplicates", "in_time", "defaults", "late"})


def over_rounds(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of what was counted and the median of everything else, of the figures that all rounds have."""
    names = [name for name in rounds[0] if all(name in figures for figures in rounds)]
    return {
        name: (sum if name in _COUNTED else statistics.median)([figures[name] for figures in rounds]) for name in names
    }
