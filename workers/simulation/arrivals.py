"""When queries arrive: times from the start (us), never decreasing. All at once, so that millions cost little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workers.simulation.errors import PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPARE = 5.0  # standard deviations of a Poisson count: more gaps are drawn than are needed, as a rule


def poisson(rate: float, seconds: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the arrivals of a Poisson process.

    Args:
        rate: queries a second.
        seconds: for which they come.
        random: draws the gaps.
    """
    expected = rate * seconds
    count = int(expected + _SPARE * expected**0.5) + 8
    times_us = np.cumsum(random.exponential(1e6 / rate, count))
    while times_us[-1] < seconds * 1e6:
        times_us = np.concatenate([times_us, times_us[-1] + np.cumsum(random.exponential(1e6 / rate, count))])
    return times_us[times_us < seconds * 1e6].astype(np.int64)


def constant(rate: float, seconds: float) -> NDArray[np.int64]:
    """Return arrivals at `rate` a second, evenly spaced; the first is at 0."""
    return (np.arange(int(np.ceil(rate * seconds))) * (1e6 / rate)).astype(np.int64)


def trace(stamps_us: NDArray[np.int64], speed: float, seconds: float | None = None) -> NDArray[np.int64]:
    """Return recorded times with the first at 0.

    Args:
        stamps_us: recorded times, in any order.
        speed: how many times faster than recorded.
        seconds: after which the rest is left out; None = all of it.

    Raises:
        PlanError: there is nothing in it.
    """
    if not len(stamps_us):
        raise PlanError("the trace holds no arrivals")
    times_us = np.sort(stamps_us)
    found: NDArray[np.int64] = ((times_us - times_us[0]) / speed).astype(np.int64)
    return found if seconds is None else found[found < seconds * 1e6]
