"""How far a role was with a partition, second by second: what it had passed long before the end, it was done with."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

_SECOND_US = 1_000_000
# Between two marks a role counts as present for so long at most: it may have been away for the rest.
_PRESENT_S = 10


class Marks:
    """Marks by time, each with a place that rises; one a second is kept."""

    __slots__ = ("_places", "_seconds")

    def __init__(self) -> None:
        self._seconds: list[int] = []
        self._places: list[int] = []

    def add(self, time_us: int, place: int) -> None:
        """Note a place that has been passed by then; what is told late counts as passed late."""
        second = time_us // _SECOND_US + 1
        if not self._seconds or second > self._seconds[-1]:
            self._seconds.append(second)
            self._places.append(max(place, self._places[-1] if self._places else place))
        else:
            self._places[-1] = max(place, self._places[-1])

    def settled_us(self, present_us: int) -> int:
        """Return the latest time after which the role has been present for so long; 0 if there is none."""
        left_s = present_us / _SECOND_US
        for later, earlier in pairwise(reversed(self._seconds)):
            left_s -= min(later - earlier, _PRESENT_S)
            if left_s <= 0:
                return earlier * _SECOND_US
        return 0

    def passed(self, until_us: int) -> int:
        """Return the highest place that had been passed by a time; -1 if none had."""
        number = bisect_right(self._seconds, until_us // _SECOND_US)
        return self._places[number - 1] if number else -1
