"""Queries whose predictions wait no longer, and how that came about: what later feedback on them means."""

from __future__ import annotations

import enum

from streams.operators.ids.table import SECOND_US, IdTimes, seconds_up


class How(enum.StrEnum):
    """How the waiting of a prediction ended; a text, as another enumeration's members cost 0.1 us to look up by."""

    JOINED = "joined"  # feedback has been joined with it
    OVER = "over"  # its window ended without feedback
    BEFORE = "before"  # one or the other, before this joiner began: the feedback's own time tells
    UNDECIDED = "undecided"  # it never waited: no model was chosen, so there is nothing to learn
    REFUSED = "refused"  # it never waited: there was no room


class Ended:
    """Query ids by how the waiting ended, each known for a while."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[How, IdTimes] = {}

    def put(self, how: How, query_id: str, until_us: int, oldest_s: int) -> None:
        """Know a query for so long.

        Args:
            how: its waiting ended.
            query_id: its id.
            until_us: how long it is known.
            oldest_s: `seconds` of now: what was to be known until then may be forgotten.
        """
        self.of(how).put(query_id, seconds_up(until_us), oldest_s)

    def of(self, how: How) -> IdTimes:
        """Return the queries whose waiting ended so, to put many."""
        known = self._known.get(how)
        if known is None:
            known = self._known[how] = IdTimes()
        return known

    def knows(self, query_id: str, now_s: int) -> bool:
        """Tell whether a query is known still."""
        for known in self._known.values():  # noqa: SIM110 - a generator would cost as much as the search
            if known.find(query_id) > now_s:
                return True
        return False

    def find(self, query_id: str, now_us: int) -> tuple[How, int] | None:
        """Return how a query's waiting ended and until when that is known (us); None if it is not."""
        now_s = now_us // SECOND_US
        for how, known in self._known.items():
            until_s = known.find(query_id)
            if until_s > now_s:
                return how, until_s * SECOND_US
        return None
