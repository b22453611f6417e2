"""Measures how long an event loop is ready to run and does not, while something else runs beside it in a thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

_TICK_S = 0.001
# Loops count in whole milliseconds, and a thread that wakes up takes 50 to 100 us to run.
_TOLERANCE_US = 1_000


class Ticking:
    """A timer that goes off every millisecond, and how late it does.

    What the loop's own thread was at work meanwhile is not waiting: then it was late because it had much to do.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start."""
        self._loop = loop
        self._waited_us = 0
        self._set()

    def stop(self) -> int:
        """End it; return how long the loop has waited (us)."""
        self._timer.cancel()
        self._look()
        return self._waited_us

    def _set(self) -> None:
        self._set_us, self._worked_us = time.perf_counter_ns() // 1000, time.thread_time_ns() // 1000
        self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._look()
        self._set()

    def _look(self) -> None:
        passed_us = time.perf_counter_ns() // 1000 - self._set_us
        worked_us = time.thread_time_ns() // 1000 - self._worked_us
        self._waited_us += max(0, passed_us - worked_us - int(_TICK_S * 1e6) - _TOLERANCE_US)
