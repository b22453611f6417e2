"""The batcher in virtual time: order, caps, early drop, and what it learns."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from policies.aimd import Aimd
from policies.fixed import Fixed
from workers.kernel.model.batcher import Batcher, Take
from workers.kernel.model.service_times import (
    DEFAULT_OBJECTIVE_US,
    MIN_OBJECTIVE_US,
    REMEMBERED,
    SLACK_HORIZON_US,
    SLACK_MEMORY_US,
    SLACK_REFRESH_US,
    SLACK_WINDOW_US,
    SLACKS_A_POLL,
    SLACKS_AT_LEAST,
    ServiceTimes,
)

MS = 1_000
SECOND = 1_000_000


def batcher(cap: int = 4, limit: int = 100, objective_us: int | None = 20 * MS) -> Batcher[str]:
    """Make a batcher with a cap that does not change."""
    return Batcher(Fixed(rows=cap), limit=limit, objective_us=objective_us)


def items(take: Take[str]) -> tuple[str, str]:
    """Return the items taken and expired, as two words."""
    return "".join(row.item for row in take.rows), "".join(row.item for row in take.expired)


def test_rows_are_taken_by_due_time_up_to_the_cap() -> None:
    """The most urgent go first, equals in order of arrival, and the rest stays."""
    queue = batcher(cap=3)
    queue.offer([(50 * MS, "c"), (30 * MS, "a"), (90 * MS, "e"), (30 * MS, "b"), (80 * MS, "d")], 0)
    take = queue.take(0)
    assert items(take) == ("abc", "")
    assert (take.cap, take.queued, len(queue)) == (3, 2, 2)


def test_what_waits_is_bounded_in_bytes_and_the_largest_rows_are_refused() -> None:
    """Who sends small ones does not pay for it, however late they came; a higher priority stays longer."""
    queue: Batcher[str] = Batcher(Fixed(rows=4), objective_us=20 * MS, limit_bytes=20, size=len)
    assert queue.offer([(90 * MS, "a"), (50 * MS, "b" * 9), (60 * MS, "c" * 9)], 0) == []
    assert queue.bytes == 19
    refused = queue.offer([(70 * MS, "d" * 8), (80 * MS, "e")], 0)
    assert [row.item[0] for row in refused] == ["c"]
    assert queue.bytes == 19
    refused = queue.offer([(40 * MS, "f" * 12)], 0, {0: 1})
    assert [row.item[0] for row in refused] == ["b", "d"]
    take = queue.take(45 * MS)
    assert [[row.item[0] for row in rows] for rows in (take.rows, take.expired)] == [["e", "a"], ["f"]]
    assert queue.bytes == 0
    queue.offer([(90 * MS, "g"), (90 * MS, "hh")], 45 * MS)
    assert (queue.forget(lambda item: item == "g"), queue.bytes) == (1, 2)


@pytest.mark.parametrize("waiting", [0, 3, 4, 11, 90])
def test_the_wait_that_is_estimated_is_the_one_that_comes(waiting: int) -> None:
    """Of a row that comes now: until the batch with the model and the whole ones before its own are done."""
    queue = batcher(cap=4, objective_us=None)
    now_us = 0
    for rows in (1, 2, 4) * 3:
        queue.offer([(10 * SECOND, "a")] * rows, now_us)
        now_us += 2 * MS + rows * MS
        queue.done(len(queue.take(now_us).rows), 2 * MS + rows * MS, now_us)
    assert queue.wait_us(0) == 0
    queue.offer([(10 * SECOND, "b")] * (4 + waiting), now_us)
    at_work = len(queue.take(now_us).rows)
    estimated_us = queue.wait_us(at_work)
    begun_us = now_us
    queue.offer([(10 * SECOND, "mine")], now_us)
    while True:
        now_us += 2 * MS + at_work * MS
        taken = [row.item for row in queue.take(now_us).rows]
        if "mine" in taken:
            break
        at_work = len(taken)
    assert estimated_us == now_us - begun_us


def test_an_empty_queue_gives_an_empty_take() -> None:
    """There is nothing to predict and nothing to say."""
    assert batcher().take(0) == Take((), (), 4, 0)


def test_items_are_never_compared() -> None:
    """Equal due times do not make the heap look at the payload, which has no order."""
    queue: Batcher[object] = Batcher(Fixed(rows=2))
    queue.offer([(5 * MS, object()), (5 * MS, object())], 0)
    assert len(queue.take(0).rows) == 2


def test_a_full_queue_refuses_what_is_due_last() -> None:
    """The surplus comes back at once, new or old, and is never lost silently."""
    queue = batcher(limit=2)
    assert queue.offer([(20 * MS, "b"), (90 * MS, "d")], 0) == []
    refused = queue.offer([(10 * MS, "a"), (95 * MS, "e")], 0)
    assert [row.item for row in refused] == ["d", "e"]
    assert (queue.room, items(queue.take(0))) == (0, ("ab", ""))


def test_rows_past_their_due_time_expire() -> None:
    """What is late already is not predicted."""
    queue = batcher()
    queue.offer([(10 * MS, "a"), (40 * MS, "b")], 0)
    assert items(queue.take(20 * MS)) == ("b", "a")


def test_a_late_row_that_keeps_nobody_waiting_is_tried_for_as_long_as_it_may_be_of_use() -> None:
    """There is room for it in the batch: whether its answer comes in time depends on the way back alone."""
    queue = batcher(cap=4)
    queue.spare_us = 15 * MS
    queue.offer([(4 * MS, "a"), (10 * MS, "b"), (40 * MS, "c")], 0)
    assert items(queue.take(20 * MS)) == ("bc", "a")


def test_a_late_row_that_keeps_others_waiting_expires() -> None:
    """Where rows are left over, each batch is for those that are sure to be in time."""
    queue = batcher(cap=2)
    queue.spare_us = 15 * MS
    queue.offer([(10 * MS, "a"), (40 * MS, "b"), (50 * MS, "c")], 0)
    assert items(queue.take(20 * MS)) == ("bc", "a")


def test_rows_that_cannot_wait_for_the_planned_batch_are_dropped_early() -> None:
    """A full batch takes 10 ms: what is due within them is given up before it costs anything."""
    queue = batcher(cap=4)
    queue.done(4, 10 * MS, 0)
    queue.offer([(9 * MS, "a"), (11 * MS, "b"), (12 * MS, "c"), (13 * MS, "d"), (14 * MS, "e")], 0)
    assert items(queue.take(0)) == ("bcde", "a")


def test_the_planned_batch_shrinks_with_the_queue() -> None:
    """With two rows left the estimate is that of two rows, so neither is dropped."""
    queue = batcher(cap=8)
    queue.done(8, 10 * MS, 0)
    queue.done(2, 3 * MS, 0)
    queue.offer([(4 * MS, "a"), (5 * MS, "b")], 0)
    assert items(queue.take(0)) == ("ab", "")


def test_a_wrong_estimate_corrects_itself() -> None:
    """After one pause nothing seems feasible; a batch runs nevertheless, or nothing would ever run again."""
    queue = batcher(cap=2)
    queue.done(1, 500 * MS, 0)
    for turn in range(20):
        now = turn * 100 * MS
        queue.offer([(now + 50 * MS, "a")], now)
        assert items(queue.take(now)) == ("a", "")
        queue.done(1, 1 * MS, now + 1 * MS)
    queue.offer([(SECOND * 3 + 5 * MS, "a"), (SECOND * 3 - 1, "b")], 3 * SECOND)
    assert items(queue.take(3 * SECOND)) == ("a", "b")


def test_a_probe_does_not_run_what_is_past_its_due_time() -> None:
    """Only rows that somebody may still be waiting for are worth a probe."""
    queue = batcher(cap=8)
    queue.done(8, 500 * MS, 0)
    queue.offer([(10 * MS, "a"), (60 * MS, "b")] * 4, 0)
    assert items(queue.take(50 * MS)) == ("bbbb", "aaaa")


def test_forgotten_rows_are_gone_and_the_order_of_the_others_stays() -> None:
    """A revoked partition's rows leave the heap a heap."""
    queue = batcher(cap=10)
    queue.offer([(due * MS, item) for due, item in ((50, "e"), (30, "c"), (10, "a"), (40, "d"), (20, "b"))], 0)
    assert queue.forget(lambda item: item in "ad") == 2
    assert items(queue.take(0)) == ("bce", "")


