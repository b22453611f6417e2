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

from streams.testing.calls import OWNER, VirtualCall

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine

_T = TypeVar("_T")
_Arguments = TypeVarTuple("_Arguments")
START_US = 1_700_000_000_000_000

# Work at a broker or a store belongs to no process: it goes on while one stands still.
NOBODY = contextvars.Context()
# One in so many jumps looks for what comes from other threads and signals: nothing in virtual time waits for that.
_OUTSIDE = 32


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

    _ready: deque[Any]  # of asyncio's base loop, as is what follows: ours, and handles of what was selected
    _process_events: Callable[[list[tuple[selectors.SelectorKey, int]]], None]

    def __init__(self) -> None:
        self._now_s = 0.0
        self._halted: dict[object, list[VirtualCall]] = {}
        self._timers: list[tuple[float, int, VirtualCall]] = []
        self._number = 0
        self._jumps = 0
        self._nothing = _Nothing()
        super().__init__(self._nothing)

    def time(self) -> float:
        """Return the virtual time (s)."""
        return self._now_s

    def call_soon(
        self, callback: Callable[[*_Arguments], object], *args: *_Arguments, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Call soon, or once the owner goes on."""
        call = VirtualCall(self._now_s, callback, args, context, is_timer=False)
        if self._halted:
            self._halted.get(call.owner, self._ready).append(call)
        else:
            self._ready.append(call)
        return call

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call after a while."""
        return self._put(VirtualCall(self._now_s + delay, callback, args, context, is_timer=True))

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a time."""
        return self._put(VirtualCall(when, callback, args, context, is_timer=True))

    def _put(self, call: VirtualCall) -> VirtualCall:
        self._number += 1
        heapq.heappush(self._timers, (call.when_s, self._number, call))
        return call

    def _run_once(self) -> None:
        """Do what is ready; if nothing is, jump to the next timer."""
        ready = self._ready
        if not ready:
            self._look_outside()
        if not ready:
            self._jump()
        for _ in range(len(ready)):
            if not ready:
                return  # a process was halted in this turn, and what it was to do is put away
            call = ready.popleft()
            if type(call) is not VirtualCall:
                call._run()  # noqa: SLF001 - of asyncio, as its own loops do
            elif not call.is_over:
                call.go(self)

    def _look_outside(self) -> None:
        """Take what came from other threads and signals, now and then, and where there is nothing else."""
        self._jumps += 1
        if not self._timers or not self._jumps % _OUTSIDE:
            self._process_events(self._nothing.select())

    def _jump(self) -> None:
        """Move the clock to the next timer, and have all of its time ready."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2].is_over:
            heapq.heappop(timers)
        if not timers:
            raise RuntimeError("nothing will ever happen: every task waits for something that no timer brings")
        self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= self._now_s:
            ready.append(heapq.heappop(timers)[2])

    def halt(self, owner: object) -> None:
        """Let all that an owner does stand still."""
        timers = [call for _, _, call in sorted(self._timers)]
        mine = [call for call in (*self._ready, *timers) if isinstance(call, VirtualCall) and call.owner is owner]
        gone = set(map(id, mine))
        ready = [call for call in self._ready if id(call) not in gone]
        self._ready.clear()
        self._ready.extend(ready)
        self._timers[:] = [timer for timer in self._timers if id(timer[2]) not in gone]
        heapq.heapify(self._timers)
        self._halted[owner] = mine

    def resume(self, owner: object) -> None:
        """Let an owner go on; timers whose time has passed fire now."""
        for call in self._halted.pop(owner, ()):
            if call.is_over:
                continue
            if call.is_timer:
                self._put(call)
            else:
                self._ready.append(call)


class VirtualClock:
    """Tells the running loop's virtual time."""

    def now_us(self) -> int:
        """Return the time now (us)."""
        return START_US + round(asyncio.get_running_loop().time() * 1_000_000)


def owned(owner: object) -> contextvars.Context:
    """Return a context for an owner's first task; what that one starts belongs to the owner, too."""
    context = contextvars.copy_context()
    context.run(OWNER.set, owner)
    return context


def later(delay_s: float, happen: Callable[[], object]) -> asyncio.TimerHandle:
    """Let something happen outside of all processes, whatever becomes of who asked for it."""
    return asyncio.get_running_loop().call_later(delay_s, happen, context=NOBODY)


def run(scene: Coroutine[object, None, _T]) -> _T:
    """Run a scene to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scene)
