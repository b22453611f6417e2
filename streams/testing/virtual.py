"""Virtual time for asyncio: when every task waits, the clock jumps to the next timer.

Tasks that share an owner (`owned`) play a process. It stands still between `halt` and `resume`, as with SIGSTOP. Events
go on meanwhile; the process sees them, and its timers fire, after `resume`.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import selectors
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine

_T = TypeVar("_T")
_Arguments = TypeVarTuple("_Arguments")
START_US = 1_700_000_000_000_000

_OWNER: contextvars.ContextVar[object] = contextvars.ContextVar("owner", default=None)
# Work at a broker or a store belongs to no process: it goes on while one stands still.
NOBODY = contextvars.Context()


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing: instead of time passing, the loop's clock is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; jump if nothing is."""
        if timeout is None:
            raise RuntimeError("nothing will ever happen: every task waits for something that no timer brings")
        events = super().select(0)
        if not events:
            self.now_s += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the sum of all waiting."""

    _ready: deque[asyncio.Handle]  # of asyncio's base loop, as is what follows
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        self._jumping = _Jumping()
        self._halted: dict[object, list[asyncio.Handle]] = {}
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time (s)."""
        return self._jumping.now_s

    def call_soon(
        self, callback: Callable[[*_Arguments], object], *args: *_Arguments, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Call soon, or once the owner goes on."""
        if self._halted:
            owner = context.get(_OWNER) if context is not None else _OWNER.get()
            parked = self._halted.get(owner)
            if parked is not None:
                handle = asyncio.Handle(callback, args, self, context)
                parked.append(handle)
                return handle
        return super().call_soon(callback, *args, context=context)

    def halt(self, owner: object) -> None:
        """Let all that an owner does stand still."""
        mine = [handle for handle in (*self._ready, *self._scheduled) if _owner_of(handle) is owner]
        gone = set(map(id, mine))
        ready = [handle for handle in self._ready if id(handle) not in gone]
        self._ready.clear()
        self._ready.extend(ready)
        self._scheduled[:] = [handle for handle in self._scheduled if id(handle) not in gone]
        heapq.heapify(self._scheduled)
        self._halted[owner] = mine

    def resume(self, owner: object) -> None:
        """Let an owner go on; timers whose time has passed fire now."""
        for handle in self._halted.pop(owner, ()):
            if handle.cancelled():
                continue
            if isinstance(handle, asyncio.TimerHandle):
                heapq.heappush(self._scheduled, handle)
            else:
                self._ready.append(handle)


class VirtualClock:
    """Tells the running loop's virtual time."""

    def now_us(self) -> int:
        """Return the time now (us)."""
        return START_US + round(asyncio.get_running_loop().time() * 1_000_000)


def owned(owner: object) -> contextvars.Context:
    """Return a context for an owner's first task; what that one starts belongs to the owner, too."""
    context = contextvars.copy_context()
    context.run(_OWNER.set, owner)
    return context


def later(delay_s: float, happen: Callable[[], object]) -> asyncio.TimerHandle:
    """Let something happen outside of all processes, whatever becomes of who asked for it."""
    return asyncio.get_running_loop().call_later(delay_s, happen, context=NOBODY)


def run(scene: Coroutine[object, None, _T]) -> _T:
    """Run a scene to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scene)


def _owner_of(handle: Any) -> object:
    return handle._context.get(_OWNER)  # noqa: SLF001 - of asyncio; there is no public way to tell whose a timer is