def test_the_objective_is_half_of_what_the_hurried_tenth_has_left() -> None:
    """One batch may have to wait for another; a patient application does not slow a hurried one."""
    queue = batcher(objective_us=None)
    assert queue.objective(0) == DEFAULT_OBJECTIVE_US
    now = SLACK_REFRESH_US
    queue.offer([(now + 400 * MS, "p")] * 8 + [(now + 40 * MS, "h")] * 8, now)
    assert queue.objective(now) == 20 * MS


@pytest.mark.parametrize(
    ("deaf", "fetched_ms", "objective_ms"),
    [(True, 0, 20), (True, 5, 17.5), (True, 6, 12), (False, 0, 15)],
    ids=["at once", "soon", "later", "what could be fetched was"],
)
def test_what_waited_for_a_batch_that_kept_everything_waiting_is_not_taken_for_late(
    deaf: bool, fetched_ms: int, objective_ms: float
) -> None:
    """Half of what was left when it may have come: it is not to wait for another batch twice."""
    queue = batcher(objective_us=None)
    queue.done(1, MS, 0)
    queue.done(8, 10 * MS, 10 * MS, deaf=deaf)
    now = (10 + fetched_ms) * MS
    queue.offer([(40 * MS, "a")], now)
    assert queue.objective(now + SLACK_REFRESH_US) == objective_ms * MS


