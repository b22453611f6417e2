"""Estimates for the batcher: how long a batch will take, and how long one may take. Pure; `now` is an argument."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from policies.clockwork import SAMPLES, p99

if TYPE_CHECKING:
    from collections.abc import Sequence

# A batch's time counts for this many batches. If it counted for longer, a size that a pause made slow (a neighbour, the
# collector) would never run again: its rows would be dropped rather than taken.
REMEMBERED = 50
# Slacks remembered, and how many of one poll (a fast one brings thousands that are all alike).
SLACKS = 1024
SLACKS_A_POLL = 8
# Queries of the last second tell the slack; if they are few, earlier ones do, back to half a minute.
SLACK_WINDOW_US = 1_000_000
SLACK_HORIZON_US = 30_000_000
SLACKS_AT_LEAST = 64
# While all queries are late for a while, batches stay as large as they were. Smaller ones would take more time for each
# row, and everything on the machine would stay late (forest of 30 trees, 12,000 rows/s due in 50 ms, two cores: 6,500
# in time without this memory, 10,000 with 5 s of it). With 5 s, one stretch in ten still ended at batches of one to
# three rows after 5 s of overload or silence (4,000 rows/s due in 20 ms: 528 in time, else 2,000).
SLACK_MEMORY_US = 30_000_000
SLACK_REFRESH_US = 50_000  # sorting 1,024 numbers takes 73 us
SLACK_QUANTILE = 0.1  # the most urgent tenth sets the pace: an application with half the time must not always be late
# How long a batch may keep the event loop from its other work. A thread would not spare the loop this time either. A
# model that is mostly Python holds the lock, for which the loop's thread waits up to 5 ms. Handing a batch to a thread
# and its results back takes 100 to 150 us of CPU and two thread switches, which a busy machine may delay.
QUICK_US = 1_000
# Before anything was measured: the batch latency objective that Clipper was evaluated with (NSDI'17).
DEFAULT_OBJECTIVE_US = 20_000
# A smaller objective would only measure the clock. It would appear when queries arrive with hardly any time left.
MIN_OBJECTIVE_US = 1_000


class ServiceTimes:
    """Predicts how long a batch takes, from the last batches of like size (1, 2-3, 4-7, 8-15, ... rows)."""

    def __init__(self) -> None:
        self._batches = 0
        self._buckets: dict[int, deque[tuple[int, int]]] = {}  # (number of the batch, us)
        self._usual: dict[int, int] = {}
        self.least_us = 0  # usual time of the fastest size: the cost of a call, however few its rows

    def observe(self, rows: int, duration_us: int) -> None:
        """Take the time that a batch of `rows` took."""
        samples = self._buckets.setdefault(rows.bit_length(), deque(maxlen=SAMPLES))
        self._batches += 1
        samples.append((self._batches, duration_us))
        self._usual[rows.bit_length()] = sorted([took_us for _, took_us in samples])[len(samples) // 2]
        self.least_us = min(self._usual.values())

    def predict(self, rows: int) -> int:
        """Return the time (us) to expect of a batch of `rows`; 0 before the first batch.

        A size that was not run lately takes at least the time of the next smaller one. The AIMD cap grows by little, so
        this is seldom needed. Without a smaller one it is `usual`.
        """
        since = self._batches - REMEMBERED
        for bucket in sorted(self._buckets, reverse=True):
            samples = self._buckets[bucket]
            if bucket <= rows.bit_length() and samples[-1][0] > since:
                return p99(took_us for number, took_us in samples if number > since)
        return self.usual(rows)

    @property
    def largest(self) -> tuple[int, int]:
        """The fewest rows of the largest size that was run, and its usual time (us); (0, 0) before the first batch."""
        bucket = max(self._usual, default=0)
        return (1 << bucket - 1, self._usual[bucket]) if bucket else (0, 0)

    def usual(self, rows: int) -> int:
        """Return the time (us) that a batch of `rows` usually takes: the median of its size; 0 before the first batch.

        For a size never run it is the time of the next smaller size, scaled by the rows. Without a smaller one it is
        the time of the next larger size.
        """
        bucket = rows.bit_length()
        found = self._usual.get(bucket)
        if found is not None or not self._usual:
            return found or 0
        nearest = max((known for known in self._usual if known < bucket), default=0)
        if nearest:
            return self._usual[nearest] * rows >> nearest - 1  # the fewest rows of a size are a power of two
        return self._usual[min(self._usual)]


class Slack:
    """How much time queries have left when they are fetched: a low quantile, at its best value of the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=SLACKS)  # (fetched_us, slack_us)
        self._objective_us = DEFAULT_OBJECTIVE_US
        self._refresh_us = 0
        self._best: deque[tuple[int, int]] = deque()  # (when measured, objective), us: each the most since

    def observe(self, dues_us: Sequence[int], fetched_us: int) -> None:
        """Take the due times of fetched queries; those that came too late already are ignored."""
        step = max(1, len(dues_us) // SLACKS_A_POLL)
        self._samples.extend([(fetched_us, due_us - fetched_us) for due_us in dues_us[::step] if due_us > fetched_us])

    def objective(self, now_us: int) -> int:
        """Return how long a batch may take (us): half of the slack, because a batch may have to wait for another.

        The slack is the best value within `SLACK_MEMORY_US`.
        """
        if now_us >= self._refresh_us:
            self._refresh_us = now_us + SLACK_REFRESH_US
            measured_us = self._measured(now_us)
            self._objective_us = DEFAULT_OBJECTIVE_US if measured_us is None else self._most(measured_us, now_us)
        return self._objective_us

    def _most(self, measured_us: int, now_us: int) -> int:
        """Return the largest value measured lately."""
        best = self._best
        while best and best[-1][1] <= measured_us:
            best.pop()
        best.append((now_us, measured_us))
        while best[0][0] < now_us - SLACK_MEMORY_US:
            best.popleft()
        return best[0][1]

    def _measured(self, now_us: int) -> int | None:
        samples = self._samples
        while samples and samples[0][0] < now_us - (
            SLACK_WINDOW_US if len(samples) > SLACKS_AT_LEAST else SLACK_HORIZON_US
        ):
            samples.popleft()
        if not samples:
            return None
        slacks = sorted([slack for _, slack in samples])
        return max(MIN_OBJECTIVE_US, slacks[int(SLACK_QUANTILE * len(slacks))] // 2)
