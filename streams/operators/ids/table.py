"""Ids, each with a time, by the million: 16 to 40 bytes an id where Skysail has been compiled, else some 180.

Ids are what has been decoded: valid UTF-8. Compiled (`id_times.pyx`) and in Python they are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

__all__ = ["SECOND_US", "IdTimes", "PythonIdTimes", "seconds", "seconds_up"]

SECOND_US = 1_000_000
_LAST = 2**32 - 1
_SMALLEST = 768  # ids before the first are left out


class PythonIdTimes:
    """What `id_times.IdTimes` is, without a compiler. Times are whole numbers over 0, under 2**32: seconds."""

    __slots__ = ("_limit", "_times")

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._limit = _SMALLEST

    def find(self, name: str) -> int:
        """Return the time of an id; 0 = there is none."""
        return self._times.get(name, 0)

    def put(self, name: str, time: int, oldest: int) -> int:
        """Give an id a time; returns the one it had.

        Args:
            name: the id.
            time: whole seconds.
            oldest: ids whose time is before may be left out from now on.
        """
        before = self._times.get(name, 0)
        self._times[name] = time
        if len(self._times) > self._limit:
            self._times = {kept: at for kept, at in self._times.items() if at >= oldest}
            self._limit = max(_SMALLEST, 2 * len(self._times))
        return before


if TYPE_CHECKING:
    from streams.operators.ids.id_times import IdTimes
else:
    try:
        from streams.operators.ids.id_times import IdTimes
    except ImportError:
        IdTimes: Final = PythonIdTimes


def seconds(time_us: int) -> int:
    """Return the second that a time lies in, as a time of `IdTimes`: a wrong clock may say anything."""
    second = time_us // SECOND_US
    return second if 0 < second <= _LAST else max(1, min(second, _LAST))


def seconds_up(time_us: int) -> int:
    """Return the second that begins then, or next; likewise."""
    second = -(-time_us // SECOND_US)
    return second if 0 < second <= _LAST else max(1, min(second, _LAST))
