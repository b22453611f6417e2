"""Traces of what a driver has logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.replay.memory import MemoryTrace
from streams.topology import RECORDED

if TYPE_CHECKING:
    from streams.testing import Driver


def trace_of(driver: Driver) -> MemoryTrace:
    """Return what a driver has logged."""
    return MemoryTrace((record for topic in RECORDED for record in driver.read(topic)), RECORDED)
