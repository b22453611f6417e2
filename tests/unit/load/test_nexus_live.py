"""What `nexus` says of two real hosts: what moved while queries were sent, and what that cost."""

from __future__ import annotations

import numpy as np
import pytest

from load.research.clockwork.live_host import GOOD, LATE
from load.research.nexus import nexus
from load.research.nexus.nexus_live import Found, changes
from load.results.results import Result
from schemas.records import Place, Plan

S = 1_000_000


def _plan(at_s: float, changed_s: float, from_s: float = 0.0, **homes: str) -> Plan:
    places = tuple(Place(host, model, (0,), 1.0, 1, 1) for model, host in homes.items())
    return Plan("small", int(at_s * S), int(changed_s * S), 1, (), places, "", from_us=int(from_s * S))


def _found(*plans: Plan, late_s: tuple[float, ...] = ()) -> Found:
    """Return ten seconds of ten queries each, from 100 s on; those sent at these times are late."""
    sent_us = np.arange(100 * S, 110 * S, S // 10)
    outcomes = np.where(np.isin(sent_us, [int(at_s * S) for at_s in late_s]), LATE, GOOD).astype(np.uint8)
    return Found(outcomes, sent_us, 1.0, 2.0, plans)


def test_what_moves_while_queries_are_sent_counts() -> None:
    """A plan from before, one that moves nothing, and one that is followed afterwards do not."""
    found = _found(
        _plan(90, 90, a="one", b="one"),
        _plan(95, 95, a="two", b="one"),
        _plan(101, 101, 103, a="two", b="two"),
        _plan(105, 101, a="two", b="two"),
        _plan(109, 109, 111, a="one", b="one"),
    )
    assert (changes(found)["measured_changes"], changes(found)["measured_moves"]) == (1.0, 1.0)


def test_what_is_late_around_a_change_is_put_down_to_it() -> None:
    """From what was due then until two seconds later; what is late at other times is not."""
    before, after = _plan(90, 90, a="one"), _plan(101, 101, 103, a="two")
    found = _found(before, after, late_s=(102.1, 102.3, 103.1, 104.9, 105.1))
    assert changes(found)["measured_late_by_changes"] == pytest.approx(3 / 100)


def test_the_page_has_the_parts_that_were_run() -> None:
    """Only measured: the simulated day is not there."""
    figures = {
        **{
            f"measured_{lane}_{what}": 0.5 for lane in ("planned", "spread") for what in ("goodput", "p50_ms", "p99_ms")
        },
        **{f"measured_{what}": 1.0 for what in ("queries", "models", "per_s", "changes", "moves", "late_by_changes")},
    }
    result = Result("nexus", figures)
    assert [table.title for table in nexus.tables(result)] == ["2 hosts on this machine, measured"]
    page = nexus.SCENARIO.written(result, {"processor": "a machine"})
    assert "| planned, from nothing | 50.00% | 0.5 | 0.5 |" in page
    assert "simulated seconds" not in page
    assert nexus.plots(result) == {}
