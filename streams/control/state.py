"""What the control role has read and what it shows of that: figures of processes, rows, alerts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streams.control.figures import Figures, fold, heard_lately, is_silent, status
from streams.control.history import STEP_US, STEPS, History
from streams.control.losses import LossWatch
from streams.control.minutes import MINUTE_US, figures_of, marks_of
from streams.control.page import rivals
from streams.control.page.drifting import drifting, left_out
from streams.control.page.hosts import heard, host_rows
from streams.control.page.overview import overview
from streams.control.page.promotion_rows import promotion_rows
from streams.control.page.report_filter import make_room, sound

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, MutableMapping

    from schemas.records import Report
    from streams.control.carry.planning import Planning, PlanRow
    from streams.control.carry.promoting import Promoting
    from streams.control.carry.sensing import Sensing
    from streams.control.minutes import ChartColumns, Minutes
    from streams.control.page.page_types import Alert, Overview
    from streams.control.page.visibility import Visibility

# Pages that ask at once get the same answer.
SAME_US = 500_000


@dataclass(slots=True)
class ControlState:
    """What has been read."""

    live: MutableMapping[str, Figures]  # by instance: a table of Faust's
    sight: Visibility
    promoting: Promoting | None
    planning: Planning | None
    minutes: Minutes
    history: History = field(default_factory=History)
    losses: LossWatch = field(default_factory=LossWatch)
    sensing: Sensing | None = None
    _answer: tuple[int, dict[str, object]] | None = None  # the last, and when it was made

    def take(self, found: Report, now_us: int) -> None:
        """Fold a report into the figures of its process, unless it makes no sense."""
        self.sight.read()
        report = sound(found)
        if report is None or not make_room(self.live, report, now_us):
            return
        before = self.live.get(report.instance)
        self.live[report.instance] = after = fold(before, report)
        self.history.add(before, after, now_us)
        self.losses.add(before, after, now_us)
        self.sight.heard(report, now_us)
        for mark in marks_of(before, after, now_us):
            self.minutes.mark(mark)
        self._keep(now_us)

    def shown(self, now_us: int) -> dict[str, object]:
        """Return all that the page shows."""
        if self._answer is None or now_us - self._answer[0] > SAME_US:
            self._answer = now_us, self._status(now_us)
        return self._answer[1]

    def charts(self, minutes: int, application: str | None, now_us: int) -> ChartColumns:
        """Return figures of the last minutes: of an application, or (None) of the processes."""
        return self.minutes.between(now_us - minutes * MINUTE_US, now_us, application)

    def is_blind(self, now_us: int) -> bool:
        """Tell whether nothing comes back from Kafka."""
        return self.sight.view(now_us).as_of_us is not None

    def is_settled(self, now_us: int) -> bool:
        """Tell whether it has seen the present for long enough to judge by it; long work waits until then."""
        return self.sight.has_heard and self.sight.view(now_us).is_settled

    def _keep(self, now_us: int) -> None:
        """Keep the minute that has just ended, for charts."""
        self.minutes.load()
        if self.minutes.is_due(now_us):
            self.minutes.put(now_us, figures_of(self._overview(now_us, ())))

    def _overview(self, now_us: int, plans: Collection[PlanRow]) -> Overview:
        hosted = {place["model"] for plan in plans for place in plan["places"]}
        told = [*rivals.alerts(self.promoting, self.history, now_us), *self._drifting()]
        known = heard_lately(self.live.values(), now_us)
        self.losses.judge(now_us)
        return overview(known, self.history, now_us, self.sight.view(now_us), hosted, told, self.losses.worse())

    def _drifting(self) -> Iterator[Alert]:
        return drifting(self.sensing.watch.drifted() if self.sensing is not None else ())

    def _status(self, now_us: int) -> dict[str, object]:
        entries: list[Figures] = list(self.live.values())
        plans = self.planning.rows() if self.planning is not None else []
        found = self._overview(now_us, plans)
        more = {
            **promotion_rows(self.promoting),
            "plans": plans,
            "left_out": left_out(self.sensing.watch.left_out() if self.sensing is not None else None),
            "marks": self.minutes.marks(now_us - STEPS * STEP_US, now_us),
            "hosts": host_rows(heard(entry) for entry in entries if not is_silent(entry, now_us)),
        }
        return {**status(entries, now_us), "overview": {**found, **more}}
