"""A bounded queue before whoever takes legs: what does not fit, or is not taken, is dropped and counted."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streams.telemetry.values import TimedLeg

WAITING: Final = 8_192
AT_ONCE: Final = 512


class LegQueue:
    """Hands legs on, some at a time, in a thread: nothing waits for a collector.

    Args:
        give: hands legs on and returns whether they were taken; it may take seconds.
        waiting: legs that may wait.
    """

    def __init__(self, give: Callable[[Sequence[TimedLeg]], bool], waiting: int = WAITING) -> None:
        self._give = give
        self._waiting: deque[TimedLeg] = deque()
        self._most = waiting
        self._counts = Counter[str]()
        self._has_some = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def put(self, legs: Iterable[TimedLeg]) -> None:
        """Queue legs; those without room are dropped."""
        for leg in legs:
            if len(self._waiting) >= self._most:
                self._counts["full"] += 1
                continue
            self._waiting.append(leg)
        if self._waiting:
            self._has_some.set()
            self._is_idle.clear()

    async def run(self) -> None:
        """Hand on what waits until cancelled."""
        while True:
            await self._has_some.wait()
            legs = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            is_taken = await asyncio.to_thread(self._give, legs)
            self._counts["given" if is_taken else "refused"] += len(legs)
            if not self._waiting:
                self._has_some.clear()
                self._is_idle.set()

    async def flush(self, timeout_s: float) -> None:
        """Wait until all has been handed on, but no longer than this; the rest is dropped."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_idle.wait()
        except TimeoutError:
            self._counts["full"] += len(self._waiting)
            self._waiting.clear()

    def statistics(self) -> Mapping[str, float]:
        """Return what was handed on, and what was dropped because there was no room, or nobody took it."""
        given, full, refused = (float(self._counts[what]) for what in ("given", "full", "refused"))
        return {
            "telemetry_legs_total": given,
            "telemetry_dropped_total{why=full}": full,
            "telemetry_dropped_total{why=refused}": refused,
            "telemetry_waiting": float(len(self._waiting)),
        }
