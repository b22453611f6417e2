"""The laws that every registered schedule of a host obeys."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.clockworks import Lane, profiles, queue
from workers.kernel.schedule.registry import SCHEDULES

if TYPE_CHECKING:
    from workers.kernel.schedule.contract import Schedule

MODELS = ("a", "b", "c", "d")


@pytest.fixture(params=sorted(SCHEDULES))
def schedule(request: pytest.FixtureRequest) -> Schedule:
    """Each registered schedule, of models whose times are known."""
    return SCHEDULES[request.param](profiles(*MODELS))


def driven(schedule: Schedule, seed: int, rows: int = 500) -> tuple[Lane, Counter[tuple[str, int]]]:
    """Let rows come in bursts, more than can be run."""
    random, lane, now_us = Random(seed), Lane(schedule), 0
    offered: Counter[tuple[str, int]] = Counter()
    for _ in range(rows):
        now_us += random.choice((0, 0, 100, 4_000))
        while lane.running is not None and lane.running[2] <= now_us:
            lane.advance(lane.running[2])
        model, due_us = random.choice(MODELS), now_us + random.randrange(1_000, 100_000)
        offered[model, due_us] += 1
        lane.offer(model, due_us, now_us)
    lane.run_out(now_us)
    return lane, offered


def test_every_row_leaves_exactly_once(schedule: Schedule) -> None:
    """Started or refused."""
    lane, offered = driven(schedule, 3)
    gone = Counter((start.model, due_us) for start, dues_us in lane.starts for due_us in dues_us)
    gone.update((refusal.model, due_us) for _, refusal, dues_us in lane.refusals for due_us in dues_us)
    assert gone == offered


def test_the_same_history_gives_the_same_decisions(schedule: Schedule) -> None:
    """To the last row."""
    again = SCHEDULES[schedule.name](profiles(*MODELS))
    first, second = driven(schedule, 4)[0], driven(again, 4)[0]
    assert first.starts == second.starts
    assert first.refusals == second.refusals


def test_a_batch_holds_no_more_than_its_models_cap(schedule: Schedule) -> None:
    """And at least one row."""
    for cap in (1, 3, 16):
        schedule.changed(queue("a", *[90_000] * 20, cap=cap), 0)
        assert not schedule.refused(0)
        start = schedule.next(0)
        assert start is not None
        assert 1 <= start.rows <= cap
        assert start.earliest_us <= start.latest_us
        schedule.done("a", start.rows, 2_610, 0)


def test_nothing_runs_that_is_not_resident_or_does_not_wait(schedule: Schedule) -> None:
    """Neither before it is loaded, nor after it was unloaded, nor when its rows are gone."""
    schedule.changed(queue("a", 90_000, is_resident=False), 0)
    assert schedule.next(0) is None
    schedule.changed(queue("a", 90_000), 0)
    schedule.changed(queue("a", 90_000, is_resident=False), 0)
    assert schedule.next(0) is None
    schedule.changed(queue("a", 90_000), 0)
    schedule.changed(queue("a"), 0)
    assert schedule.next(0) is None


def test_a_model_that_runs_is_not_started_again_before_it_is_done(schedule: Schedule) -> None:
    """Whatever comes meanwhile; then it is."""
    schedule.changed(queue("a", 80_000), 0)
    assert schedule.next(0) is not None
    schedule.changed(queue("a", 90_000), 100)
    assert schedule.next(100) is None
    schedule.done("a", 1, 2_610, 2_610)
    assert schedule.next(2_610) is not None


def test_what_ran_is_remembered(schedule: Schedule) -> None:
    """A batch without rows says nothing."""
    schedule.done("new", 1, 4_000, 4_000)
    schedule.done("new", 0, 9_000, 9_000)
    assert schedule.profiles.estimate("new", 1) == 4_000


def test_a_row_that_can_wait_long_is_not_starved(schedule: Schedule) -> None:
    """Under an endless stream of rows of other models it is run before it is due."""
    lane, now_us = Lane(schedule), 0
    lane.offer("a", 1_000_000, 0)
    while not any(start.model == "a" for start, _ in lane.starts):
        now_us += 2_000
        assert now_us < 1_000_000
        while lane.running is not None and lane.running[2] <= now_us:
            lane.advance(lane.running[2])
        lane.offer(MODELS[1 + now_us // 2_000 % 3], now_us + 50_000, now_us)
