"""The live page without Kafka and a browser: reports in, the overview out, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.records import Report
from streams.control.figures import Figures, fold, heard_lately
from streams.control.history import History
from streams.control.page.overview import overview
from streams.control.page.visibility import DeploymentSettings, Visibility

if TYPE_CHECKING:
    from streams.control.losses import WorseLoss
    from streams.control.page.page_types import Overview

SECOND = 1_000_000
START = 1_000 * SECOND
DEFAULTS = "answers_total{application=digits,status=default,reason=deadline}"
COMPLETE = "answers_total{application=digits,status=complete,reason=}"


class Page:
    """A control process without Kafka: reports in, the overview out."""

    def __init__(self) -> None:
        self.live: dict[str, Figures] = {}
        self.history = History()
        self.now_us = START
        self.hosted: set[str] = set()
        self.risen_losses: list[WorseLoss] = []
        self.sight = Visibility(
            DeploymentSettings("skysail", "control@1", "127.0.0.1:9092", "127.0.0.1:6379"), START - 60 * SECOND
        )

    def report(self, instance: str, counters: dict[str, float] | None = None, **gauges: float) -> None:
        """Take a report of now; labelled gauges are given as counters are, by full name."""
        names = counters or {}
        labelled = {name: value for name, value in names.items() if "_total" not in name}
        counted = {name: value for name, value in names.items() if "_total" in name}
        report = Report(instance, instance.partition("@")[0], self.now_us, counted, gauges | labelled)
        before = self.live.get(instance)
        self.live[instance] = after = fold(before, report)
        self.history.add(before, after, self.now_us)
        if instance == "control@1":
            self.sight.sent(self.now_us)
        self.sight.heard(report, self.now_us)

    def later(self, seconds: float) -> None:
        """Move on."""
        self.now_us += int(seconds * SECOND)

    def everybody(self) -> None:
        """Let the roles that must be there report."""
        for role in ("selection", "joiner", "learner"):
            self.report(f"{role}@1")

    def shown(self) -> Overview:
        """Return what the page shows."""
        known, view = heard_lately(self.live.values(), self.now_us), self.sight.view(self.now_us)
        return overview(known, self.history, self.now_us, view, self.hosted, (), self.risen_losses)

    def texts(self) -> list[str]:
        """Return what is wrong, with what to type."""
        return [f"{alert['level']}: {alert['text']} $ {alert['command']}" for alert in self.shown()["alerts"]]
