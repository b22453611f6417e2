"""Estimates for the batcher: how long a batch will take, and how long one may take. Pure; `now` is an argument."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Clockwork (OSDI'20) predicts a batch by the 99th percentile of the last 10 of the same size: of 10, the largest.
SAMPLES = 10
# For so many batches one is reckoned with: rows are dropped rather than taken in a batch of a size that was slow, so
# what a pause (a neighbour, the collector) made slow would never be tried again.
REMEMBERED = 50
# Slacks remembered, and how many of one poll (a fast one brings thousands that are all alike).
SLACKS = 1024
SLACKS_A_POLL = 8
# What came within the last second tells how things are; where that is little, what came before, back to half a minute.
SLACK_WINDOW_US = 1_000_000
SLACK_HORIZON_US = 30_000_000
SLACKS_AT_LEAST = 64
# Where everything is late for a while, batches stay as large as they were: made smaller they would take more time for
# each row, and all that shares the machine would stay late (forest of 30 trees, 12,000 rows/s due in 50 ms, two cores:
# 6,500 in time without this memory, 10,000 with 5 s of it). After 5 s of overload, or of silence, one stretch in ten
# ended at batches of one to three rows all the same (4,000 rows/s due in 20 ms: 528 in time, else 2,000).
SLACK_MEMORY_US = 30_000_000
SLACK_REFRESH_US = 50_000  # sorting 1,024 numbers takes 73 us
SLACK_QUANTILE = 0.1  # the hurried tenth sets the pace: an application with half the time must not always be late
# What the event loop may be kept from its other work at a time. A thread would not free it for so long either: a model
# that is mostly Python holds the lock, for which the loop's thread waits up to 5 ms; and to hand a batch to a thread
# and its results back takes 100 to 150 us of CPU and two changes of threads, each of which a busy machine may put off.
QUICK_US = 1_000
# Before anything was measured: the batch latency objective that Clipper was evaluated with (NSDI'17).
DEFAULT_OBJECTIVE_US = 20_000
# An objective below this only measures the clock; it appears when queries arrive with next to no time left.
MIN_OBJECTIVE_US = 1_000


class ServiceTimes:
    """Predicts how long a batch takes, from the last batches of like size (1, 2-3, 4-7, 8-15, ... rows)."""

    def __init__(self) -> None:
        self._batches = 0
        self._buckets: dict[int, deque[tuple[int, int]]] = {}  # (number of the batch, us)
        self._usual: dict[int, int] = {}
        self.least_us = 0  # what the fastest size usually takes: what a call costs, however few its rows

    def observe(self, rows: int, duration_us: int) -> None:
        """Take the time that a batch of `rows` took."""
        samples = self._buckets.setdefault(rows.bit_length(), deque(maxlen=SAMPLES))
        self._batches += 1
        samples.append((self._batches, duration_us))
        self._usual[rows.bit_length()] = sorted(took_us for _, took_us in samples)[len(samples) // 2]
        self.least_us = min(self._usual.values())

    def predict(self, rows: int) -> int:
        """Return the time (us) to reckon with for a batch of `rows`.

        For a size that was not run lately, that of the next smaller one is the least it can take; the AIMD cap grows by
        little, so it is seldom asked. Where there is none, what it takes as a rule; 0 before the first batch.
        """
        since = self._batches - REMEMBERED
        for bucket in sorted(self._buckets, reverse=True):
            samples = self._buckets[bucket]
            if bucket <= rows.bit_length() and samples[-1][0] > since:
                return max(took_us for number, took_us in samples if number > since)
        return self.usual(rows)

    def usual(self, rows: int) -> int:
        """Return the time (us) that a batch of `rows` takes as a rule: the median of its size.

        For a size never run, that of the next smaller one with as much more as there are more rows; without that the
        next larger one's. 0 before the first batch.
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
    """How much time queries have left when they are fetched: a low quantile, as it was at best within some seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=SLACKS)  # (fetched_us, slack_us)
        self._objective_us = DEFAULT_OBJECTIVE_US
        self._refresh_us = 0
        self._best: deque[tuple[int, int]] = deque()  # (when measured, objective), us: each the most since

    def observe(self, dues_us: Sequence[int], fetched_us: int) -> None:
        """Take the due times of what was fetched; what came too late already says nothing about the usual."""
        step = max(1, len(dues_us) // SLACKS_A_POLL)
        self._samples.extend((fetched_us, due_us - fetched_us) for due_us in dues_us[::step] if due_us > fetched_us)

    def objective(self, now_us: int) -> int:
        """Return how long a batch may take (us): half of the slack, as one batch may have to wait for another.

        Of the slack as it was at its best within `SLACK_MEMORY_US`.
        """
        if now_us >= self._refresh_us:
            self._refresh_us = now_us + SLACK_REFRESH_US
            measured_us = self._measured(now_us)
            self._objective_us = DEFAULT_OBJECTIVE_US if measured_us is None else self._most(measured_us, now_us)
        return self._objective_us

    def _most(self, measured_us: int, now_us: int) -> int:
        """Return the most that was measured lately."""
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
        slacks = sorted(slack for _, slack in samples)
        return max(MIN_OBJECTIVE_US, slacks[int(SLACK_QUANTILE * len(slacks))] // 2)
