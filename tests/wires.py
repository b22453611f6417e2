"""What the harness's connection to Kafka is in tests: records that are due, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from load.harness.wire import Arrival


class VirtualWire:
    """Delivers what is due; time passes while it is polled."""

    def __init__(self) -> None:
        self.time_us = 0
        self._due: list[tuple[int, Arrival]] = []

    def now_us(self) -> int:
        """Return the virtual time."""
        return self.time_us

    def arrive(self, arrival: Arrival, after_us: int = 0) -> None:
        """Let a record of any topic arrive at the first poll from then on."""
        self._due.append((self.time_us + after_us, arrival))

    def poll(self, timeout_s: float) -> list[Arrival]:
        """Let time pass until something arrives, at most `timeout_s`."""
        end_us = self.time_us + round(timeout_s * 1e6)
        self.time_us = min([end_us, *(max(self.time_us, at_us) for at_us, _ in self._due)])
        arrived = [arrival for at_us, arrival in self._due if at_us <= self.time_us]
        self._due = [(at_us, arrival) for at_us, arrival in self._due if at_us > self.time_us]
        return arrived

    def values(self, timeout_s: float) -> list[bytes | None]:
        """Return the values of what arrives, as `poll`."""
        return [arrival.value for arrival in self.poll(timeout_s)]

    def stamped(self, timeout_s: float) -> list[tuple[int, bytes | None]]:
        """Return timestamps and values of what arrives, as `poll`."""
        return [(arrival.timestamp_us, arrival.value) for arrival in self.poll(timeout_s)]

    def flush(self, timeout_s: float = 30.0) -> int:
        """Everything is acknowledged."""
        return 0
