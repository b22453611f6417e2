"""Rows that give way where more waits than can be in time."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clockworks import RESNET50, queue
from workers.kernel.schedule.clockwork import ClockworkSchedule
from workers.kernel.schedule.contract import Refusal
from workers.kernel.schedule.excess import Excess
from workers.kernel.schedule.profiles import Profiles

MS = 1_000
TAKES_US = {"cheap": 1 * MS, "usual": 3 * MS, "dear": 10 * MS}


def profiles() -> Profiles:
    """Return profiles of models whose batches save nothing: two rows take twice as long as one."""
    found = Profiles()
    for name, us in TAKES_US.items():
        found.restore(RESNET50._replace(model=name, sizes=(1,), p99_us=(us,)))
    return found


def test_the_rows_that_take_longest_give_way() -> None:
    """Of 32 ms of work that is due within 30 one row of 10 ms goes, and all others are in time."""
    schedule = ClockworkSchedule(profiles())
    schedule.changed(queue("dear", *[30 * MS] * 2), 0)
    schedule.changed(queue("cheap", *[30 * MS] * 12), 0)
    reason = "more waits than can be in time, and a row takes 10.0 ms"
    assert list(schedule.refused(0)) == [Refusal("dear", 1, reason)]
    schedule.changed(queue("dear", 30 * MS), 0)
    assert not schedule.refused(0)


def test_nothing_gives_way_if_all_can_be_in_time() -> None:
    """By the largest batches that there are rows for: 16 rows of a ResNet-50 take 15.67 ms, not 41.76."""
    found = profiles()
    found.restore(RESNET50._replace(model="a"))
    schedule = ClockworkSchedule(found)
    schedule.changed(queue("a", *[20 * MS] * 16), 0)
    schedule.changed(queue("cheap", *[20 * MS] * 4), 0)
    assert not schedule.refused(0)


def test_models_that_are_not_in_memory_and_a_model_alone_do_not_count() -> None:
    """The first cannot run, and of one model all rows take as long."""
    schedule = ClockworkSchedule(profiles())
    schedule.changed(queue("cheap", *[30 * MS] * 29), 0)
    schedule.changed(queue("dear", *[40 * MS] * 3, is_resident=False), 0)
    assert not schedule.refused(0)


def test_what_runs_is_over_before_the_others_begin() -> None:
    """Of 8 ms of work that is due within 10 a row of 3 ms goes while another batch runs for 4 ms."""
    excess = Excess(profiles(), 1)
    excess.changed(queue("usual", *[10 * MS] * 2), counts=True)
    excess.changed(queue("cheap", *[10 * MS] * 2), counts=True)
    assert not excess.surplus(7 * MS, 0)
    assert excess.surplus(7 * MS, 4 * MS) == {"usual": 1}


class Counted(list[int]):
    """Due times that count how often they are read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        """Return one, or several."""
        Counted.reads += 1
        return super().__getitem__(index)


def test_where_all_are_in_time_the_rows_are_not_looked_at_again_before_that_may_change() -> None:
    """Of 15 ms of work that are due within 30: not for 3 ms more that begin 10 ms later, but for 13 ms later."""
    excess = Excess(profiles(), 1)
    for name, us in TAKES_US.items():
        if name != "usual":
            rows = Counted([30 * MS] * (5 * MS // us or 1))
            excess.changed(queue(name, 30 * MS)._replace(dues_us=rows), counts=True)
    assert not excess.surplus(0, 0)
    reads = Counted.reads
    assert not excess.surplus(0, 10 * MS)
    excess.changed(queue("usual", 30 * MS), counts=True)
    assert not excess.surplus(0, 10 * MS)
    assert Counted.reads == reads
    assert excess.surplus(0, 13 * MS)
    assert Counted.reads > reads


STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(TAKES_US)), st.lists(st.integers(1, 60), max_size=4), st.integers(0, 5)),
    min_size=2,
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_what_is_remembered_changes_nothing(steps: list[tuple[str, list[int], int]]) -> None:
    """As if it were looked at each time; a row that alone is too late is refused before, and so does not come here."""
    remembers, waits, now_us = Excess(profiles(), 1), dict[str, list[int]](), 0
    for name, after_ms, pause_ms in steps:
        now_us += pause_ms * MS
        its = [due_us for due_us in waits.get(name, []) if due_us - TAKES_US[name] >= now_us]
        waits[name] = sorted(its + [now_us + TAKES_US[name] + ms * MS for ms in after_ms])
        forgets = Excess(profiles(), 1)
        for each, dues_us in waits.items():
            waits[each] = [due_us for due_us in dues_us if due_us - TAKES_US[each] >= now_us]
            remembers.changed(queue(each, *waits[each]), counts=True)
            forgets.changed(queue(each, *waits[each]), counts=True)
        assert remembers.surplus(0, now_us) == forgets.surplus(0, now_us)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(TAKES_US)), st.integers(1, 20)), min_size=2, max_size=6))
def test_as_few_rows_as_possible_give_way(rows: list[tuple[str, int]]) -> None:
    """No order of any more of the rows would have all of those in time."""
    excess, dues_us = Excess(profiles(), 1), dict[str, list[int]]()
    for name, due_ms in rows:
        dues_us.setdefault(name, []).append(due_ms * MS)
    for name, its in dues_us.items():
        excess.changed(queue(name, *sorted(its)), counts=True)
    if len(dues_us) < 2:
        return
    gone = sum(excess.surplus(0, 0).values())
    kept_more = combinations(rows, len(rows) - gone + 1) if gone else ()
    assert not any(_in_time(order) for some in kept_more for order in permutations(some))


def _in_time(order: tuple[tuple[str, int], ...]) -> bool:
    end_us = 0
    for name, due_ms in order:
        end_us += TAKES_US[name]
        if end_us > due_ms * MS:
            return False
    return True