def test_a_derived_objective_leaves_room_for_more_than_the_call() -> None:
    """Or single rows, as slow as some, would be all that AIMD ends at; one slow batch changes nothing."""
    queue: Batcher[str] = Batcher(Aimd(), limit=1_000)
    queue.offer([(6 * MS, "")] * 500, 0)
    now = 0
    for _ in range(20):
        rows = len(queue.take(now).rows)
        queue.done(rows, 6 * MS if now else 100 * MS, now)
        now += 1
    assert queue.objective(now) == 12 * MS
    assert queue.cap > 16


def test_the_objective_forgets_old_queries() -> None:
    """After half a minute only the present counts."""
    queue = batcher(objective_us=None, limit=1)
    queue.offer([(40 * MS, "a")], 0)
    assert queue.objective(0) == 20 * MS
    later = SLACK_HORIZON_US + SECOND
    queue.offer([(later + 100 * MS, "b")], later)
    assert queue.objective(later) == 50 * MS


def test_where_much_comes_only_the_last_second_tells_how_things_are() -> None:
    """A burst that follows an overload is not held back by what had been late in that."""
    queue = batcher(objective_us=None)
    for _ in range(SLACKS_AT_LEAST):
        queue.offer([(10 * MS, "late")] * SLACKS_A_POLL, 0)
    assert queue.objective(0) == 5 * MS
    later = SLACK_WINDOW_US + MS
    for _ in range(SLACKS_AT_LEAST // SLACKS_A_POLL + 1):
        queue.offer([(later + 40 * MS, "in time")] * SLACKS_A_POLL, later)
    assert queue.objective(later) == 20 * MS


def test_late_arrivals_do_not_drive_the_objective_to_nothing() -> None:
    """A backlog from before a restart is expired, not a reason for batches of one row."""
    queue = batcher(objective_us=None)
    queue.offer([(1, "late")] * 20, SECOND)
    assert queue.objective(SECOND) == DEFAULT_OBJECTIVE_US
    queue.offer([(SECOND * 2 + 10, "a")], 2 * SECOND)
    assert queue.objective(2 * SECOND) == MIN_OBJECTIVE_US


def test_batches_stay_as_large_as_they_were_while_everything_is_late_for_a_moment() -> None:
    """Smaller ones would take longer for all rows together, and keep them late; what stays so is believed."""
    queue = batcher(objective_us=None)
    queue.offer([(SECOND + 40 * MS, "in time")] * 20, SECOND)
    assert queue.objective(SECOND) == 20 * MS
    for turn in range(30):
        now_us = 2 * SECOND + turn * SECOND // 5
        queue.offer([(now_us + 8 * MS, "late")] * 20, now_us)
        assert queue.objective(now_us) == (20 * MS if now_us <= SECOND + SLACK_MEMORY_US else 4 * MS)


@pytest.mark.parametrize(("call_us", "objective_us"), [(500, 3_000), (1_000, 4_000), (2_000, 6_000), (5_000, 10_000)])
def test_a_derived_objective_has_room_for_some_calls(call_us: int, objective_us: int) -> None:
    """Of 6 ms that are left half, or up to four calls in all of them, or two whatever is left."""
    queue = batcher(objective_us=None)
    queue.offer([(SECOND + 6 * MS, "hurried")] * 20, SECOND)
    queue.done(1, call_us, SECOND)
    assert queue.objective(SECOND) == objective_us


def test_a_hurried_seventh_sets_the_pace_though_its_share_of_a_poll_changes() -> None:
    """The best moment of the last seconds is no moment in which few of them came."""
    queue, random = batcher(objective_us=None), Random(1)
    for turn in range(1_000):
        now_us = SECOND + turn * 10 * MS
        slacks = [10 * MS if random.random() < 1 / 7 else 200 * MS for _ in range(50)]
        queue.offer([(now_us + slack_us, "") for slack_us in slacks], now_us)
        if turn > 600:  # what was taken of the first polls is too little to tell
            assert queue.objective(now_us) == 5 * MS
        queue.forget(lambda _: True)


def test_service_times_are_the_longest_of_the_last_ten_of_like_size() -> None:
    """An unknown size is judged by the next smaller one."""
    times = ServiceTimes()
    assert times.predict(5) == 0
    for duration in [90, *range(1, 11)]:
        times.observe(4, duration)
    times.observe(64, 7)
    assert [times.predict(rows) for rows in (4, 7, 8, 63, 64, 1000)] == [10, 10, 10, 10, 7, 7]


def test_service_times_forget_a_size_that_was_not_run_for_fifty_batches() -> None:
    """It is judged by the next smaller one again; what it takes as a rule stays known."""
    times = ServiceTimes()
    times.observe(4, 90)
    for _ in range(REMEMBERED - 1):
        times.observe(2, 10)
    assert times.predict(4) == 90
    times.observe(2, 10)
    assert (times.predict(4), times.usual(4)) == (10, 90)


def test_a_size_whose_only_batch_met_a_pause_is_tried_again() -> None:
    """Five rows wait, due in time for a call of them, but not if it were as slow as the one that the pause met."""
    queue = batcher(cap=8, objective_us=None)
    now_us, taken = 0, []
    for turn in range(100):
        queue.offer([(now_us + 20 * MS, "")] * (3 if turn < 10 else 5), now_us)
        taken.append(len(queue.take(now_us).rows))
        duration_us = 200 * MS if turn == 10 else 6 * MS
        now_us += duration_us
        queue.done(taken[-1], duration_us, now_us)
        queue.forget(lambda _: True)
    assert taken == [3] * 10 + [5] + [3] * REMEMBERED + [5] * (89 - REMEMBERED)


@dataclass
class Machine:
    """A model of 5 ms and 0.1 ms a row behind a batcher under a 20 ms objective, with no end of queries."""

    row_us: int = 100
    base_us: int = 5 * MS
    now_us: int = 0

    def __post_init__(self) -> None:
        """Start with one row a batch."""
        self.queue: Batcher[int] = Batcher(Aimd(), objective_us=20 * MS)

    def batch(self) -> tuple[int, int]:
        """Run one full batch in virtual time; returns its rows and how long it took."""
        self.queue.offer([(self.now_us + SECOND, row) for row in range(self.queue.cap - len(self.queue))], self.now_us)
        take = self.queue.take(self.now_us)
        assert take.expired == ()
        duration_us = self.base_us + self.row_us * len(take.rows)
        self.now_us += duration_us
        self.queue.done(len(take.rows), duration_us, self.now_us)
        return len(take.rows), duration_us

    def rate(self, batches: int) -> float:
        """Return rows a second over some batches."""
        done = [self.batch() for _ in range(batches)]
        return sum(rows for rows, _ in done) / sum(duration for _, duration in done) * SECOND


def test_aimd_reaches_95_percent_of_the_best_rate_of_an_even_model_within_200_batches() -> None:
    """The best batch has 150 rows (20 ms); the cap settles at 19.4 ms, and stays."""
    machine = Machine()
    for _ in range(200):
        machine.batch()
    assert machine.rate(50) >= 0.95 * 150 / 0.020
    assert machine.queue.cap == 144


def test_aimd_backs_off_within_five_batches_when_rows_cost_twice_as_much() -> None:
    """The cap falls until the objective is met, 75 rows at most."""
    machine = Machine()
    for _ in range(200):
        machine.batch()
    machine.row_us = 200
    before = machine.queue.cap
    for _ in range(5):
        machine.batch()
    assert machine.queue.cap <= 0.6 * before
    for _ in range(3):
        machine.batch()
    assert machine.batch()[1] <= 20 * MS


def test_aimd_beats_single_rows_twenty_times() -> None:
    """5.1 ms for one row against 18 ms for 130."""
    machine = Machine()
    for _ in range(200):
        machine.batch()
    assert machine.rate(50) >= 20 * SECOND / (machine.base_us + machine.row_us)


def test_a_light_load_does_not_lower_the_cap() -> None:
    """Takes that do not fill the cap say nothing about it."""
    machine = Machine()
    for _ in range(100):
        machine.batch()
    cap = machine.queue.cap
    for turn in range(100):
        now = machine.now_us + turn * SECOND
        machine.queue.offer([(now + SECOND, 0)], now)
        machine.queue.done(len(machine.queue.take(now).rows), 6 * MS, now)
    assert machine.queue.cap == cap


def test_a_full_queue_refuses_the_lowest_priority_first() -> None:
    """Of these, what is due last; a high one stays, however late it is due."""
    queue = batcher(limit=2)
    queue.offer([(20 * MS, "a"), (30 * MS, "b")], 0)
    refused = queue.offer([(90 * MS, "H"), (10 * MS, "c")], 0, {0: 3})
    assert [row.item for row in refused] == ["a", "b"]
    assert items(queue.take(0)) == ("cH", "")


def test_priorities_do_nothing_while_everything_can_be_answered_in_time() -> None:
    """Two batches of 10 ms, and all are due after both: the most urgent go first."""
    queue = batcher(cap=2)
    queue.done(2, 10 * MS, 0)
    queue.offer([(25 * MS, "a"), (26 * MS, "b"), (27 * MS, "C"), (28 * MS, "D")], 0, {2: 1, 3: 1})
    assert items(queue.take(0)) == ("ab", "")


def test_where_not_all_can_be_answered_the_lowest_priority_waits() -> None:
    """One batch fits before the time is over: it goes to the high ones, the low ones run out of time."""
    queue = batcher(cap=2)
    queue.done(2, 10 * MS, 0)
    queue.offer([(15 * MS, "a"), (16 * MS, "b"), (17 * MS, "C"), (18 * MS, "D")], 0, {2: 1, 3: 1})
    assert items(queue.take(0)) == ("CD", "")
    assert items(queue.take(17 * MS)) == ("", "ab")


def test_no_more_low_rows_wait_than_must() -> None:
    """Three of four fit; the low one that must go makes room for a high one, the other is answered first."""
    queue = batcher(cap=1)
    queue.done(1, 10 * MS, 0)
    queue.offer([(11 * MS, "a"), (22 * MS, "b"), (33 * MS, "C"), (34 * MS, "D")], 0, {2: 1, 3: 1})
    assert [items(queue.take(now * MS)) for now in (0, 10, 20, 30)] == [("b", ""), ("C", "a"), ("D", ""), ("", "")]


def test_a_queue_of_one_priority_is_served_as_one_of_none() -> None:
    """Only differences count, whatever the number."""
    offered = [((10 + n) * MS, chr(97 + n)) for n in range(20)]
    plain, ranked = batcher(cap=3), batcher(cap=3)
    for queue in (plain, ranked):
        queue.done(3, 6 * MS, 0)
    plain.offer(offered, 0)
    ranked.offer(offered, 0, dict.fromkeys(range(20), 7))
    for now in range(0, 40, 6):
        assert items(plain.take(now * MS)) == items(ranked.take(now * MS))


@pytest.mark.parametrize("ranked", [True, False], ids=["ranked", "plain"])
def test_under_three_times_the_load_the_high_ones_are_answered(ranked: bool) -> None:
    """A fifth of the queries is high: all of them get through, and as many are answered in all as without ranks."""
    queue = batcher(cap=8)
    queue.done(8, 8 * MS, 0)
    answered = {"h": 0, "l": 0}
    offered, now = 0, 0
    while now < 2 * SECOND:
        fresh = range(offered, now * 3 // MS)  # three a millisecond, and one is what can be done
        offered = now * 3 // MS
        rows = [(n * MS // 3 + 50 * MS, "h" if n % 5 == 0 else "l") for n in fresh]
        queue.offer(rows, now, {place: 1 for place, (_, item) in enumerate(rows) if item == "h"} if ranked else {})
        take = queue.take(now)
        now += max(1, len(take.rows)) * MS
        for row in take.rows:
            answered[row.item] += row.due_us >= now
        if take.rows:
            queue.done(len(take.rows), len(take.rows) * MS, now)
    assert sum(answered.values()) >= 0.95 * now / MS
    assert answered["h"] >= (0.95 if ranked else 0.0) * offered / 5
    assert ranked or answered["h"] < 0.5 * offered / 5
