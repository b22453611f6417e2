"""The time by which a stopping process has stopped: one deadline for everything that it waits for meanwhile.

    0 s ── drain, flush ──▶ 3 s ── commit ──▶ 4 s ── leave the group ──▶ 5 s ── disconnect ──▶ 6 s ── exit ──▶ 8 s
  SIGTERM                                                                                                    SIGKILL

A step that is done early leaves its time to those after it. A step that waits for a broker or a store that is away ends
at its own deadline, so that those after it have their turn. The supervisor waits longer than all of them together.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

# How long a process may take from SIGTERM on: enough for a busy broker, and a short wait for a restart.
STOP_S: Final = 6.0
# What each step leaves to those after it: it has ended so long before the end.
AFTER_WORK_S: Final = 3.0
AFTER_COMMIT_S: Final = 2.0
AFTER_LEAVING_S: Final = 1.0
AFTER_ROLES_S: Final = 0.5  # whatever still runs of a role is cancelled then, so that the producer can disconnect
# What a supervisor waits until SIGKILL: an event loop may notice the signal late, and Python takes a while to exit.
PATIENCE_S: Final = STOP_S + 2.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by which something has returned, whatever it waits for.

    Attributes:
        at_s: the moment, by the clock of the event loop (s).
    """

    at_s: float

    @classmethod
    def after(cls, seconds: float, now_s: float) -> Deadline:
        """Return the moment that is so many seconds from now."""
        return cls(now_s + seconds)

    def left_s(self, now_s: float) -> float:
        """Return the time that is left: never less than none."""
        return max(0.0, self.at_s - now_s)

    def before(self, seconds: float) -> Deadline:
        """Return an earlier moment, which leaves so many seconds to what comes after."""
        return Deadline(self.at_s - seconds)


class Stopping:
    """The deadline of one stop: until `stop` is set there is none, from that moment on there is one for all steps.

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
