"""Queries that take long, a bounded part of them in a turn; the application that has had least goes first.

    many look-ups ─────┐ at once, where this turn has room and nobody waits
    their features came┴─▶ FairQueue ─▶ on the timer: so many look-ups a turn ─▶ looked up, ranked, or too late

A query with hundreds of candidates takes as long as a hundred others. One after the other, such queries would make
everybody late; so others wait for one turn of them at most, and a turn is so many look-ups or one query of more.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from schemas.records import Tensor
from streams.operators.configuration import CANDIDATE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from streams.operators.configuration import Deployed
    from streams.operators.selection.features.lookup import FeatureWait
    from streams.operators.selection.pending import Pending

# Look-ups of a turn: as long as a slice of records at 10 to 30 us each (`Role.at_once`).
TURN = 512
# The default answer to one that has waited too long takes as long as so many.
_LATE = 8


class Job(NamedTuple):
    """What is to be done: a query's features are to be looked up, or, where it has waited for them, completed.

    Those are first whose answer must leave first (us); `serial` tells jobs apart.
    """

    until_us: int
    serial: int
    look_ups: int
    query: Pending
    deployed: Deployed
    wait: FeatureWait | None


class FairQueue:
    """Jobs by application."""

    __slots__ = ("_had", "_jobs", "_serial", "room")

    def __init__(self) -> None:
        self._jobs: dict[str, list[Job]] = {}  # heaps
        self._had: dict[str, int] = {}  # look-ups, since somebody waits
        self._serial = count()
        self.room = 0

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def begin(self) -> None:
        """Begin a turn; where jobs wait, it is theirs."""
        self.room = 0 if self._jobs else TURN

    def admits(self, query: Pending, deployed: Deployed, wait: FeatureWait | None = None) -> bool:
        """Tell whether this turn has room for a query; else it waits for a later one."""
        look_ups = look_ups_of(query, deployed)
        if look_ups == 0:
            return True
        if self.room > 0:
            self.room -= look_ups
            return True
        query.keep_input()
        name = query.application_name
        if name not in self._jobs:
            self._had[name] = max(self._had.get(name, 0), min([self._had[each] for each in self._jobs], default=0))
        heappush(
            self._jobs.setdefault(name, []),
            Job(query.until_us, next(self._serial), look_ups, query, deployed, wait),
        )
        return False

    def take(self, now_us: int) -> Iterator[Job]:
        """Remove and yield the jobs of one turn."""
        room = TURN
        while room > 0 and self._jobs:
            name = min(self._jobs, key=self._had.__getitem__)
            job = heappop(self._jobs[name])
            look_ups = job.look_ups if job.until_us > now_us else _LATE
            room -= look_ups
            self._had[name] += look_ups
            if not self._jobs[name]:
                del self._jobs[name]
            yield job
        if not self._jobs:
            self._had.clear()

    def drop(self, partitions: Collection[int]) -> list[Pending]:
        """Remove and return the queries of these partitions."""
        gone: list[Pending] = []
        for name, jobs in [*self._jobs.items()]:
            gone += [job.query for job in jobs if job.query.partition in partitions]
            self._jobs[name] = [job for job in jobs if job.query.partition not in partitions]
            heapify(self._jobs[name])
            if not self._jobs[name]:
                del self._jobs[name]
        return gone


def look_ups_of(query: Pending, deployed: Deployed) -> int:
    """Return how many look-ups a query takes: one for each candidate, in each source that has features of them."""
    if isinstance(query.candidates, Tensor) and not query.ids:
        return query.candidates.shape[0]
    return len(query.ids) * max(1, sum([source.key == CANDIDATE for source in deployed.application.sources]))
