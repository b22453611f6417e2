"""Rates from the times of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

# The rate is taken between these shares of the events: without the filling and without the last ones.
_FROM, _TO = 0.1, 0.9


def central_rate(times_us: Iterable[int]) -> float:
    """Return the rate (1/s) between the 10th and the 90th percentile of event times; 0 without two of them."""
    times = np.sort(np.fromiter(times_us, np.int64))
    start, end = int(len(times) * _FROM), int(len(times) * _TO) - 1
    if end <= start or times[end] == times[start]:
        return 0.0
    return float((end - start) / (times[end] - times[start]) * 1e6)
