"""Which rows give way when more waits than can be in time: those that take longest, until the others can be.

To run first what is due first, and to drop the longest so far whenever a row would be late, keeps the most rows in time
(Moore and Hodgson, 1968). That refuses what comes too much at once, instead of whatever is due when the time is gone. A
row is reckoned to take its share of the largest batch that its model's rows fill, so nothing gives way that larger
batches could have kept.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush, merge
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from workers.kernel.schedule.profiles import class_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workers.kernel.schedule.contract import Queue
    from workers.kernel.schedule.profiles import Profiles

# Rows that are looked at, those that are due first: a bound on what a decision costs.
MOST: Final = 256


class _Waits(NamedTuple):
    """What waits for one model: when each row is due, and what a row takes (us)."""

    dues_us: Sequence[int]
    row_us: float
    work_us: float


class Excess:
    """The work that waits for models in memory."""

    def __init__(self, profiles: Profiles, lanes: int) -> None:
        """Start with none; `profiles` say what batches take, of which `lanes` run at a time."""
        self._profiles = profiles
        self._lanes = lanes
        self._waits: dict[str, _Waits] = {}
        self._work_us = 0.0

    def changed(self, queue: Queue, *, counts: bool) -> None:
        """Take what now waits for a model, unless it does not count."""
        if (known := self._waits.pop(queue.model, None)) is not None:
            self._work_us -= known.work_us
        if queue.dues_us and queue.is_resident and counts:
            work_us = self._takes_us(queue)
            self._waits[queue.model] = _Waits(queue.dues_us, work_us / len(queue.dues_us), work_us)
            self._work_us += work_us

    def surplus(self, first_us: int, free_us: int) -> Mapping[str, int]:
        """Return how many rows of which models have to give way.

        Args:
            first_us: no row has to start before; if all is over by then, all are in time.
            free_us: when a lane is free.
        """
        if len(self._waits) < 2 or self._work_us <= self._lanes * (first_us - free_us):
            return {}
        due = merge(*([(due_us, name) for due_us in waits.dues_us[:MOST]] for name, waits in self._waits.items()))
        end_us, kept, found = float(free_us), list[tuple[float, str]](), Counter[str]()
        for due_us, name in islice(due, MOST):
            row_us = self._waits[name].row_us / self._lanes
            heappush(kept, (-row_us, name))
            end_us += row_us
            if end_us > due_us:
                less_us, dearest = heappop(kept)
                end_us += less_us
                found[dearest] += 1
        return found

    def _takes_us(self, queue: Queue) -> float:
        """Return what rows take in the largest batches, or one by one."""
        times, rows = self._profiles.of(queue.model).by_class, len(queue.dues_us)
        whole, rest = divmod(rows, queue.cap)
        in_batches = whole * times[class_of(queue.cap)] + (times[class_of(rest)] if rest else 0)
        return float(min(rows * times[0], in_batches))
