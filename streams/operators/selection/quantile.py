"""A running quantile in one number, for estimates that follow a drifting distribution."""

from __future__ import annotations


class RunningQuantile:
    """Stochastic approximation of a quantile (Robbins and Monro 1951) with a step in proportion to the estimate.

    Args:
        q: the quantile in (0, 1).
        start: the first estimate, in the unit of the samples, > 0.
        step: relative step; .05 forgets within a few hundred samples.
    """

    __slots__ = ("_down", "_up", "value")

    def __init__(self, q: float, start: float, step: float = 0.05) -> None:
        self.value = start
        self._up = 1.0 + step * q
        self._down = 1.0 - step * (1.0 - q)

    def add(self, sample: float) -> None:
        """Move the estimate towards the quantile by one sample."""
        self.value = max(1.0, self.value * (self._up if sample > self.value else self._down))
