"""How long a broker gathers records for one fetch: the more come and the busier the event loop is, the longer.

    records a second   below 1,000   1,000   2,000   3,000 ...
    wait at most       none          1 ms    2 ms    3 ms ...
    the loop           idle   late by 0.5 ms, or at work for 30 %   late by 1 ms, or at work for 60 %
    wait at most       1 ms   3 ms                                  5 ms, and `merge_ms` in any case

Below 1,000 a record would wait for others that do not come. From there on a request costs more than what it carries:
some tenths of a millisecond of CPU, in role and broker each. A loop that is idle has that to spare, and answers sooner.
Measured with fixed waits of 0 and 3 ms, on two cores that broker and sender share, CPU of roles and broker a query, p50
and p99:

    one process, 3,000/s     302 → 229 us   3.4 → 4.1 ms    8.6 → 10 ms
    one process, 10,000/s    121 →  86 us   3.2 → 4.9 ms     27 → 21 ms
    five processes, 3,000/s  517 → 351 us   7.4 → 7.9 ms     33 → 15 ms
    five processes, 10,000/s 166 → 136 us    13 → 9.2 ms    105 → 35 ms
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_PER_S: Final = 1_000.0
# As many bytes are a full request: a broker that has them waits for no more.
FULL_BYTES: Final = 256 << 10
# The rate is that of so long, or longer: of some hundred requests at the least rate.
WINDOW_S: Final = 0.25
# A loop that is idle lets a broker gather for so long; one that is so late, or for so much of its time at work, for the
# longest time there is.
IDLE_MS: Final = 1
LONGEST_MS: Final = 5
LATE_S: Final = 0.001
BUSY: Final = 0.6
# Of how late the loop is, the part that the latest answer says; one stall says no more than this.
_SMOOTHING: Final = 1 / 32
_STALL_S: Final = 4 * LATE_S


class Merging(NamedTuple):
    """How a broker is to gather: for so long (ms), or until there are so many bytes."""

    wait_ms: int
    least_bytes: int


NONE: Final = Merging(0, 1)


class Strain(NamedTuple):
    """How hard pressed an event loop is.

    Attributes:
        late_s: how late it comes to what is there for it.
        busy: the share of its time for which its thread is at work.
    """

    late_s: float
    busy: float

    @property
    def need(self) -> float:
        """How much the loop needs fewer requests: 0 where it is idle, 1 where it is late or at work for long."""
        return min(1.0, max(self.late_s / LATE_S, self.busy / BUSY))


IDLE: Final = Strain(0.0, 0.0)


def merging(per_s: float, bytes_per_s: float, strain: Strain, most_ms: int) -> Merging:
    """Return how a broker is to gather records that come at this rate.

    Args:
        per_s: records.
        bytes_per_s: of them.
        strain: of the event loop that takes them.
        most_ms: the longest wait; 0 = none at any rate.
    """
    longest_ms = IDLE_MS + int((LONGEST_MS - IDLE_MS) * strain.need)
    wait_ms = min(int(per_s / LEAST_PER_S), longest_ms, most_ms)
    if wait_ms < 1:
        return NONE
    return Merging(wait_ms, max(1, min(int(bytes_per_s * wait_ms / 1e3), FULL_BYTES)))


class StrainGauge:
    """Measures how hard pressed the event loop is on whose thread it is asked.

    Args:
        now_s: a clock, finer than the event loop's own, which may stand still for a whole turn.
        worked_s: how long the thread has been at work.
    """

    __slots__ = ("_busy", "_came_s", "_late_s", "_now_s", "_since", "_worked_s")

    def __init__(
        self, now_s: Callable[[], float] = time.perf_counter, worked_s: Callable[[], float] = time.thread_time
    ) -> None:
        self._now_s = now_s
        self._worked_s = worked_s
        self._late_s = self._busy = 0.0
        self._came_s: float | None = None
        self._since = now_s(), worked_s()

    def came(self) -> None:
        """Note that something is there to be taken."""
        if self._came_s is None:
            self._came_s = self._now_s()

    def taken(self) -> None:
        """Note that it is taken."""
        if self._came_s is not None:
            late_s, self._came_s = self._now_s() - self._came_s, None
            self._late_s += (min(late_s, _STALL_S) - self._late_s) * _SMOOTHING

    def strain(self) -> Strain:
        """Return how late things have been taken lately, and how busy the latest window was."""
        (since_s, worked_s), now_s = self._since, self._now_s()
        if now_s - since_s >= WINDOW_S:
            self._since = now_s, self._worked_s()
            self._busy = (self._since[1] - worked_s) / (now_s - since_s)
        return Strain(self._late_s, self._busy)


class ArrivalRate:
    """Records and bytes a second, as they were taken.

    Attributes:
        per_s: records in the latest window; 0 before the first has ended.
        bytes_per_s: of them.
    """

    __slots__ = ("_bytes", "_count", "_since_s", "bytes_per_s", "per_s")

    def __init__(self) -> None:
        self.per_s = self.bytes_per_s = 0.0
        self._since_s: float | None = None
        self._count = self._bytes = 0

    def add(self, count: int, size: int, now_s: float) -> None:
        """Note records that have been taken, and their bytes; after a silence the rate is low at once."""
        if self._since_s is None:
            self._since_s = now_s  # what has come before the first window is not of it
            return
        self._count += count
        self._bytes += size
        took_s = now_s - self._since_s
        if took_s >= WINDOW_S:
            self.per_s, self.bytes_per_s = self._count / took_s, self._bytes / took_s
            self._since_s, self._count, self._bytes = now_s, 0, 0
