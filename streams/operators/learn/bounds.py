"""How far a lesson teaches, where an application bounds what one teacher and one context may teach within a minute.

    lessons of one teacher    1 ... most            teach
                              more                  teach nothing
    those of one context      1 ... most_context    teach the context's own state, and what all contexts share
                              more                  teach the context's own state alone, if it has one

A minute is one of the log: by timestamps of records, which the broker gives. Every observation of it counts, copies
too. So how far a lesson teaches follows from that minute of the log alone, and a learner that starts anew reads it
back. It depends on lessons of the same teacher, and on nobody else's: who stays below the bound teaches as if there
were none, whatever others send.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from streams.operators.ids import IdTimes

if TYPE_CHECKING:
    from schemas.records import Observation

MINUTE_US: Final = 60_000_000
_BETWEEN: Final = "\0"  # names, which have none
_KEEP_ALL: Final = 1  # the least count


class Reach(enum.Enum):
    """What a lesson teaches."""

    ALL = "all"  # as if there were no bound
    OWN = "context"  # its context's state alone
    NOTHING = "teacher"


class LessonCounts:
    """Lessons of one partition in the minute of the log that was read last."""

    __slots__ = ("_counts", "_minute")

    def __init__(self) -> None:
        self._minute = 0
        self._counts = IdTimes()

    def reach(self, seen: Observation, timestamp_us: int) -> Reach:
        """Count an observation of the log, and return how far it teaches.

        Args:
            seen: the next one, copies included.
            timestamp_us: its record's.
        """
        bound = seen.bound
        if bound is None:
            return Reach.ALL
        counts, teacher = self.at(timestamp_us), f"{seen.application}{_BETWEEN}{bound.teacher}"
        if bound.most and _counted(counts, teacher) > bound.most:
            return Reach.NOTHING
        if not bound.most_context or seen.context is None:
            return Reach.ALL
        if _counted(counts, f"{teacher}{_BETWEEN}{seen.context}") <= bound.most_context:
            return Reach.ALL
        return Reach.NOTHING if seen.decision.state == seen.application else Reach.OWN

    def at(self, timestamp_us: int) -> IdTimes:
        """Return how many lessons there were in a minute by name: of teachers, and of contexts behind their teachers.

        Args:
            timestamp_us: of a record in it; one of an earlier minute counts in the latest.
        """
        if (minute := timestamp_us // MINUTE_US) > self._minute:
            self._minute, self._counts = minute, IdTimes()
        return self._counts


def _counted(counts: IdTimes, name: str) -> int:
    count = counts.find(name) + 1
    counts.put(name, count, _KEEP_ALL)
    return count
