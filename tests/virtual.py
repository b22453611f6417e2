"""Virtual time for asyncio: no test of the runtime sleeps."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from streams.testing.virtual import START_US, VirtualClock, VirtualLoop, run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

_P = ParamSpec("_P")
_T = TypeVar("_T")


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


__all__ = ["START_US", "VirtualClock", "VirtualLoop", "elapse", "in_virtual_time", "run"]
