"""Calls a kernel when it is due, however long a poll hangs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.operators.contract import Operator
    from streams.runtime.clock import Clock
    from streams.runtime.role.guard import Guard

# asyncio and uvloop round timers to a millisecond and may fire early; waiting at least half of one avoids spinning.
MIN_S = 0.0005
# Event loops refuse timers of years; whoever is called too early says again when it is due.
MAX_S = 3600.0


class Alarm:
    """One timer, set to the kernel's next deadline after everything that may have changed it.

    Args:
        kernel: whose `on_timer` is called.
        clock: says when.
        guard: calls it; what performs its effects calls `set` again.
        unread: returns what is still to be read: a kernel may wait for it before it ends what that belongs to.
    """

    def __init__(
        self, kernel: Operator, clock: Clock, guard: Guard, unread: Callable[[], frozenset[tuple[str, int]]]
    ) -> None:
        self._kernel = kernel
        self._clock = clock
        self._guard = guard
        self._unread = unread
        self._due = asyncio.Event()
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_us: int | None = None

    async def run(self) -> None:
        """Call the kernel whenever it is due, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            self._deadline_us = None
            self.fire()

    def fire(self) -> None:
        """Call the kernel now."""
        self._guard.call("its timer", lambda: self._kernel.on_timer(self._clock.now_us(), self._unread()))

    def set(self, deadline_us: int | None) -> None:
        """Be due at the kernel's next deadline."""
        if deadline_us == self._deadline_us:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._deadline_us = deadline_us
        if deadline_us is None:
            return
        now_us = self._clock.now_us()
        if deadline_us <= now_us:
            self._due.set()
        else:
            delay_s = min(max((deadline_us - now_us) / 1_000_000, MIN_S), MAX_S)
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._due.set)
