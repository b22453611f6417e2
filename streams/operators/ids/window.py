"""Which observations are copies: ids of one window of event time."""

from __future__ import annotations

from streams.operators.ids.table import IdTimes, seconds


class SeenIds:
    """Query ids with an observation in the last window of event time, which begins with a whole second.

    A copy counts like the first: the set depends on the last window of the log alone, not on where reading began.
    """

    __slots__ = ("_begin", "_newest", "_newest_us", "_times", "_window_us")

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._times = IdTimes()  # when each was seen last
        self._newest_us = 0
        self._newest = self._begin = 1  # the seconds of the window's end and begin

    def add(self, query_id: str, time_us: int) -> bool:
        """Remember an id; tell whether it is the first inside the window."""
        if time_us > self._newest_us:
            self._newest_us = time_us
            self._newest = seconds(time_us)
            self._begin = seconds(time_us - self._window_us)
        return self._times.put(query_id, self._newest, self._begin) < self._begin
