"""The garbage collector by the clock, in virtual time."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, cast

import pytest

from streams.runtime.process.gc_schedule import FREEZE_S, SWEEP_S, THRESHOLDS, swept

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator


class Timers:
    """Calls back when time has passed; nothing else runs."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waiting: dict[Timers, tuple[float, Callable[[], None]]] = {}

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timers:
        """Note it."""
        timer = Timers()
        timer.waiting = self.waiting
        self.waiting[timer] = (self.now_s + delay_s, callback)
        return timer

    def cancel(self) -> None:
        """Forget it."""
        self.waiting.pop(self, None)

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        while due := [timer for timer, (at_s, _) in self.waiting.items() if at_s <= end_s]:
            self.now_s, callback = self.waiting.pop(due[0])
            callback()
        self.now_s = end_s


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """What a test freezes is thawed."""
    yield
    gc.unfreeze()


def test_what_refers_to_itself_is_gone_after_a_sweep_and_after_the_next() -> None:
    """Reference counts do not free it."""
    timers = Timers()
    with swept(cast("asyncio.AbstractEventLoop", timers)):
        timers.pass_by(FREEZE_S)
        for _ in range(2):
            gone = weakref.ref(Knot())
            timers.pass_by(SWEEP_S / 2)
            assert gone() is not None
            timers.pass_by(SWEEP_S / 2)
            assert gone() is None


def test_the_collector_is_left_as_it_was_found() -> None:
    """A program that runs roles of its own has its own mind about it."""
    before, timers = gc.get_threshold(), Timers()
    with swept(cast("asyncio.AbstractEventLoop", timers)):
        assert gc.get_threshold() == THRESHOLDS
    assert (gc.get_threshold(), timers.waiting) == (before, {})
