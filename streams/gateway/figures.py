"""What a gateway has done, for its reports and for `/metrics`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from streams.operators.statistics import Durations

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.records import Report


class GatewayFigures:
    """Counts requests by door and status, and how long they took.

    Args:
        now_us: the clock.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._requests = Counter[tuple[str, int]]()
        self._rows = Counter[str]()
        self._asked = Counter[str]()  # requests with rows
        self._defaults = 0
        self._durations = Durations("gateway", "door")
        self.repeated = 0  # requests that got the reply of an earlier one
        self.report: Callable[[], Report] | None = None  # makes one; whoever reports says how

    def took(self, door: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[door, status] += 1
        self._durations.add(door, (int(seconds * 1e6),), self._now_us())

    def answered(self, application: str, rows: int, defaults: int) -> None:
        """Count the rows of a request."""
        self._rows[application] += rows
        self._asked[application] += 1
        self._defaults += defaults

    def of(self, application: str) -> tuple[int, int]:
        """Return rows and requests of an application."""
        return self._rows[application], self._asked[application]

    def rendered(self) -> dict[str, float]:
        """Return all as a report has it."""
        found = {
            f"gateway_requests_total{{door={door},status={status}}}": float(count)
            for (door, status), count in self._requests.items()
        }
        found["gateway_rows_total"] = float(self._rows.total())
        found["gateway_defaults_total"] = float(self._defaults)
        found["gateway_repeated_total"] = float(self.repeated)
        return found | self._durations.rendered()

    def exposition(self) -> bytes:
        """Return a report of now as Prometheus reads it."""
        from streams.runtime.process.prometheus import exposition  # 2 MB, which nobody needs who does not ask for it

        return b"" if self.report is None else exposition((self.report(),))
