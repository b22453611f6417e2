"""Adds up what processes report about themselves: counters survive restarts, gauges are the latest word."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from streams.control.figures import parse

if TYPE_CHECKING:
    from schemas.records import Report

# A metric's name and the model or application it speaks of ("" = neither).
Subject: TypeAlias = tuple[str, str]


class Meters:
    """Sums by metric and subject, over all processes and their restarts."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], float] = {}
        self._gauges: defaultdict[Subject, dict[str, float]] = defaultdict(dict)
        self._counts: dict[Subject, float] = {}

    def begin(self, report: Report) -> None:
        """Take a report from before the load: what was counted until then does not count."""
        self._last.update({(report.instance, metric): value for metric, value in report.counters.items()})

    def take(self, report: Report) -> dict[Subject, float]:
        """Add one report; returns by how much each counter grew."""
        grown: dict[Subject, float] = {}
        for metric, value in report.counters.items():
            last = self._last.get((report.instance, metric), 0.0)
            self._last[report.instance, metric] = value
            # A counter that fell belongs to a new process under an old name: all of it is new.
            grown[_subject(metric)] = grown.get(_subject(metric), 0.0) + (value - last if value >= last else value)
        for metric, value in report.gauges.items():
            self._gauges[_subject(metric)][report.instance] = value
        for subject, growth in grown.items():
            self._counts[subject] = self._counts.get(subject, 0.0) + growth
        return grown

    def count(self, metric: str, subject: str = "") -> int:
        """Return a counter's sum."""
        return int(self._counts.get((metric, subject), 0.0))

    def gauge(self, metric: str, subject: str = "") -> float:
        """Return a gauge's sum over the processes that report it, 0 if none does."""
        return sum(self._gauges[metric, subject].values())


def _subject(metric: str) -> Subject:
    name, labels = parse(metric)
    return name, labels.get("model") or labels.get("application") or ""
