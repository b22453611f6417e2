"""How long to wait before a dead process is started again: arithmetic only, no clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits `first_s`, then twice as long each time up to `longest_s`; forgets deaths after `steady_s` alive."""

    first_s: float = 0.2
    longest_s: float = 10.0
    steady_s: float = 30.0

    def deaths(self, before: int, alive_s: float) -> int:
        """Count one more death in a row, or the first if the process had lived for `steady_s`."""
        return 1 if alive_s >= self.steady_s else before + 1

    def delay_s(self, deaths: int) -> float:
        """Return the wait after the `deaths`-th death in a row (1 is the first)."""
        # The exponent is bounded: 2**64 of anything is above any cap, and 2**10000 is no float.
        return min(self.longest_s, self.first_s * 2.0 ** min(deaths - 1, 64))
