"""Notices what only a new process can mend: a Kafka client that does nothing, a clock that was set far back.

For the client see aiokafka #625, #703 and #1037. A clock that runs ahead passes every deadline too early, so all
answers would be defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.runtime.errors import StuckError

if TYPE_CHECKING:
    from streams.runtime.ports import Vitals

# A rebalance may rightly take its timeout (30 s) twice, when a member dies in the middle of it.
SILENT_US = 120_000_000
STALLED_US = 60_000_000
# It looks twice a second; after more the process stood still, or the clock has made a step: times before say nothing.
PAUSED_US = 5_000_000
# A clock takes twice as long to be right as it is ahead. Beyond this a new process, with the right time, is sooner.
AHEAD_MS = 10_000.0


class Watchdog:
    """Judges signs of life.

    Args:
        silent_us: a poll that has not returned for so long is stuck.
        stalled_us: records are waiting at the broker, polls return, and nothing has arrived for so long.
    """

    def __init__(self, silent_us: int = SILENT_US, stalled_us: int = STALLED_US) -> None:
        self._silent_us = silent_us
        self._stalled_us = stalled_us
        self._throttled_us = 0
        self._checked_us: int | None = None

    def check(self, vitals: Vitals, now_us: int, *, throttled: bool, ahead_ms: float = 0.0) -> None:
        """Raise if the consumer is stuck, or the clock.

        Args:
            vitals: as the consumer gives them.
            now_us: same clock as the vitals.
            throttled: we take in less on purpose, so a lag means nothing until a while after that.
            ahead_ms: by how much the clock is ahead of the machine's.

        Raises:
            StuckError: the process should end.
        """
        if ahead_ms > AHEAD_MS:
            raise StuckError(f"the machine's clock was set back by {ahead_ms / 1000:.0f} s; restart this process")
        if throttled or now_us - (self._checked_us or now_us) > PAUSED_US:
            self._throttled_us = now_us
        self._checked_us = now_us
        silent_us = now_us - max(vitals.polled_us, self._throttled_us)
        if silent_us > self._silent_us:
            raise StuckError(f"no poll has returned for {silent_us // 1_000_000} s; restart this process")
        stalled_us = now_us - max(vitals.progressed_us, self._throttled_us)
        if vitals.lag > 0 and stalled_us > self._stalled_us:
            seconds = stalled_us // 1_000_000
            raise StuckError(f"{vitals.lag} records wait, none has arrived for {seconds} s; restart this process")
