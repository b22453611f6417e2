"""A day of minutes: bounded, thinned out for charts, and read back from its table."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Report
from streams.control.figures import fold
from streams.control.minutes import (
    MINUTE_US,
    MINUTES,
    MOST_FIGURES,
    MOST_POINTS,
    Mark,
    Minutes,
    marks_of,
    packed,
    unpacked,
)
from tests import pages

NOON = 1_000 * MINUTES * MINUTE_US
RATE = "rate{application=digits}"


def filled(minutes: int, table: dict[str, str] | None = None) -> Minutes:
    """Return a day in which minute n has rate n; `put` keeps the minute before its time."""
    found = Minutes({} if table is None else table)
    for number in range(minutes):
        found.put(NOON + (number + 1) * MINUTE_US, {RATE: float(number), "lag{process=joiner@1}": 3.0})
    return found


def test_an_hour_is_shown_minute_by_minute() -> None:
    """Of the application that is asked for, and of no process."""
    shown = filled(90).between(NOON + 30 * MINUTE_US, NOON + 90 * MINUTE_US, "digits")
    assert shown["step_s"] == 60.0
    assert shown["columns"] == {RATE: [float(number) for number in range(30, 90)]}
    assert shown["times"] == [(NOON // MINUTE_US + number) * 60 for number in range(30, 90)]


def test_a_day_has_fewer_points_means_of_rates_and_the_longest_lag() -> None:
    """Every fourth minute: a chart is a few hundred pixels wide."""
    day = filled(MINUTES)
    day.put(NOON + MINUTES * MINUTE_US, {RATE: 0.0, "lag{process=joiner@1}": 99.0})
    end = NOON + MINUTES * MINUTE_US
    rates = day.between(0, end, "digits")
    assert len(rates["times"]) <= MOST_POINTS
    assert rates["columns"][RATE][10] == sum(range(40, 44)) / 4
    assert max(value for value in day.between(0, end, None)["columns"]["lag{process=joiner@1}"] if value) == 99.0


def test_nothing_is_shown_where_nothing_was_reported() -> None:
    """A gap stays a gap; what is older than a day is gone."""
    found = filled(2)
    found.put(NOON + 5 * MINUTE_US, {RATE: 7.0})
    shown = found.between(NOON, NOON + 5 * MINUTE_US, "digits")
    assert shown["columns"][RATE] == [0.0, 1.0, None, None, 7.0]
    found.put(NOON + (MINUTES + 5) * MINUTE_US, {RATE: 1.0})
    known = found.between(0, NOON + (MINUTES + 5) * MINUTE_US, "digits")["columns"][RATE]
    assert [value for value in known if value is not None] == [1.0]


def test_a_new_process_reads_the_day_back_from_the_table() -> None:
    """The same charts, with the marks; garbage in the table does no harm."""
    table: dict[str, str] = {}
    first = filled(60, table)
    first.mark(Mark(NOON + 60 * MINUTE_US, "version", "forest 3 serves"))
    first.put(NOON + 61 * MINUTE_US, {RATE: 1.0})
    table["17"], table["18"] = "no minute", base64.b64encode(zlib.compress(b"[1]")).decode()
    second = Minutes(table)
    second.load()
    span = (NOON, NOON + 61 * MINUTE_US, "digits")
    known, again = first.between(*span), second.between(*span)
    assert (
        known["marks"]
        == again["marks"]
        == [{"time_us": NOON + 60 * MINUTE_US, "kind": "version", "text": "forest 3 serves"}]
    )
    assert again["columns"][RATE][19:] == known["columns"][RATE][19:]
    assert not second.is_due(NOON + 61 * MINUTE_US)


def test_the_table_and_the_columns_are_bounded() -> None:
    """Ten times as many names as there is room for, over two days: the newest have the room."""
    table: dict[str, str] = {}
    found = Minutes(table)
    for number in range(10 * MOST_FIGURES):
        found.put(NOON + (number + 1) * MINUTE_US, {f"cpu{{process=worker.m{number}@1}}": 1.0})
    now_us = NOON + 10 * MOST_FIGURES * MINUTE_US
    assert len(table) == MINUTES
    assert len(found.between(0, now_us, None)["columns"]) == MOST_FIGURES
    assert len(found.between(now_us - MINUTE_US, now_us, None)["columns"]) == 1


def test_a_minute_that_would_unpack_to_gigabytes_is_refused() -> None:
    """The topic may hold what another program wrote."""
    with pytest.raises(ValueError, match="Expecting value"):
        unpacked(base64.b64encode(zlib.compress(b" " * (64 << 20))).decode())


@given(st.dictionaries(st.text(max_size=20), st.floats(-1e9, 1e9), max_size=30), st.integers(0, 1 << 40))
def test_a_minute_is_read_as_it_was_written(figures: dict[str, float], minute: int) -> None:
    """Whatever names applications have."""
    marks = [Mark(7, "start", "joiner@1 started")]
    assert unpacked(packed(figures, marks, minute)) == (minute, figures, marks)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: base64.b64encode(zlib.compress(data)).decode()))
def test_any_other_text_is_refused(text: str) -> None:
    """And nothing else is raised."""
    try:
        unpacked(text)
    except ValueError:
        return
    pytest.fail("a random text is no minute")


def report(time_us: int, cpu_s: float, **gauges: float) -> Report:
    """Return a report of a worker."""
    named = {name.replace("__", "{", 1) + "}" if "__" in name else name: value for name, value in gauges.items()}
    return Report("worker.forest@1", "worker.forest", time_us, {"cpu_seconds_total": cpu_s}, named)


def test_reports_tell_of_starts_ends_and_versions() -> None:
    """Each once."""
    told: list[str] = []
    known = None
    for at, cpu_s, gauges in (
        (1, 5.0, {}),
        (2, 6.0, {"serving__model=forest,version=1": 1.0}),
        (3, 7.0, {"serving__model=forest,version=2": 1.0}),
        (4, 0.1, {"serving__model=forest,version=2": 1.0}),
        (5, 0.2, {"stopped": 1.0}),
    ):
        after = fold(known, report(at, cpu_s, **gauges))
        told += [f"{mark.kind}: {mark.text}" for mark in marks_of(known, after, at)]
        known = after
    assert told == [
        "start: worker.forest@1 started",
        "version: forest 1 serves",
        "version: forest 2 serves",
        "restart: worker.forest@1 started again",
        "end: worker.forest@1 was stopped",
    ]


def test_what_is_read_becomes_charts_of_applications_and_processes() -> None:
    """Two minutes of reports: the first whole minute is there."""
    state = pages.empty_state(NOON)
    for second in range(125):
        now_us = NOON + second * 1_000_000
        counters = {"answers_total{application=digits,status=complete,reason=}": 10.0 * second}
        state.take(
            Report(
                "selection@1",
                "selection",
                now_us,
                counters,
                {"lag": 4.0, "deployed{application=digits,policy=exp3}": 1.0},
            ),
            now_us,
        )
    shown = state.charts(5, "digits", NOON + 125_000_000)
    assert shown["columns"][RATE][-1] == pytest.approx(10.0, rel=0.2)
    assert state.charts(5, None, NOON + 125_000_000)["columns"]["lag{process=selection@1}"][-1] == 4.0
