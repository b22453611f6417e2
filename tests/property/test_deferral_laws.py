"""The law of waiting: what eager dispatch answers in time, deferred dispatch answers in time."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.deferred import Deferred
from policies.quantile import Quantile
from workers.kernel.model.batcher import Batcher

if TYPE_CHECKING:
    from policies.batching import BatchController

MS = 1_000
OBJECTIVE_US = 20 * MS
# Gaps between arrivals and what is left of each: at least two objectives, for a row may have to wait for a batch that
# has just begun. Sixty rows fit one batch of every model here, so that no backlog decides.
ARRIVALS = st.lists(
    st.tuples(st.sampled_from((0, 1, 500, 3 * MS, 12 * MS, 60 * MS)), st.integers(2 * OBJECTIVE_US, 10 * OBJECTIVE_US)),
    max_size=60,
)
COSTS_US = st.sampled_from(((5_000, 100), (100, 300), (15_000, 40), (1_000, 10)))
DEFERRED = st.builds(Deferred, linger_ms=st.sampled_from((0.0, 5.0, 1_000.0)), eager_below=st.sampled_from((0.0, 0.6)))


def answered_in_time(
    controller: BatchController[Any], arrivals: list[tuple[int, int]], cost: tuple[int, int]
) -> tuple[set[int], int]:
    """Run arrivals (gap_us, slack_us) in virtual time; returns which were answered in time, and in how many batches."""
    base_us, row_us = cost
    queue: Batcher[int] = Batcher(controller, objective_us=OBJECTIVE_US)
    for _ in range(60):  # settled before the first query
        queue.done(queue.cap, base_us + row_us * queue.cap, 0)
    times = list(accumulate(gap for gap, _ in arrivals))
    coming = [(at, at + slack, row) for row, (at, (_, slack)) in enumerate(zip(times, arrivals, strict=True))]
    now, in_time, batches = 0, set[int](), 0
    while coming or len(queue):
        here = [(due, row) for at, due, row in coming if at <= now]
        coming = coming[len(here) :]
        queue.offer(here, now)
        take = queue.take(now)
        assert len(take.rows) <= take.cap
        if take.rows:
            duration_us = base_us + row_us * len(take.rows)
            now, batches = now + duration_us, batches + 1
            queue.done(len(take.rows), duration_us, now)
            in_time |= {row.item for row in take.rows if row.due_us >= now}
        else:
            wakes = [time for time in (take.wait_until_us, coming[0][0] if coming else None) if time is not None]
            assert wakes or not len(queue)
            now = min(wakes, default=now)
    return in_time, batches


@settings(max_examples=40, deadline=None)
@given(DEFERRED, ARRIVALS, COSTS_US)
def test_deferral_never_makes_late_what_eager_dispatch_answers_in_time(
    deferred: Deferred, arrivals: list[tuple[int, int]], cost: tuple[int, int]
) -> None:
    """Whatever the slope of the model, the gaps and the slacks, and in no more batches."""
    eager, eager_batches = answered_in_time(Quantile(), arrivals, cost)
    waiting, batches = answered_in_time(deferred, arrivals, cost)
    assert eager <= waiting
    assert batches <= eager_batches + 1


def test_deferral_saves_batches() -> None:
    """Sixty rows a millisecond apart, due in 40 ms: eager dispatch takes them as they come."""
    arrivals = [(1_000, 2 * OBJECTIVE_US)] * 60
    rows, eager = answered_in_time(Quantile(), arrivals, (5_000, 100))
    also, deferred = answered_in_time(Deferred(linger_ms=1_000, eager_below=0), arrivals, (5_000, 100))
    assert rows == also == set(range(60))
    assert deferred <= eager / 3
