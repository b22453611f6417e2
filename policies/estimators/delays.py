"""How late feedback comes: the distribution of delays, with what has not come yet counted for what it says.

A prediction whose feedback has not come says that its delay is longer than the time since (Kaplan and Meier, J. Am.
Stat. Assoc. 53, 1958). Leaving such predictions out would make feedback look quicker than it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.estimators.log import Floats


@dataclass(frozen=True, slots=True)
class Delays:
    """The share of feedback that has come by a time after the prediction: a step function.

    Attributes:
        times_s: (k,) rising, where it steps.
        come: (k,) share that has come by then; never 1 where some feedback does not come at all.
        waiting: predictions whose feedback may still come.
        expected: how many of them it is expected to come for, within the longest delay that was seen.
    """

    times_s: Floats
    come: Floats
    waiting: int
    expected: float

    def by(self, time_s: float) -> float:
        """Return the share that has come by a time."""
        at = int(np.searchsorted(self.times_s, time_s, side="right"))
        return float(self.come[at - 1]) if at else 0.0

    def quantile(self, share: float) -> float | None:
        """Return by when a share of all predictions has its feedback; None = so many never have."""
        at = int(np.searchsorted(self.come, share))
        return float(self.times_s[at]) if at < len(self.times_s) else None


def delays(came_s: Floats, silent_s: Floats, open_s: Floats) -> Delays:
    """Estimate the distribution.

    Args:
        came_s: of each prediction with feedback: its delay.
        silent_s: of each whose window has ended without: the window.
        open_s: of each that still waits: the time since.
    """
    times: Floats = np.unique(np.maximum(came_s, 0.0))
    events = _counts(np.maximum(came_s, 0.0), times)
    everything = np.sort(np.concatenate([np.maximum(came_s, 0.0), silent_s, open_s]))
    at_risk = len(everything) - np.searchsorted(everything, times, side="left")
    come = 1.0 - np.cumprod(1.0 - events / np.maximum(at_risk, 1), dtype=np.float64)
    last = float(come[-1]) if len(come) else 0.0
    so_far = np.concatenate([[0.0], come])[np.searchsorted(times, open_s, side="right")]
    left = np.divide(last - so_far, 1.0 - so_far, out=np.zeros_like(so_far), where=so_far < 1.0)
    return Delays(times, come, len(open_s), float(left.sum()))


def _counts(values: Floats, times: Floats) -> NDArray[np.intp]:
    return np.bincount(np.searchsorted(times, values), minlength=len(times))
