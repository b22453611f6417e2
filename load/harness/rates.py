"""Rates from the times of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

# Of a backlog: the last answers may wait for a commit or a lull, and say nothing about the rate.
_DRAINED = 0.95
# The rate is taken between these shares of the events: without the filling and without the last ones.
_FROM, _TO = 0.1, 0.9


def central_rate(times_us: Iterable[int]) -> float:
    """Return the rate (1/s) between the 10th and the 90th percentile of event times; 0 without two of them."""
    times = np.sort(np.fromiter(times_us, np.int64))
    start, end = int(len(times) * _FROM), int(len(times) * _TO) - 1
    if end <= start or times[end] == times[start]:
        return 0.0
    return float((end - start) / (times[end] - times[start]) * 1e6)


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
