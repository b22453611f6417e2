"""What a loop in virtual time is to call: as little as can be, as a simulated hour has some hundred thousand."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

OWNER: contextvars.ContextVar[object] = contextvars.ContextVar("owner", default=None)


class VirtualCall(asyncio.TimerHandle):
    """One of them, at once or at a time. What asyncio's own handles have besides is not set: they are never debugged.

    Args:
        when_s: its time.
        what: is called.
        about: with these arguments.
        context: in which; None = as it is now.
        is_timer: whether its time was to come when it was made.
    """

    __slots__ = ("about", "is_over", "is_timer", "its", "what", "when_s")

    def __init__(
        self,
        when_s: float,
        what: Callable[..., object],
        about: tuple[Any, ...],
        context: contextvars.Context | None,
        *,
        is_timer: bool,
    ) -> None:
        self.when_s = when_s
        self.what = what
        self.about = about
        self.its = contextvars.copy_context() if context is None else context
        self.is_timer = is_timer
        self.is_over = False

    @property
    def owner(self) -> object:
        """Whose it is."""
        return self.its.get(OWNER)

    def cancel(self) -> None:
        """Let it not be called; nothing is kept for a time that may be far away."""
        self.is_over, self.what, self.about = True, bool, ()

    def cancelled(self) -> bool:
        """Whether it is not to be called."""
        return self.is_over

    def when(self) -> float:
        """Return its time (s)."""
        return self.when_s

    def go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call it; what it raises is told to the loop, and ends it if it is no error, such as a test's timeout."""
        try:
            self.its.run(self.what, *self.about)
        except (Exception, asyncio.CancelledError) as fault:  # noqa: BLE001 - as asyncio's own handles do
            loop.call_exception_handler({"message": f"{self.what!r} failed", "exception": fault})
