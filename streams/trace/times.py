"""Quantiles of times in constant memory."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

_RATIO: Final = math.log(1.01)  # a quantile is right to 1 %


class LogTimes:
    """Times by their logarithm: quantiles without the times themselves."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.largest_us = 0

    def add(self, time_us: int) -> None:
        """Count a time; a negative one counts as none at all."""
        self._counts[round(math.log(max(1, time_us)) / _RATIO)] += 1
        self.largest_us = max(self.largest_us, time_us)

    def quantile_ms(self, share: float) -> float | None:
        """Return the time that this share of all does not exceed, to 1 %; None without any."""
        left = share * self._counts.total()
        for index in sorted(self._counts):
            left -= self._counts[index]
            if left <= 0:
                return min(math.exp(index * _RATIO), self.largest_us) / 1e3
        return None
