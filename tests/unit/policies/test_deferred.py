"""Waiting for company: the rule, its gate and bounds, and why each batch started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.deferred import Deferral, Deferred, reckon
from policies.errors import PolicyError
from workers.kernel.model.batcher import Batcher, Take

MS = 1_000
SECOND = 1_000_000
# 5 ms and 0.1 ms a row.
MEASURED = {rows: 5 * MS + 100 * rows for rows in (1, 2, 4, 8, 16, 32)}
ALWAYS = Deferred(linger_ms=1_000, eager_below=0)


def measured(controller: Deferred, state: Deferral | None = None) -> Deferral:
    """Return the state after a batch of each size, as in MEASURED."""
    state = controller.init() if state is None else state
    for rows, duration_us in MEASURED.items():
        state = controller.observe(state, rows, duration_us, 20 * MS)
    return state


def batcher(controller: Deferred = ALWAYS) -> Batcher[str]:
    """Make a batcher that has measured the same, and then full batches until its cap is above 31."""
    queue: Batcher[str] = Batcher(controller, objective_us=20 * MS)
    for rows, duration_us in MEASURED.items():
        queue.done(rows, duration_us, 0)
    while queue.cap < 32:
        queue.done(queue.cap, 5 * MS + 100 * queue.cap, 0)
    return queue


def words(take: Take[str]) -> tuple[str, str, str]:
    """Return the items taken and expired, as two words, and the reason."""
    return "".join(row.item for row in take.rows), "".join(row.item for row in take.expired), take.reason


def test_the_profile_is_the_longest_of_each_size_never_falls_and_goes_on_in_proportion() -> None:
    """Straight between the sizes, the smallest below them; of a larger batch that was faster it takes the slower."""
    state = ALWAYS.init()
    for rows, duration_us in ((2, 3_000), (2, 4_000), (2, 2_000), (6, 8_000), (8, 6_000)):
        state = ALWAYS.observe(state, rows, duration_us, 20 * MS)
    assert state.profile == ((2, 4_000), (6, 8_000), (8, 8_000))
    assert [reckon(state.profile, rows) for rows in (1, 2, 3, 6, 7, 8, 12)] == [
        *(4_000, 4_000, 5_000),
        *(8_000, 8_000, 8_000, 12_000),
    ]


def test_it_waits_until_one_row_more_would_be_late() -> None:
    """Due at 40 ms, three rows: a fourth takes 5.4 ms, and a timer may be a millisecond late."""
    assert ALWAYS.wait_until(measured(ALWAYS), 3, 40 * MS, 0) == 40 * MS - 5_400 - 1 * MS


def test_before_anything_is_measured_nothing_waits() -> None:
    """There is no saying what would fit."""
    assert ALWAYS.wait_until(ALWAYS.init(), 1, SECOND, 7) == 7


def test_a_light_load_is_served_at_once() -> None:
    """Rows of 5.1 ms: 100 a second are half of what one could do, 200 more than all; a quiet second ends it."""
    gated = Deferred()
    waits = {}
    for per_s in (100, 200):
        state, step = measured(gated), SECOND // per_s
        for turn in range(5 * per_s):
            state = gated.arrived(state, 1, turn * step)
        waits[per_s] = gated.wait_until(state, 1, 6 * SECOND, 5 * SECOND) > 5 * SECOND
    assert waits == {100: False, 200: True}
    assert gated.wait_until(state, 1, 9 * SECOND, 7 * SECOND) == 7 * SECOND


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"linger_ms": -1.0}, "linger_ms"),
        ({"linger_ms": float("inf")}, "linger_ms"),
        ({"eager_below": -0.1}, "eager_below"),
        ({"window": 1}, "window"),
        ({"max_rows": 0}, "max_rows"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, float], says: str) -> None:
    """The message names the parameter."""
    with pytest.raises(PolicyError, match=says):
        replace(Deferred(), **parameters)  # type: ignore[arg-type]


def test_a_batch_is_held_until_the_most_urgent_can_wait_no_longer() -> None:
    """The take says when to come back; a more urgent row moves that forward."""
    queue = batcher()
    queue.offer([(60 * MS, "a")], 0)
    held = queue.take(0)
    assert (held.rows, held.reason, held.queued) == ((), "", 1)
    assert held.wait_until_us == 60 * MS - 5_200 - 1 * MS
    queue.offer([(40 * MS, "b")], 10 * MS)
    again = queue.take(10 * MS).wait_until_us
    assert again is not None
    assert 30 * MS < again <= 40 * MS - 5_300 - 1 * MS
    assert words(queue.take(again - 1)) == ("", "", "")
    assert words(queue.take(again)) == ("ba", "", "deadline")


def test_a_free_model_waits_no_longer_than_the_linger_maximum() -> None:
    """Counted from when it could have started, whatever comes meanwhile."""
    queue = batcher(Deferred(linger_ms=8, eager_below=0))
    queue.offer([(SECOND, "a")], 0)
    assert queue.take(2 * MS).wait_until_us == 10 * MS
    queue.offer([(SECOND, "b")], 9 * MS)
    assert queue.take(9 * MS).wait_until_us == 10 * MS
    assert words(queue.take(10 * MS)) == ("ab", "", "linger")
    queue.offer([(SECOND, "c")], 20 * MS)
    assert queue.take(20 * MS).wait_until_us == 28 * MS


def test_a_full_batch_does_not_wait() -> None:
    """There is no room for company."""
    queue = batcher()
    rows = queue.cap
    queue.offer([(SECOND, "x")] * (rows + 1), 0)
    take = queue.take(0)
    assert (len(take.rows), take.reason, take.wait_until_us) == (rows, "cap", None)


def test_what_was_kept_waiting_is_not_dropped_for_what_came_last() -> None:
    """Sixty at once do not fit with the one that was held: the batch is made as small as that one needs."""
    queue = batcher()
    queue.offer([(40 * MS, "a")], 0)
    until = queue.take(0).wait_until_us
    assert until is not None
    queue.offer([(90 * MS, "b")] * 60, until - 1)
    taken, expired, reason = words(queue.take(until - 1))
    assert (taken[0], expired, reason) == ("a", "", "deadline")
    assert 2 <= len(taken) < 16


def test_what_was_kept_waiting_through_a_pause_still_runs_unless_it_is_past_due() -> None:
    """The machine slept: what nobody waits for any more expires, the rest is tried."""
    queue = batcher()
    queue.offer([(30 * MS, "a"), (40 * MS, "b"), (80 * MS, "c")], 0)
    assert queue.take(0).rows == ()
    assert words(queue.take(39 * MS)) == ("bc", "a", "deadline")


def test_forgotten_rows_leave_no_wait_behind() -> None:
    """After a rebalance the next row is held for its own sake."""
    queue = batcher(Deferred(linger_ms=8, eager_below=0))
    queue.offer([(SECOND, "a")], 0)
    assert queue.take(0).wait_until_us == 8 * MS
    assert queue.forget(lambda _: True) == 1
    queue.offer([(SECOND, "b")], 50 * MS)
    assert queue.take(50 * MS).wait_until_us == 58 * MS
