"""How long records are on their way between client, selection and worker: constants, or what was recorded.

Recorded legs are played as they were, over time: a stall of the broker or the machine delays everything that is sent
during it, and nothing else. Drawn one by one, the same delays would make a stall of each. Between two recorded moments
the delay is interpolated, so no record overtakes the one before it where none did.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Leg:
    """One way between two processes.

    Attributes:
        times_us: when records were sent, rising, from 0; a constant leg has one.
        delays_us: how long each was on its way.
        phase_us: of the recording, which repeats, at time 0.
    """

    times_us: tuple[int, ...]
    delays_us: tuple[int, ...]
    phase_us: int = 0

    @classmethod
    def constant(cls, delay_us: float) -> Leg:
        """Return a leg that always takes the same."""
        return cls((0,), (round(delay_us),))

    @classmethod
    def recorded(cls, times_us: Sequence[int], delays_us: Sequence[int]) -> Leg:
        """Return a leg from records: of those sent at the same moment the mean counts, and no delay is negative."""
        moments, which, counts = np.unique(np.asarray(times_us, np.int64), return_inverse=True, return_counts=True)
        totals = np.bincount(which, np.maximum(delays_us, 0))
        delays = np.rint(totals / counts).astype(np.int64)
        return cls(tuple((moments - moments[0]).tolist()), tuple(delays.tolist()))

    @property
    def span_us(self) -> int:
        """How long the recording is; 0 = it is a constant."""
        return self.times_us[-1] if len(self.times_us) > 1 else 0

    def shifted(self, phase_us: int) -> Leg:
        """Return the recording, begun elsewhere."""
        return Leg(self.times_us, self.delays_us, phase_us)

    def delay_us(self, at_us: int) -> int:
        """Return how long what is sent at a time is on its way (us)."""
        times_us, delays_us = self.times_us, self.delays_us
        if len(times_us) == 1:
            return delays_us[0]
        at_us = (at_us + self.phase_us) % times_us[-1]
        right = bisect_right(times_us, at_us)
        before_us, after_us = times_us[right - 1], times_us[right]
        below_us = delays_us[right - 1]
        return below_us + (delays_us[right] - below_us) * (at_us - before_us) // (after_us - before_us)

    def arrivals_us(self, sent_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when records sent at these times arrive (us)."""
        if not self.span_us:
            return sent_us + self.delays_us[0]
        delays = np.interp((sent_us + self.phase_us) % self.span_us, self.times_us, self.delays_us)
        return sent_us + delays.astype(np.int64)

    @property
    def mean_us(self) -> float:
        """The mean delay of its records."""
        return float(np.mean(self.delays_us))


AT_ONCE: Final = Leg.constant(0)


@dataclass(frozen=True, slots=True)
class Legs:
    """The four ways of a query, and what a worker's process adds to each batch.

    Attributes:
        ask: client to selection.
        dispatch: selection to worker.
        reply: worker to selection.
        answer: selection to client.
        call_us: that a batch takes longer than the model's service time; controllers see it.
        turnaround_us: from the end of a batch until the next can start; controllers do not see it.
        source: where the numbers come from, in words.
    """

    ask: Leg = AT_ONCE
    dispatch: Leg = AT_ONCE
    reply: Leg = AT_ONCE
    answer: Leg = AT_ONCE
    call_us: int = 0
    turnaround_us: int = 0
    source: str = "none"

    @property
    def span_us(self) -> int:
        """The longest recording; 0 = all are constants."""
        return max(leg.span_us for leg in (self.ask, self.dispatch, self.reply, self.answer))

    def shifted(self, phase_us: int) -> Legs:
        """Return the recordings, begun elsewhere, all at the same moment: what stalls one leg stalls the others."""
        return replace(
            self,
            ask=self.ask.shifted(phase_us),
            dispatch=self.dispatch.shifted(phase_us),
            reply=self.reply.shifted(phase_us),
            answer=self.answer.shifted(phase_us),
        )
