"""Traces of what a driver has logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.replay.recording import MemoryTrace
from streams.topology import RECORDED

if TYPE_CHECKING:
    from streams.testing import Driver


def trace_of(driver: Driver) -> MemoryTrace:
    """Return what a driver has logged; the last calls are written a second later."""
    driver.run(seconds=2)
    return MemoryTrace((record for topic in RECORDED for record in driver.read(topic)), RECORDED)
