"""Tests of the watchdog."""

from __future__ import annotations

import pytest

from streams.runtime.errors import StuckError
from streams.runtime.ports import Vitals
from streams.runtime.role.watchdog import AHEAD_MS, SILENT_US, STALLED_US, Watchdog

NOW_US = 10**15


def vitals(*, silent_us: int = 0, stalled_us: int = 0, lag: int = 0) -> Vitals:
    """Return signs of life so long ago."""
    return Vitals(4, lag, NOW_US - silent_us, NOW_US - stalled_us, 0)


def test_a_consumer_without_lag_may_be_idle_for_ever() -> None:
    """No records, no progress, no fault."""
    Watchdog().check(vitals(stalled_us=10 * STALLED_US), NOW_US, throttled=False)


def test_lag_without_progress_is_fatal() -> None:
    """Records wait at the broker, polls return, nothing arrives."""
    with pytest.raises(StuckError, match="5 records wait"):
        Watchdog().check(vitals(stalled_us=STALLED_US + 1, lag=5), NOW_US, throttled=False)


def test_a_poll_that_does_not_return_is_fatal() -> None:
    """The member hangs in a rebalance for longer than two of them take."""
    with pytest.raises(StuckError, match="no poll has returned"):
        Watchdog().check(vitals(silent_us=SILENT_US + 1), NOW_US, throttled=False)


def test_backpressure_is_no_stall_and_gets_time_to_recover() -> None:
    """Who does not read on purpose is judged only a while after that."""
    watchdog = Watchdog()
    lagging = vitals(stalled_us=10 * STALLED_US, lag=5, silent_us=10 * SILENT_US)
    watchdog.check(lagging, NOW_US, throttled=True)
    for passed_us in range(0, STALLED_US + 1, 500_000):
        watchdog.check(lagging, NOW_US + passed_us, throttled=False)
    with pytest.raises(StuckError):
        watchdog.check(lagging, NOW_US + STALLED_US + 1, throttled=False)


def test_a_step_of_the_clock_is_no_silence() -> None:
    """After a suspended machine has been resumed the times before it say nothing."""
    watchdog = Watchdog()
    watchdog.check(vitals(), NOW_US, throttled=False)
    watchdog.check(vitals(silent_us=10 * SILENT_US, lag=5), NOW_US + 10 * SILENT_US, throttled=False)


def test_a_clock_that_was_set_far_back_ends_the_role() -> None:
    """A new process has the right time at once; this one would answer by default for twice as long as the step."""
    Watchdog().check(vitals(), NOW_US, throttled=False, ahead_ms=AHEAD_MS)
    Watchdog().check(vitals(), NOW_US, throttled=False, ahead_ms=-60_000.0)
    with pytest.raises(StuckError, match=r"clock was set back by 60 s; restart"):
        Watchdog().check(vitals(), NOW_US, throttled=True, ahead_ms=60_000.0)
