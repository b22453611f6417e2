"""What the page says of processes that died, were stopped, or came back; and what it does not blame them for."""

from __future__ import annotations

import pytest

from schemas.records import LAST_EXIT, STOPPED
from tests.overview_page import COMPLETE, DEFAULTS, Page


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-9.0, "was killed by signal 9 (SIGKILL): by somebody, or by the system for want of memory; its log, svc"),
        (-11.0, "was killed by signal 11 (SIGSEGV); its log, svc"),
        (-99.0, "was killed by signal 99; its log, svc"),
        (3.0, "ended with exit status 3; its log, svc"),
    ],
)
def test_a_death_is_told_with_its_signal_or_status_until_the_successor_is_healthy(code: float, said: str) -> None:
    """Two minutes later the table alone knows of it."""
    page = Page()
    page.report("svc", {"cpu_seconds_total": 9.0})
    page.later(4)
    page.everybody()
    page.report("svc", {"cpu_seconds_total": 0.5}, uptime_s=1, **{LAST_EXIT: code})
    [text] = page.texts()
    assert text.startswith(f"warn: svc {said} under Processes, ")
    page.later(121)
    page.everybody()
    for _ in range(2):
        page.later(1)
        page.report("svc", {"cpu_seconds_total": 1.5}, uptime_s=122, **{LAST_EXIT: code})
    assert not any("svc" in text and "killed" in text for text in page.texts())


def test_one_that_dies_again_and_again_is_told_with_how_often() -> None:
    """Each time the alert begins anew."""
    page = Page()
    for _ in range(3):
        page.later(4)
        page.everybody()
        page.report("svc", {"cpu_seconds_total": 9.0}, uptime_s=3)
        page.later(1)
        page.report("svc", {"cpu_seconds_total": 0.5}, uptime_s=1)
    assert "(3 times in all)" in page.texts()[0]


def test_what_was_stopped_in_good_order_is_forgotten_after_a_minute() -> None:
    """An extra worker, a gateway and a recorder: nobody is woken up, and the table is as before."""
    page = Page()
    for name in ("joiner@2", "gateway@1", "record@1", "host.pool@1"):
        page.report(name, **{STOPPED: 1.0})
    page.report("host.pool@2")
    for _ in range(14):
        page.later(4)
        page.everybody()
        page.report("host.pool@2")
        assert page.texts() == []
    assert len(page.shown()["processes"]) == 8
    page.later(4)
    page.everybody()
    page.report("host.pool@2")
    assert page.texts() == []
    assert [row["instance"] for row in page.shown()["processes"]][-1] == "selection@1"
    assert len(page.shown()["processes"]) == 4


def test_the_last_of_a_role_that_is_stopped_is_missed_all_the_same() -> None:
    """Whoever stopped it may not know; a minute later nobody has the role."""
    page = Page()
    page.everybody()
    page.later(1)
    page.report("learner@1", **{STOPPED: 1.0})
    for seconds, text in (
        (9, "bad: learner@1 was stopped 9 s ago, the last of its role: nothing is learnt; observations wait in Kafka"),
        (55, "bad: no learner reports: nothing is learnt; observations wait in Kafka"),
    ):
        page.later(seconds)
        page.report("selection@1")
        page.report("joiner@1")
        assert [each for each in page.texts() if "learner" in each] == [f"{text} $ skysail run --role learner"]


def backlog(away_s: float) -> Page:
    """Return a page of a worker that was stopped for so long, and has just gone on; all its queries have expired."""
    page = Page()
    counts = {COMPLETE: 100.0, DEFAULTS: 0.0, "asked_total{application=digits,model=svc}": 100.0}
    gauges = {"deployed{application=digits,policy=exp3}": 1.0, "candidate{application=digits,model=svc}": 1.0}
    serving = {"serving{model=svc,version=1}": 1.0, "rows_total{model=svc,outcome=expired}": 0.0}
    page.report("worker.svc@1", serving)
    for _ in range(int(away_s)):
        page.everybody()
        page.report("selection@2", {**counts, **gauges})
        page.later(1)
        counts[DEFAULTS] += 1.0
        counts["asked_total{application=digits,model=svc}"] += 1.0
    page.report("worker.svc@1", {**serving, "rows_total{model=svc,outcome=expired}": away_s})
    return page


def test_a_backlog_that_is_worked_off_is_no_fault() -> None:
    """A worker that goes on finds queries that expired: that they were not answered says nothing of it now."""
    [text] = backlog(60).texts()
    assert text == (
        "warn: worker.svc@1 is heard again, for 0 s, after 60 s of silence: it had stopped, or its machine had;"
        " what waited meanwhile came late $ skysail doctor"
    )


def test_a_worker_that_came_back_and_still_answers_nothing_is_told() -> None:
    """A minute after its return its figures are its own."""
    page = backlog(60)
    counts = {"asked_total{application=digits,model=svc}": 160.0, COMPLETE: 100.0, DEFAULTS: 60.0}
    for second in range(75):
        page.later(1)
        page.everybody()
        counts = {name: count + (name != COMPLETE) for name, count in counts.items()}
        page.report("selection@2", {**counts, "candidate{application=digits,model=svc}": 1.0})
        expired = {"rows_total{model=svc,outcome=expired}": 61.0 + second}
        page.report("worker.svc@1", {"serving{model=svc,version=1}": 1.0, **expired})
    assert any("svc has answered 0 of the last" in text for text in page.texts())
    assert any("are the default" in text for text in page.texts())
