"""Virtual time for asyncio: when every task waits, the clock jumps to the next timer. No test of the runtime sleeps."""

from __future__ import annotations

import asyncio
import selectors
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_P = ParamSpec("_P")
_T = TypeVar("_T")
START_US = 1_700_000_000_000_000


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

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time (s)."""
        return self._jumping.now_s


class VirtualClock:
    """Tells the running loop's virtual time."""

    def now_us(self) -> int:
        """Return the time now (us)."""
        return START_US + round(asyncio.get_running_loop().time() * 1_000_000)


def run(scene: Coroutine[Any, Any, _T]) -> _T:
    """Run a scene to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scene)


def in_virtual_time(scene: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, _T]:
    """Run a coroutine function, as a test may be, to its end in virtual time."""

    @wraps(scene)
    def whole(*arguments: _P.args, **named: _P.kwargs) -> _T:
        return run(scene(*arguments, **named))

    return whole


async def elapse(seconds: float) -> None:
    """Let virtual time pass; refuses a loop on which that would be waiting."""
    assert isinstance(asyncio.get_running_loop(), VirtualLoop), "run the scene with tests.virtual.run"
    await asyncio.sleep(seconds)
