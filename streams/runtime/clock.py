"""The one place that reads a clock: everything else gets `now_us` as an argument, or a `Clock`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# How often the two clocks are compared, and how far apart they may be: a tenth of a second is what NTP slews away.
COMPARE_NS = 1_000_000_000
TOLERATED_NS = 250_000_000
# While it is ahead the clock runs at this rate: nothing goes backwards, and timers are late at most by as much again.
SLOWED = 0.5


class Clock(Protocol):
    """Tells the time in microseconds since the epoch; it never goes backwards."""

    def now_us(self) -> int:
        """Return the time now (us since the epoch)."""
        ...


class SystemClock:
    """The monotonic clock, added to what the wall clock said when they were compared; once a second they are.

    A step of the wall clock (NTP, a suspended machine) is followed: forwards at once, as deadlines have really passed;
    backwards by running at half speed for twice as long, since times that were given out cannot be taken back. Where
    that would take long, the watchdog ends the process.
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Begin with the time of the wall clock.

        Args:
            wall_ns: the wall clock.
            monotonic_ns: the monotonic clock.
        """
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        now_ns = monotonic_ns()
        self._anchor_ns = wall_ns() - now_ns
        self._compare_ns = now_ns + COMPARE_NS
        self._slowed_ns: int | None = None  # since when it has run slowly
        self.off_ms = 0.0

    def now_us(self) -> int:
        """Return the time now (us since the epoch)."""
        now_ns = self._monotonic_ns()
        if now_ns >= self._compare_ns or self._slowed_ns is not None:
            self._compare(now_ns)
        return (self._anchor_ns + now_ns) // 1000

    def _compare(self, now_ns: int) -> None:
        """Follow the wall clock if it is too far away."""
        self._compare_ns = now_ns + COMPARE_NS
        if self._slowed_ns is not None:
            self._anchor_ns -= int((1 - SLOWED) * (now_ns - self._slowed_ns))
        ahead_ns = self._anchor_ns + now_ns - self._wall_ns()
        if ahead_ns < -TOLERATED_NS:
            self._anchor_ns -= ahead_ns
            ahead_ns = 0
        is_slowed = ahead_ns > (TOLERATED_NS if self._slowed_ns is None else 0)
        self._slowed_ns = now_ns if is_slowed else None
        self.off_ms = ahead_ns / 1e6


def off_ms(clock: Clock) -> float:
    """Return by how much a clock is ahead of the system's (ms), as they were compared last; only that one has one."""
    return clock.off_ms if isinstance(clock, SystemClock) else 0.0


def cpu_seconds() -> float:
    """Return the processor time this process has used, all threads, user and system (s)."""
    return time.process_time()
