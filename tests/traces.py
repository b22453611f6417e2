"""Traces of what a driver has logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas import topics
from streams.replay.memory import MemoryTrace

if TYPE_CHECKING:
    from streams.testing import Driver

RECORDED = (
    topics.QUERIES,
    topics.FEEDBACK,
    topics.PREDICTIONS,
    topics.OBSERVATIONS,
    topics.SHADOWS,
    topics.MODEL_PREDICTIONS,
    topics.APPLICATIONS,
    topics.MODELS,
)


def trace_of(driver: Driver) -> MemoryTrace:
    """Return what a driver has logged."""
    return MemoryTrace(record for topic in RECORDED for record in driver.read(topic))
