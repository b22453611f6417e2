"""Names that are due at times: whoever sets one looks, when it comes up, whether it still holds."""

from __future__ import annotations

from heapq import heappop, heappush


class Alarms:
    """A heap of times (us) with names."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []

    @property
    def due_us(self) -> int | None:
        """When the first one is due; None = there is none."""
        return self._heap[0][0] if self._heap else None

    def set(self, due_us: int, name: str) -> None:
        """Add one."""
        heappush(self._heap, (due_us, name))

    def take(self, now_us: int) -> list[str]:
        """Take out what is due."""
        found = []
        while self._heap and self._heap[0][0] <= now_us:
            found.append(heappop(self._heap)[1])
        return found
