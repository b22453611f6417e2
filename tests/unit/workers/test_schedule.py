"""What runs next on a host: the oldest row, or the latest feasible start by Clockwork's published profile."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from tests.clockworks import RESNET50, profiles, queue
from workers.kernel.schedule.clockwork import PROBE_US, ClockworkSchedule
from workers.kernel.schedule.fifo import Fifo
from workers.kernel.schedule.profiles import Profiles
from workers.kernel.schedule.trunks import ByTrunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.kernel.schedule.contract import Schedule


def test_the_oldest_row_goes_first_under_fifo() -> None:
    """Whatever is due before it."""
    schedule = Fifo(profiles("a", "b"))
    schedule.changed(queue("a", 90_000, since_us=7), 10)
    schedule.changed(queue("b", 50_000, 60_000, since_us=3, cap=1), 10)
    start = schedule.next(10)
    assert start is not None
    assert (start.model, start.rows) == ("b", 1)
    assert schedule.next(10) is None
    schedule.done("b", 1, 5, 15)
    schedule.changed(queue("b", 60_000, since_us=3), 15)
    assert (schedule.next(15) or start).model == "b"


def test_the_latest_feasible_start_goes_first() -> None:
    """The model that is due later goes first if it needs so much longer."""
    schedule = ClockworkSchedule(profiles("one", "many"))
    schedule.changed(queue("one", 20_000), 0)
    schedule.changed(queue("many", *[25_000] * 16), 0)  # 25.0 - 15.67 ms comes before 20.0 - 2.61 ms
    start = schedule.next(0)
    assert start is not None
    assert start == ("many", 16, 0, 25_000 - 15_670, ())


def test_the_largest_full_batch_that_is_in_time_runs() -> None:
    """By the published times: 9 ms are enough for four rows, not for eight (9.13 ms)."""
    for slack_us, rows in ((100_000, 16), (15_000, 8), (9_000, 4), (4_000, 2), (3_000, 1)):
        schedule = ClockworkSchedule(profiles("a"))
        schedule.changed(queue("a", *[slack_us] * 20), 0)
        assert not schedule.refused(0)
        start = schedule.next(0)
        assert start is not None
        assert start.rows == rows


def test_a_batch_that_is_not_full_runs_whole_where_that_costs_less_a_row() -> None:
    """Three rows in a batch of four take 1.87 ms each, two take 1.89; five in one of eight take 1.83, four 1.40."""
    for waiting, rows in ((3, 3), (5, 4), (7, 7), (12, 8), (14, 14)):
        schedule = ClockworkSchedule(profiles("a"))
        schedule.changed(queue("a", *[100_000] * waiting), 0)
        start = schedule.next(0)
        assert start is not None
        assert start.rows == rows


def test_what_cannot_make_it_is_refused_at_once_with_its_reason() -> None:
    """Also while another model runs, because it is known when that ends."""
    schedule = ClockworkSchedule(profiles("a", "b"))
    schedule.changed(queue("a", *[100_000] * 16), 0)
    assert schedule.next(0) is not None  # until 15.67 ms
    schedule.changed(queue("b", 18_000, 19_000, 100_000), 1_000)
    assert [(each.model, each.rows) for each in schedule.refused(1_000)] == [("b", 1)]
    schedule.changed(queue("b", 19_000, 100_000), 1_000)
    assert not schedule.refused(1_000)
    schedule.changed(queue("b", 2_000), 1_000)
    (refusal,) = schedule.refused(1_000)
    assert refusal.reason == "no time is left: one row takes 2.6 ms"


def test_a_model_that_is_not_loaded_needs_that_time_too() -> None:
    """8.33 ms and 2.61: 10 ms are too few, 12 are enough if it is loaded at once."""
    schedule = ClockworkSchedule(profiles("a"))
    schedule.changed(queue("a", 10_000, 12_000, is_resident=False), 0)
    (refusal,) = schedule.refused(0)
    assert (refusal.rows, refusal.reason) == (1, "the model is not loaded: that takes 8.3 ms more")
    schedule.changed(queue("a", 12_000, is_resident=False), 0)
    assert not schedule.refused(0)
    assert schedule.next(0) is None
    assert schedule.due_us() == 12_000 - 2_610 + 1
    schedule.changed(queue("a", 12_000), 8_330)
    assert (schedule.next(8_330) or queue("b")).model == "a"


def test_urgent_rows_are_passed_over_only_if_that_loses_no_more() -> None:
    """One urgent row before many that are due soon after is dropped; before rows that can wait it runs."""
    crowded = ClockworkSchedule(profiles("a"))
    crowded.changed(queue("a", 15_000, *[16_000] * 16), 0)
    (refusal,) = crowded.refused(0)
    assert (refusal.rows, refusal.reason) == (1, "no time is left: a larger batch of later rows runs instead")
    relaxed = ClockworkSchedule(profiles("a"))
    relaxed.changed(queue("a", 15_000, *[90_000] * 16), 0)
    assert not relaxed.refused(0)
    assert (relaxed.next(0) or queue("b")).model == "a"


def test_an_estimate_that_is_too_high_corrects_itself() -> None:
    """After a pause of half a second nothing is in time by the estimate: one row is tried now and then."""
    schedule = ClockworkSchedule(profiles("a"))
    schedule.done("a", 1, 500_000, 1_000_000)
    now_us, tried = 1_000_000, 0
    while schedule.profiles.estimate("a", 1) > 100_000:
        schedule.changed(queue("a", *[now_us + 100_000] * 3), now_us)
        for refusal in schedule.refused(now_us):
            schedule.changed(queue("a", *[now_us + 100_000] * (3 - refusal.rows)), now_us)
        start = schedule.next(now_us)
        if start is not None:
            assert start.rows == 1
            tried += 1
            schedule.done("a", 1, 2_600, now_us + 2_600)
        schedule.changed(queue("a"), now_us + 3_000)
        now_us += 30_000
    assert tried == 10
    assert now_us <= 1_000_000 + 11 * (PROBE_US + 30_000)


def test_what_is_refused_counts_as_demand_for_as_long_as_a_query_waits() -> None:
    """So that a model whose loading takes longer than its queries can wait is loaded all the same."""
    schedule = ClockworkSchedule(profiles("a"))
    schedule.changed(queue("a", 5_000, is_resident=False), 0)
    assert schedule.refused(0)
    schedule.changed(queue("a", is_resident=False), 0)
    assert schedule.demand("a", 1) == RESNET50.p99_us[0] * 100_000 // 15_000
    assert schedule.demand("a", 100_000) == 0


@pytest.mark.parametrize("make", [Fifo, ClockworkSchedule, lambda known: ByTrunk(ClockworkSchedule(known))])
def test_models_that_come_no_more_leave_nothing_behind(make: Callable[[Profiles], Schedule]) -> None:
    """However many there were, and whatever they did: run, be refused, share a trunk."""
    schedule, sizes = make(Profiles()), []
    for number in range(300):
        name, now_us = f"a@{number}#{number}", 10_000 * number
        schedule.changed(queue(name, now_us - 1, now_us + 5_000)._replace(trunk=f"t{number}"), now_us)
        for refusal in schedule.refused(now_us):
            schedule.changed(queue(name, now_us + 5_000)._replace(trunk=f"t{number}"), now_us)
            assert refusal.model == name
        if (start := schedule.next(now_us)) is not None:
            schedule.done(start.model, start.rows, 100, now_us + 100)
        schedule.forget(name, now_us + 200)
        schedule.profiles.forget(name)
        sizes.append(len(pickle.dumps(schedule)))
    assert sizes[299] <= sizes[99] + 1_000


def test_two_lanes_run_two_models_and_never_one_twice() -> None:
    """Each model has one batch at a time."""
    schedule = ClockworkSchedule(profiles("a", "b"), lanes=2)
    schedule.changed(queue("a", *[50_000] * 3), 0)
    schedule.changed(queue("b", 60_000), 0)
    started = [start.model for start in (schedule.next(0), schedule.next(0)) if start is not None]
    assert started == ["a", "b"]
    assert schedule.next(0) is None
    schedule.changed(queue("a", 70_000), 0)
    schedule.done("b", 1, 2_600, 2_600)
    schedule.changed(queue("b"), 2_600)
    assert schedule.next(2_600) is None
