"""Notices a Kafka client that lives but does nothing: only a new process helps then (aiokafka #625, #703, #1037)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streams.runtime.errors import Stuck

if TYPE_CHECKING:
    from streams.runtime.ports import Vitals


@dataclass(frozen=True, slots=True)
class Watchdog:
    """Judges signs of life.

    Attributes:
        silent_us: a poll that has not returned for so long is stuck; a rebalance may rightly take its timeout (30 s)
            twice, when a member dies in the middle of it.
        stalled_us: records are waiting at the broker, polls return, and nothing arrives.
    """

    silent_us: int = 120_000_000
    stalled_us: int = 60_000_000

    def check(self, vitals: Vitals, now_us: int, *, throttled: bool) -> None:
        """Raise if the consumer is stuck.

        Args:
            vitals: as the consumer gives them.
            now_us: same clock as the vitals.
            throttled: we take in less on purpose, so a lag means nothing.

        Raises:
            Stuck: the process should end.
        """
        if throttled:
            return
        silent_us = now_us - vitals.polled_us
        if silent_us > self.silent_us:
            raise Stuck(f"no poll has returned for {silent_us // 1_000_000} s; restart this process")
        stalled_us = now_us - vitals.progressed_us
        if vitals.lag > 0 and stalled_us > self.stalled_us:
            seconds = stalled_us // 1_000_000
            raise Stuck(f"{vitals.lag} records wait, none has arrived for {seconds} s; restart this process")
