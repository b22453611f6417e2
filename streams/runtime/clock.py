"""The one place that reads a clock: everything else gets `now_us` as an argument, or a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time in microseconds since the epoch; it never goes backwards."""

    def now_us(self) -> int:
        """Return the time now (us since the epoch)."""
        ...


class SystemClock:
    """The wall clock, read once; after that the monotonic clock is added to it.

    A step of the system's clock (NTP, a suspended machine) can therefore neither fire every deadline at once nor delay
    them all. The price is drift against the wall, some tens of milliseconds a day.
    """

    def __init__(self) -> None:
        self._anchor_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        """Return the time now (us since the epoch)."""
        return (self._anchor_ns + time.monotonic_ns()) // 1000


def cpu_seconds() -> float:
    """Return the processor time this process has used, all threads, user and system (s)."""
    return time.process_time()
