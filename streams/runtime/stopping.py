"""Gives a stop its deadline: until `stop` is set there is none, from that moment on there is one for all."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from streams.runtime.deadline import STOP_S, Deadline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


class Stopping:
    """The deadline of one stop.

    Args:
        stop: set when everything is to end.
    """

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._deadline: Deadline | None = None

    def deadline(self) -> Deadline:
        """Return the deadline; it begins when `stop` is set, or with the first who asks because something failed."""
        if self._deadline is None:
            self._deadline = Deadline.after(STOP_S, _now_s())
        return self._deadline

    def left_s(self, spare_s: float = 0.0) -> float:
        """Return the time that is left for a step which leaves `spare_s` to those after it."""
        return self.deadline().before(spare_s).left_s(_now_s())

    @asynccontextmanager
    async def limit(self, spare_s: float) -> AsyncIterator[None]:
        """Let a block run until it is stopped and `spare_s` before the deadline has come, where it is cut off."""
        limit = asyncio.timeout(None)
        watching = asyncio.create_task(self._watch(limit, spare_s), name="watching for a stop")
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            watching.cancel()

    async def within(self, step: Coroutine[object, object, object], spare_s: float = 0.0) -> bool:
        """Run one step of the stop; return False if it was cut off `spare_s` before the deadline."""
        try:
            async with asyncio.timeout_at(self.deadline().before(spare_s).at_s) as limit:
                await step
        except TimeoutError:
            if not limit.expired():
                raise
            return False
        return True

    async def _watch(self, limit: asyncio.Timeout, spare_s: float) -> None:
        await self._stop.wait()
        limit.reschedule(self.deadline().before(spare_s).at_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
