"""Laws of the batcher: nothing is lost, nothing is doubled, and the urgent go first."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.aimd import Aimd
from workers.kernel.model.batcher import Batcher

# A step: offer rows due after so many microseconds; then take, and the batch lasts so long.
STEPS = st.lists(st.tuples(st.lists(st.integers(-5_000, 50_000), max_size=12), st.integers(0, 30_000)), max_size=30)


@settings(max_examples=50, deadline=None)
@given(STEPS, st.integers(1, 20), st.sampled_from([1, 2, 5]))
def test_every_row_comes_out_exactly_once(steps: list[tuple[list[int], int]], limit: int, ranks: int) -> None:
    """As taken, expired or refused, whatever the load, the limit and the priorities."""
    queue: Batcher[int] = Batcher(Aimd(), limit=limit)
    now, offered = 0, 0
    out: Counter[int] = Counter()
    for slacks, duration in [*steps, *[([], 1)] * 200]:
        rows = [(now + slack, offered + i) for i, slack in enumerate(slacks)]
        offered += len(rows)
        refused = queue.offer(rows, now, {place: slack % ranks for place, slack in enumerate(slacks) if slack % ranks})
        assert len(queue) <= limit
        take = queue.take(now)
        assert len(take.rows) <= take.cap
        assert take.queued == len(queue)
        out.update(row.item for row in (*refused, *take.rows, *take.expired))
        now += duration
        if take.rows:
            queue.done(len(take.rows), duration, now)
    assert len(queue) == 0
    assert out == Counter(range(offered))


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_a_take_is_in_order_of_due_time_and_leaves_nothing_more_urgent(steps: list[tuple[list[int], int]]) -> None:
    """Earliest due first; whatever stays behind is due no earlier; what is past due is never predicted."""
    queue: Batcher[int] = Batcher(Aimd(), limit=10_000)
    now = 0
    waiting: Counter[int] = Counter()
    for slacks, duration in steps:
        waiting.update(now + slack for slack in slacks)
        queue.offer([(now + slack, 0) for slack in slacks], now)
        take = queue.take(now)
        dues = [row.due_us for row in take.rows]
        assert dues == sorted(dues)
        assert all(due >= now for due in dues)
        waiting.subtract(dues + [row.due_us for row in take.expired])
        left = [due for due, count in waiting.items() if count > 0]
        assert not dues or not left or min(left) >= max(dues)
        now += duration
        if take.rows:
            queue.done(len(take.rows), duration, now)
