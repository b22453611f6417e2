"""How a mean and its bounds have stood over time, in a bounded number of moments."""

from __future__ import annotations

from typing import NamedTuple

# Moments that are kept; when there are so many, every second one goes and the next ones follow half as often.
MOST = 120
FIRST_STEP_US = 2_000_000


class Moment(NamedTuple):
    """A mean with its bounds at a time."""

    time_us: int
    mean: float
    lower: float
    upper: float


class Trail:
    """The moments since the first, the oldest first, about equally far apart."""

    __slots__ = ("_next_us", "_step_us", "moments")

    def __init__(self) -> None:
        self._next_us = 0
        self._step_us = FIRST_STEP_US
        self.moments: list[Moment] = []

    def is_due(self, time_us: int) -> bool:
        """Tell whether a moment is wanted: bounds cost more than an observation."""
        return time_us >= self._next_us

    def add(self, time_us: int, mean: float, lower: float, upper: float) -> None:
        """Keep a moment."""
        self.moments.append(Moment(time_us, mean, lower, upper))
        if len(self.moments) >= MOST:
            del self.moments[::2]
            self._step_us *= 2
        self._next_us = time_us + self._step_us
