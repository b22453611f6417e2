"""What a site needs, by arithmetic from the cost of one query."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.simulation.sizing import DAY_S, Costs, SiteAssumptions, breaks, need

COSTS = Costs(
    cpu_us={"selection": 20.0, "worker": 10.0, "joiner": 12.0, "learner": 22.0},
    broker_us=30.0,
    stored={"queries": 400.0, "observations": 70.0},
    readers={"queries": 1, "observations": 2},
)
SITE = SiteAssumptions(100_000, 16, 3, {"queries": DAY_S, "observations": 365 * DAY_S})


def test_cores_are_rate_times_cost_and_processes_leave_room() -> None:
    """At 20 us a query 100,000 of them keep two cores busy, which are four processes at half of a core each."""
    found = need(COSTS, SITE)
    assert found.cores["selection"] == pytest.approx(2.0)
    assert (found.processes["selection"], found.processes["learner"]) == (4, 5)
    assert found.partitions == 8


def test_bytes_count_each_copy_and_each_reader() -> None:
    """A record is written on three brokers, and read by as many groups as it has."""
    found = need(COSTS, SITE)
    assert found.in_mb_s == pytest.approx(47.0)
    assert found.copied_mb_s == pytest.approx(94.0)
    assert found.out_mb_s == pytest.approx(54.0)
    assert found.disk_tb["queries"] == pytest.approx(100_000 * 400 * 86_400 * 3 / 1e12)
    assert found.brokers == found.brokers_by_disk + 1


def test_one_learner_breaks_before_all_of_them() -> None:
    """Contexts in one partition are one process; spread over sixteen they break at sixteen times its rate."""
    rates = {each.what.partition(":")[0].partition(",")[0]: each.rate for each in breaks(COSTS, SITE, 3)}
    assert rates["learner"] == pytest.approx(16 * rates["one learner"])
    together = breaks(COSTS, replace(SITE, is_spread=False), 3)
    assert not any(each.what.startswith("learner") for each in together)


@given(st.floats(1, 1e6))
def test_what_a_rate_breaks_needs_more_than_there_is(rate: float) -> None:
    """Both ways of asking agree: brokers are enough for a rate exactly where their CPU is not full at it."""
    full = {each.what: each.rate for each in breaks(COSTS, SITE, 3)}["CPU of the brokers"]
    if abs(rate - full) > 1:
        assert (need(COSTS, replace(SITE, rate=rate)).brokers_by_cpu > 3) == (rate > full)


def test_the_lowest_rate_comes_first() -> None:
    """What breaks first stands first."""
    rates = [each.rate for each in breaks(COSTS, SITE, 3)]
    assert rates == sorted(rates)
