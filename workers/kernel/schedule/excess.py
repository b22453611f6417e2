"""Which rows give way when more waits than can be in time: those that take longest, until the others can be.

To run first what is due first, and to drop the longest so far whenever a row would be late, keeps the most rows in time
(Moore and Hodgson, 1968). That refuses what comes too much at once, instead of whatever is due when the time is gone. A
row is reckoned to take its share of the largest batch that its model's rows fill, so nothing gives way that larger
batches could have kept.

Where all rows are in time, it is remembered by how much, and looked again when more work has come, or time has gone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from workers.kernel.schedule.profiles import class_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workers.kernel.schedule.contract import Queue
    from workers.kernel.schedule.profiles import Profiles

# Rows that are looked at, those that are due first: a bound on what a decision costs.
MOST: Final = 256


class _Waits(NamedTuple):
    """What waits for one model: when each row is due, what a row takes (us), how many rows, when the first is due."""

    dues_us: Sequence[int]
    row_us: float
    rows: int
    first_us: int

    @property
    def work_us(self) -> float:
        """What all rows take."""
        return self.row_us * self.rows


class _Spare(NamedTuple):
    """What was left when all rows were in time.

    Attributes:
        left_us: by how much more work, or a later beginning, would have been in time.
        free_us: when a lane was free then.
        first_us: when the first row was due: what comes before it is not told by the others.
    """

    left_us: float
    free_us: int
    first_us: int


_NONE: Final = _Spare(-1.0, 0, 0)


class Excess:
    """The work that waits for models in memory."""

    def __init__(self, profiles: Profiles, lanes: int) -> None:
        """Start with none; `profiles` say what batches take, of which `lanes` run at a time."""
        self._profiles = profiles
        self._lanes = lanes
        self._waits: dict[str, _Waits] = {}
        self._firsts: list[tuple[int, str]] = []  # when the first row of each model is due, rising
        self._work_us = 0.0
        self._spare = _NONE
        self._is_cut = False  # more waited then than was looked at
        self._grown_us = 0.0  # by how much the work has grown since then, at most

    def changed(self, queue: Queue, *, counts: bool) -> None:
        """Take what now waits for a model, unless it does not count."""
        known = self._waits.pop(queue.model, None)
        if known is not None:
            if self._is_cut and (len(queue.dues_us) < known.rows or queue.dues_us[0] > known.first_us):
                self._spare = _NONE  # where rows leave, others come into view
            self._work_us -= known.work_us
            del self._firsts[bisect_left(self._firsts, (known.first_us, queue.model))]
        if queue.dues_us and queue.is_resident and counts:
            rows, first_us = len(queue.dues_us), queue.dues_us[0]
            waits = self._waits[queue.model] = _Waits(queue.dues_us, self._takes_us(queue) / rows, rows, first_us)
            self._work_us += waits.work_us
            insort(self._firsts, (first_us, queue.model))
            self._grown_us += _grown_us(known, waits)
            if first_us < self._spare.first_us:
                self._spare = _NONE

    def surplus(self, first_us: int, free_us: int) -> Mapping[str, int]:
        """Return how many rows of which models have to give way.

        Args:
            first_us: no row has to start before; if all is over by then, all are in time.
            free_us: when a lane is free.
        """
        if len(self._waits) < 2 or self._work_us <= self._lanes * (first_us - free_us):
            return {}
        if free_us - self._spare.free_us + self._grown_us / self._lanes <= self._spare.left_us:
            return {}
        end_us, kept, found, left_us = float(free_us), list[tuple[float, str]](), Counter[str](), inf
        due = self._due_first()
        for due_us, name in due:
            row_us = self._waits[name].row_us / self._lanes
            heappush(kept, (-row_us, name))
            end_us += row_us
            if end_us > due_us:
                less_us, dearest = heappop(kept)
                end_us += less_us
                found[dearest] += 1
            left_us = min(left_us, due_us - end_us)
        self._spare = _NONE if found else _Spare(left_us, free_us, due[0][0])
        self._is_cut, self._grown_us = len(due) == MOST, 0.0
        return found

    def _due_first(self) -> list[tuple[int, str]]:
        """Return the rows that are due first, with their models."""
        firsts = self._firsts[:MOST]
        last_us = firsts[-1][0] if len(firsts) == MOST else inf  # so many rows are not due later
        found: list[tuple[int, str]] = []
        for first_us, name in firsts:
            dues_us = self._waits[name].dues_us
            if len(dues_us) == 1:
                found.append((first_us, name))
            else:
                found += [(due_us, name) for due_us in dues_us[:MOST] if due_us <= last_us]
        found.sort()
        return found[:MOST]

    def _takes_us(self, queue: Queue) -> float:
        """Return what rows take in the largest batches, or one by one."""
        times, rows = self._profiles.of(queue.model).by_class, len(queue.dues_us)
        whole, rest = divmod(rows, queue.cap)
        in_batches = whole * times[class_of(queue.cap)] + (times[class_of(rest)] if rest else 0)
        return float(min(rows * times[0], in_batches))


def _grown_us(before: _Waits | None, now: _Waits) -> float:
    """Return by how much more a model takes of what is done until any time, at most (us)."""
    if before is None:
        return now.work_us
    dearer_us = max(0.0, now.row_us - before.row_us) * min(before.rows, now.rows)
    return dearer_us + max(0, now.rows - before.rows) * now.row_us
