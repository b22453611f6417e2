"""How much each model of a host is worth having in memory: the work that waits for it, or was refused lately.

    demand = rows * time of one row * capacity / time until loading must have started

That is Clockwork's formula (OSDI'20) for one host: a model that is not resident is worth all of its demand, because no
other host serves a part of it. The published code reckons that time once, when a query comes. Here it runs out, so that
a model that few ask is not put off until it is too late. Refused rows count for as long as a query would have waited.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from workers.kernel.schedule.contract import Queue
    from workers.kernel.schedule.profiles import Profiles

# Of the publication (us): over which demand is reckoned and remembered, its default objective; what is kept free for
# surprises; how far ahead it schedules; the longest time that loading may be put off.
CAPACITY_US: Final = 100_000
BUFFER_US: Final = 5_000
AHEAD_US: Final = 10_000
MOST_WEIGHTS_US: Final = 25_000
LEAST_US: Final = 1_000  # less time is not told apart


class Demand:
    """The demand of each model, in us of `CAPACITY_US`."""

    def __init__(self, profiles: Profiles) -> None:
        """Start with none; `profiles` say what executions and loading take."""
        self._profiles = profiles
        self._waiting: dict[str, tuple[int, int]] = {}  # work (us * `CAPACITY_US`), when loading must start (us)
        self._refused: dict[str, deque[tuple[int, int]]] = {}  # until when each counts (us), and how much

    def changed(self, queue: Queue) -> None:
        """Take what now waits for a model."""
        if queue.dues_us:
            row_us = self._profiles.estimate(queue.model, 1)
            until_us = queue.dues_us[0] - row_us - self._profiles.load_us(queue.model)
            self._waiting[queue.model] = row_us * CAPACITY_US * len(queue.dues_us), until_us
        else:
            self._waiting.pop(queue.model, None)

    def forget(self, model: str) -> None:
        """Forget a model."""
        self._waiting.pop(model, None)
        self._refused.pop(model, None)

    def refused(self, queue: Queue, rows: int, now_us: int) -> None:
        """Take that `rows` of those that waited are refused."""
        its = self._refused.setdefault(queue.model, deque())
        _forget_past(its, now_us)
        its.append((now_us + CAPACITY_US, self._of_row(queue) * rows))

    def of(self, model: str, now_us: int) -> int:
        """Return a model's demand."""
        work, until_us = self._waiting.get(model, (0, 0))
        left_us = until_us - now_us
        waiting = work // (max(left_us, LEAST_US) if left_us >= 0 else MOST_WEIGHTS_US)
        refused = self._refused.get(model)
        if refused is None:
            return waiting
        _forget_past(refused, now_us)
        if not refused:
            del self._refused[model]
        return waiting + sum(demand for _, demand in refused)

    def _of_row(self, queue: Queue) -> int:
        """Return the demand of one row."""
        row_us = self._profiles.estimate(queue.model, 1)
        objective_us = queue.dues_us[0] - queue.since_us
        spare_us = objective_us - (self._profiles.load_us(queue.model) + row_us + BUFFER_US + AHEAD_US)
        until_us = max(min(spare_us, MOST_WEIGHTS_US), AHEAD_US + BUFFER_US)
        return row_us * CAPACITY_US // until_us


def _forget_past(refused: deque[tuple[int, int]], now_us: int) -> None:
    """Drop what does not count any more."""
    while refused and refused[0][0] <= now_us:
        refused.popleft()
