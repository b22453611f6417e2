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


class _Nothing(selectors.DefaultSelector):
    """Waits for nothing: what is ready is told at once."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now."""
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps from one timer to the next; of equal times, as they were set.

    Its queue is a heap of tuples, and nothing outside of it is asked while anything can be done: an hour of a
    deployment is some hundred thousand turns.
    """

    _ready: deque[asyncio.Handle]  # of asyncio's base loop, as is what follows
    _process_events: Callable[[list[tuple[selectors.SelectorKey, int]]], None]

    def __init__(self) -> None:
        self._now_s = 0.0
        self._halted: dict[object, list[asyncio.Handle]] = {}
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._number = 0
        self._nothing = _Nothing()
        super().__init__(self._nothing)

    def time(self) -> float:
        """Return the virtual time (s)."""
        return self._now_s

    def call_soon(
        self, callback: Callable[[*_Arguments], object], *args: *_Arguments, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Call soon, or once the owner goes on."""
        handle = asyncio.Handle(callback, args, self, context)
        if self._halted:
            owner = context.get(_OWNER) if context is not None else _OWNER.get()
            self._halted.get(owner, self._ready).append(handle)
        else:
            self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call after a while."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, handle))
        return handle

    def _run_once(self) -> None:
        """Do what is ready; if nothing is, jump to the next timer."""
        ready = self._ready
        if not ready:
            self._process_events(self._nothing.select())
        if not ready:
            self._jump()
        for _ in range(len(ready)):
            if not ready:
                return  # a process was halted in this turn, and what it was to do is put away
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001 - of asyncio, as its own loops do

    def _jump(self) -> None:
        """Move the clock to the next timer, and have all of its time ready."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise RuntimeError("nothing will ever happen: every task waits for something that no timer brings")
        self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= self._now_s:
            ready.append(heapq.heappop(timers)[2])

    def halt(self, owner: object) -> None:
        """Let all that an owner does stand still."""
        timers = [handle for _, _, handle in sorted(self._timers)]
        mine = [handle for handle in (*self._ready, *timers) if _owner_of(handle) is owner]
        gone = set(map(id, mine))
        ready = [handle for handle in self._ready if id(handle) not in gone]
        self._ready.clear()
        self._ready.extend(ready)
        self._timers[:] = [timer for timer in self._timers if id(timer[2]) not in gone]
        heapq.heapify(self._timers)
        self._halted[owner] = mine

    def resume(self, owner: object) -> None:
        """Let an owner go on; timers whose time has passed fire now."""
        for handle in self._halted.pop(owner, ()):
            if handle.cancelled():
                continue
            if isinstance(handle, asyncio.TimerHandle):
                self._number += 1
                heapq.heappush(self._timers, (handle.when(), self._number, handle))
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
