"""One figure from many events or several rounds: rates of backlogs, sums, medians, held-out bests."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Of a backlog: the last answers may wait for a commit or a lull, and say nothing about the rate.
_DRAINED = 0.95
_T = TypeVar("_T")
ROUNDS = 3
# One start of the same program is 20 % ahead of the next (measured). Short stretches are a look, and from one start.
STARTS, LONG_S = 3, 20.0
_COUNTED = frozenset({"queries_sent", "predictions_distinct", "lost", "duplicates", "in_time", "defaults", "late"})


def drain_rate(times_us: Iterable[int], start_us: int, count: int) -> float:
    """Return the rate (1/s) at which a backlog was answered, from its first query to 95 % of the answers.

    Unlike between two shares of the answers, working in silence and answering in one go gains nothing.

    Args:
        times_us: of the answers.
        start_us: when the first query was written, or later: answers before it do not count.
        count: queries of the backlog; if fewer than 95 % have an answer, the last answer ends it.
    """
    times = np.sort(np.fromiter(times_us, np.int64))
    end = min(len(times), max(1, int(count * _DRAINED)))
    if not end or times[end - 1] <= start_us:
        return 0.0
    before = int(np.searchsorted(times, start_us))
    return float((end - before) / (times[end - 1] - start_us) * 1e6)


def cores(per_s: float, *cpu_us: float) -> float:
    """Return how many cores a rate keeps busy that costs so much CPU time (us) a query, of each of its parts."""
    return per_s * sum(cpu_us) / 1e6


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
