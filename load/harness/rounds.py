"""One figure from several rounds, so that neither a busy moment of the machine nor luck decides."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_T = TypeVar("_T")

ROUNDS = 3
# One start of the same program is 20 % ahead of the next (measured). Short stretches are a look, and from one start.
STARTS, LONG_S = 3, 20.0
_COUNTED = frozenset({"queries_sent", "predictions_distinct", "lost", "duplicates", "in_time", "defaults", "late"})


def over_rounds(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of what was counted and the median of everything else, of the figures that all rounds have."""
    names = [name for name in rounds[0] if all(name in figures for figures in rounds)]
    return {
        name: (sum if name in _COUNTED else statistics.median)([figures[name] for figures in rounds]) for name in names
    }


def starts(seconds: float) -> int:
    """Return how often to start what is measured for so many seconds."""
    return STARTS if seconds >= LONG_S else 1


def turned(contenders: Iterable[_T], turn: int) -> list[_T]:
    """Return the contenders as they come in this turn: in every other one backwards."""
    return list(contenders)[:: -1 if turn % 2 else 1]


def held_out(contenders: Sequence[Sequence[float]], parts: int) -> list[float]:
    """Return what the best contender did, round by round; in each part of them the one that was best in the others.

    The best of several is also the luckiest: by the rounds that chose it, it looks better than it is.

    Args:
        contenders: the rounds of each, all as many.
        parts: how many parts of them there are, one after the other, at least two.
    """
    found: list[float] = []
    size = len(contenders[0]) // parts
    for start in range(0, size * parts, size):
        own = slice(start, start + size)
        best = max(contenders, key=lambda rounds: sum(rounds) - sum(rounds[own]))
        found += best[own]
    return found
