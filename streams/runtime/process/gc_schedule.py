"""When Python's garbage collector looks around in a role's process: by the clock, no longer by what was made.

Reference counts free what a query leaves behind; the collector is for what refers to itself, such as an error and its
traceback, of which there is little. Left to itself it looks at everything that a poll has made, over and over, while
nearly all of it is alive: with 50,000 queries in hand that took a sixth of selection's time (115,000 queries a second
with a look every 20,000 objects, 129,000 with one every 200,000, 140,000 with one every 2,000,000).
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streams.runtime.process.freed_memory import FreedMemory

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

# By then modules, models and caches are loaded; what is frozen is not looked at again.
FREEZE_S: Final = 10.0
# Garbage waits so long at most. A look takes 50 ns for each object made since the one before and still alive.
SWEEP_S: Final = 30.0
# Net allocations before it looks by itself: more than ever live between two sweeps, so memory is bounded all the same.
THRESHOLDS: Final = (2_000_000, 20, 100)
_YOUNG: Final = 1  # the generations up to this one; what survives a sweep is old


@contextmanager
def swept(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have it look twice a minute for the time of a block; then what was freed goes back to the system.

    Args:
        loop: whose timers it uses; a sweep comes between two of its callbacks.
    """
    timer: asyncio.TimerHandle
    freed = FreedMemory()
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()  # modules stay: to look through them once more, later, would take 45 ms out of the first queries' time

    def freeze() -> None:
        """Full collections cost 30 ms and more: what lives now is out of sight from here on."""
        gc.collect()
        gc.freeze()
        sweep_later()

    def sweep() -> None:
        gc.collect(_YOUNG)
        freed.give_back()
        sweep_later()

    def sweep_later() -> None:
        nonlocal timer
        timer = loop.call_later(SWEEP_S, sweep)

    timer = loop.call_later(FREEZE_S, freeze)
    try:
        yield
    finally:
        timer.cancel()
        gc.set_threshold(*before)


@contextmanager
def gc_less_often() -> Iterator[None]:
    """Have it look seldom for the time of a block that makes much and leaves no cycles, such as a replay."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
