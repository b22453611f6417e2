"""The reports of a process about itself: one frozen report a second, for any reader.

A hook takes a `Report` and returns nothing: the reports topic, the Prometheus exporter and the tests are hooks.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import psutil

from schemas.records import LAST_EXIT, Report
from streams.operators.statistics import BUCKET, COUNT, SUM
from streams.runtime.clock import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

TOTAL = "_total"
# Variable by which a supervisor tells a process how the one before it ended: exit status, or minus the signal.
LAST_EXIT_VARIABLE: Final = "SKYSAIL_LAST_EXIT"
HISTOGRAM = (BUCKET, SUM, COUNT)  # how the figures of a histogram end


class MetricsHook(Protocol):
    """Takes one report; must neither block nor raise."""

    def __call__(self, report: Report) -> None:
        """Take a report."""
        ...


class Composer:
    """Makes a role's reports: what the kernel counts, what the runtime counts, what the process costs.

    Args:
        instance: unique in the deployment.
        role: that reports.
        tells_process: whether CPU and memory of the process are in it. Of roles that share one, only the first tells,
            so that the sum over all reports is what all processes cost.
    """

    def __init__(self, instance: str, role: str, *, tells_process: bool = True) -> None:
        self._instance = instance
        self._role = role
        self._tells_process = tells_process
        self._process = psutil.Process()
        self._since_us: int | None = None  # of the first report
        self._last_exit = last_exit()

    def compose(self, now_us: int, *parts: Mapping[str, float]) -> Report:
        """Return a report of all parts: names that end in `_total`, or as histograms do, are counters."""
        merged: Counter[str] = Counter()
        for part in parts:
            merged.update(part)
        if self._tells_process:
            merged["cpu_seconds_total"] = cpu_seconds()  # type: ignore[assignment]  # counters of seconds are fractions
            merged["resident_bytes"] = self._process.memory_info().rss
        self._since_us = self._since_us or now_us
        merged["uptime_s"] = (now_us - self._since_us) // 1_000_000
        if self._last_exit is not None:
            merged[LAST_EXIT] = self._last_exit  # type: ignore[assignment]  # a figure, as all are
        merged["pid"] = self._process.pid  # tells two processes of one name apart
        counters = {name: float(value) for name, value in merged.items() if is_counter(name)}
        gauges = {name: float(value) for name, value in merged.items() if not is_counter(name)}
        return Report(self._instance, self._role, now_us, counters, gauges)


def last_exit() -> float | None:
    """Return how the process of this name before this one ended; None if nobody has told."""
    with suppress(ValueError):
        return float(int(os.environ.get(LAST_EXIT_VARIABLE, "")))
    return None


def is_counter(name: str) -> bool:
    """Tell a counter (`answers_total{status=default}`) from a gauge."""
    return name.partition("{")[0].endswith((TOTAL, *HISTOGRAM))
