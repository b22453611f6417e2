"""Which observations are copies: ids of one window of event time."""

from __future__ import annotations

from collections import deque


class SeenIds:
    """Query ids with an observation in the last window of event time.

    A copy counts like the first: the set depends on the last window of the log alone, not on where reading began.
    """

    __slots__ = ("_ids", "_newest_us", "_order", "_window_us")

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._ids: dict[str, int] = {}  # when it was seen last
        self._order: deque[tuple[int, str]] = deque()
        self._newest_us = 0

    def add(self, query_id: str, time_us: int) -> bool:
        """Remember an id; tell whether it is the first inside the window."""
        if time_us > self._newest_us:
            self._move(time_us)
        newest_us, ids = self._newest_us, self._ids
        is_first = query_id not in ids
        ids[query_id] = newest_us
        self._order.append((newest_us, query_id))
        return is_first

    def _move(self, newest_us: int) -> None:
        """Move the window's end, and forget what lies before its begin."""
        self._newest_us = newest_us
        order, begin_us = self._order, newest_us - self._window_us
        while order and order[0][0] < begin_us:
            seen_us, gone = order.popleft()
            if self._ids.get(gone) == seen_us:
                del self._ids[gone]
