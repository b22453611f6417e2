"""What is written of processes' figures, and what a page that starts knows of them."""

from __future__ import annotations

from collections import UserDict
from typing import TYPE_CHECKING

from schemas.records import STOPPED, Report
from streams.control.figures import fold
from streams.control.live import EVERY_US, LiveFigures

if TYPE_CHECKING:
    from streams.control.figures import Figures

SECOND = 1_000_000


class Table(UserDict[str, "Figures"]):
    """Stands for Faust's; counts what is written."""

    writes = 0

    def __setitem__(self, key: str, item: Figures) -> None:
        """Write."""
        self.writes += 1
        super().__setitem__(key, item)


def told(live: LiveFigures, second: int, cpu_s: float, **gauges: float) -> None:
    """Report, as the control role takes it."""
    report = Report("joiner@1", "joiner", second * SECOND, {"cpu_seconds_total": cpu_s}, gauges)
    live[report.instance] = fold(live.get(report.instance), report)


def test_an_hour_of_reports_is_written_every_ten_seconds_and_known_to_the_second() -> None:
    """Who starts later reads all that was written."""
    live = LiveFigures(table := Table())
    for second in range(3_600):
        told(live, second, second / 10)
    assert live["joiner@1"]["time_us"] == 3_599 * SECOND
    assert table.writes == 3_600 * SECOND // EVERY_US


def test_a_page_that_starts_knows_who_was_there_and_calls_nobody_back() -> None:
    """A process that has reported all the time has not been away; one that has died meanwhile is shown as silent."""
    live = LiveFigures(table := Table())
    for second in range(16):
        told(live, second, 1.0)
    again = LiveFigures(table)
    assert not again
    again.load()
    assert [*again] == ["joiner@1"]
    told(again, 17, 1.0)
    assert again["joiner@1"]["back_us"] == 0


def test_an_end_and_a_restart_are_written_at_once() -> None:
    """They are what a page must not forget."""
    live = LiveFigures(table := Table())
    told(live, 0, 5.0)
    told(live, 1, 0.1)
    assert table["joiner@1"]["restarts"] == 1
    told(live, 2, 0.2, **{STOPPED: 1.0})
    assert table["joiner@1"]["gauges"]


def test_a_process_that_is_forgotten_is_written_no_more() -> None:
    """The table has what the page has."""
    live = LiveFigures(table := Table())
    told(live, 0, 5.0)
    live.pop("joiner@1")
    assert not table
    assert not live
