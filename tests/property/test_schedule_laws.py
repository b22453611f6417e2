"""Laws of Clockwork's schedule: each row leaves once, in time by the estimate, or refused because it could not be."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clockworks import RESNET50, Lane, profiles, queue
from workers.kernel.schedule.clockwork import ClockworkSchedule
from workers.kernel.schedule.registry import SCHEDULES
from workers.kernel.schedule.residency import Residency
from workers.kernel.schedule.trunks import ByTrunk

MODELS = ("a", "b", "c", "d")
# Rows: how long after the one before it each comes, for which model, and how long it can wait (us).
ROWS = st.lists(st.tuples(st.integers(0, 9_000), st.sampled_from(MODELS), st.integers(0, 120_000)), max_size=60)


def played(rows: list[tuple[int, str, int]]) -> tuple[Lane, Counter[tuple[str, int]]]:
    """Let rows come to a lane whose batches take what was estimated."""
    lane, now_us = Lane(ClockworkSchedule(profiles(*MODELS))), 0
    offered: Counter[tuple[str, int]] = Counter()
    for after_us, model, slack_us in rows:
        now_us += after_us
        while lane.running is not None and lane.running[2] <= now_us:
            lane.advance(lane.running[2])
        offered[model, now_us + slack_us] += 1
        lane.offer(model, now_us + slack_us, now_us)
    lane.run_out(now_us)
    return lane, offered


@settings(max_examples=200, deadline=None)
@given(ROWS)
def test_every_row_leaves_exactly_once(rows: list[tuple[int, str, int]]) -> None:
    """Started or refused, and nothing waits for ever."""
    lane, offered = played(rows)
    gone = Counter((start.model, due_us) for start, dues_us in lane.starts for due_us in dues_us)
    gone.update((refusal.model, due_us) for _, refusal, dues_us in lane.refusals for due_us in dues_us)
    assert gone == offered


@settings(max_examples=200, deadline=None)
@given(ROWS)
def test_what_starts_is_in_time(rows: list[tuple[int, str, int]]) -> None:
    """By the estimate, which the batches keep; a batch has a size that fits, and starts within its window."""
    lane, _ = played(rows)
    for start, dues_us in lane.starts:
        took_us = lane.schedule.profiles.estimate(start.model, start.rows)
        probed = start.rows == 1 and dues_us[0] < start.earliest_us + took_us
        assert probed or min(dues_us) >= start.earliest_us + took_us
        assert 1 <= start.rows <= 16
        assert probed or start.latest_us == dues_us[0] - took_us >= start.earliest_us


@settings(max_examples=200, deadline=None)
@given(ROWS)
def test_what_is_refused_could_not_run_next_or_made_way_for_more(rows: list[tuple[int, str, int]]) -> None:
    """A row that is refused for want of time would have been late alone, run as soon as the lane was free."""
    lane, _ = played(rows)
    ends = [
        (start.earliest_us, start.earliest_us + RESNET50.p99_us[(start.rows - 1).bit_length()])
        for start, _ in lane.starts
    ]
    for now_us, refusal, dues_us in lane.refusals:
        if "larger" in refusal.reason or "more waits" in refusal.reason:
            continue
        free_us = max([now_us, *(until for since, until in ends if since <= now_us < until)])
        assert max(dues_us) < free_us + RESNET50.p99_us[0]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 40), st.booleans()), max_size=60))
def test_memory_never_takes_more_than_the_budget(steps: list[tuple[str, int, bool]]) -> None:
    """Whatever is wanted, used and loaded, as long as sizes are what they were said to be; what runs stays."""
    demand: Counter[str] = Counter()
    residency = Residency(100, demand=lambda unit, _: demand[unit])
    loading, busy = list[str](), set[str]()
    for now_us, (unit, size_bytes, is_busy) in enumerate(steps):
        demand[unit] = size_bytes % 7
        residency.want(unit, size_bytes)
        for change in residency.changes(now_us):
            assert not busy.intersection(each.unit for each in change.evictions)
            loading.append(change.load)
        assert residency.used_bytes <= 100
        if loading and size_bytes % 2:
            residency.loaded(loading.pop(), 0, now_us)
        if unit in residency:
            residency.use(unit, now_us, is_busy=is_busy)
            busy.add(unit) if is_busy else busy.discard(unit)


@settings(max_examples=200, deadline=None)
@given(ROWS, st.sampled_from(sorted(SCHEDULES)), st.sampled_from(("abcd", "ab", "a")))
def test_heads_on_one_trunk_are_one_queue(rows: list[tuple[int, str, int]], name: str, heads: str) -> None:
    """Each row leaves once, and what is decided is what would be if all rows of the heads were one model's."""
    one = Lane(ByTrunk(SCHEDULES[name](profiles(*MODELS))), trunks=dict.fromkeys(heads, "t"))
    other = Lane(SCHEDULES[name](profiles(*MODELS, "trunk t")))
    offered: Counter[tuple[str, int]] = Counter()
    now_us = 0
    for after_us, model, slack_us in rows:
        now_us += after_us
        for lane, asked in ((one, model), (other, "trunk t" if model in heads else model)):
            while lane.running is not None and lane.running[2] <= now_us:
                lane.advance(lane.running[2])
            lane.offer(asked, now_us + slack_us, now_us)
        offered[model, now_us + slack_us] += 1
    one.run_out(now_us)
    other.run_out(now_us)
    assert one.gone == offered
    for start, _ in one.starts:
        assert bool(start.parts) == (start.model == "trunk t")
        assert not start.parts or start.rows == sum(count for _, count in start.parts)
    if name == ClockworkSchedule.name:  # this lane does not say since when rows wait, by which the other one goes
        decided, wanted = ([(each._replace(parts=()), dues) for each, dues in lane.starts] for lane in (one, other))
        assert decided == wanted


def test_a_head_that_is_not_in_memory_waits_alone() -> None:
    """It comes to the others when it is loaded, and leaves them when it makes room; demand is shared by rows."""
    schedule = ByTrunk(ClockworkSchedule(profiles("a", "b")))
    schedule.changed(queue("a", 90_000, 91_000, trunk="t"), 0)
    schedule.changed(queue("b", 90_500, is_resident=False, trunk="t"), 0)
    assert schedule.demand("b", 0) > 0
    schedule.changed(queue("b", 90_500, trunk="t"), 0)
    assert schedule.demand("a", 0) == 2 * schedule.demand("b", 0) > 0
    start = schedule.next(0)
    assert start is not None
    assert start.parts == (("a", 2), ("b", 1))
    schedule.done(start.model, 3, 5_000, 5_000)
    assert schedule.profiles.estimate("a", 3) == schedule.profiles.estimate("b", 3) == 5_610
    schedule.changed(queue("b", trunk="t", is_resident=False), 5_000)
    schedule.changed(queue("a", 90_000, trunk="t"), 5_000)
    start = schedule.next(5_000)
    assert start is not None
    assert start.parts == (("a", 1),)
