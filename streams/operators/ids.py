"""Sets of query ids with a time for each, by the million: they recognise duplicates.

    IdTimes      an id and a time: 16 to 54 bytes where Skysail is compiled (`id_times.pyx`), about 180 in Python
    RecentIds    the latest ids of each partition, for selection
    SeenIds      the ids in one window of event time, for the learner

Ids have been decoded, so they are valid UTF-8. The compiled table and the Python one behave alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from zlib import crc32  # not `hash`, which is another one in each process

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ID_BYTES", "SECOND_US", "IdTimes", "PythonIdTimes", "seconds", "seconds_up"]

SECOND_US = 1_000_000
_LAST = 2**32 - 1
_SMALLEST = 768  # ids before the first are left out

# Beside its generation, each id keeps a mark of its token. The mark tells a copy from another client's query under the
# same id, except for one in 4,096. The other bits of 32 are generations. After the last, 2 * 10**10 queries at 20,000
# each, every id is new.
MARKS = 1 << 12
# So many generations are left for ids that are added together.
SPARE = 1 << 16
_LAST_GENERATION = ((1 << 20) - 1 - SPARE) * MARKS


class PythonIdTimes:
    """`id_times.IdTimes` in Python, for use without a compiler. Times are seconds, from 1 to 2**32 - 1."""

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
    from streams.operators.id_times import IdTimes
else:
    try:
        from streams.operators.id_times import IdTimes
    except ImportError:
        IdTimes: Final = PythonIdTimes

# Memory of an id at most, beside that of a table which moves.
ID_BYTES = 180 if IdTimes.__name__ == PythonIdTimes.__name__ else 27


def seconds(time_us: int) -> int:
    """Return the second of a time, within the bounds of `IdTimes`, as a wrong clock may give any time."""
    second = time_us // SECOND_US
    return second if 0 < second <= _LAST else max(1, min(second, _LAST))


def seconds_up(time_us: int) -> int:
    """Return the second that begins at a time, or the next one; bounded as by `seconds`."""
    second = -(-time_us // SECOND_US)
    return second if 0 < second <= _LAST else max(1, min(second, _LAST))


@dataclass(slots=True)
class Generations:
    """The ids of one partition by generation, numbered from 2: the one before the first is not 0, which is none."""

    ids: IdTimes = field(default_factory=IdTimes)
    generation: int = 2 * MARKS
    size: int = 0  # of the latest generation


class RecentIds:
    """At least the last `capacity` ids of each partition, and at most twice as many: two generations."""

    __slots__ = ("_partitions", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._partitions: dict[int, Generations] = {}

    def add(self, partition: int, query_id: str, token: str = "") -> bool:
        """Remember an id; tell whether it is new.

        Args:
            partition: that it was read from.
            query_id: the id.
            token: of the client; an id seen with another token is new; "" = not given.
        """
        recent = self.of(partition)
        generation = recent.generation
        oldest, mark = generation - MARKS, crc32(token.encode()) % MARKS if token else 0
        known = recent.ids.put(query_id, generation + mark, oldest)
        if known >= oldest and known % MARKS == mark:
            if known < generation:  # a copy takes no room of its own: it stays where the first is
                recent.ids.put(query_id, known, oldest)
            return False
        recent.size += 1
        if recent.size >= self.capacity:
            recent.generation, recent.size = generation + MARKS, 0
        return True

    def of(self, partition: int) -> Generations:
        """Return the ids of a partition, for somebody who adds to them as `add` does, fewer than `SPARE` at a time."""
        recent = self._partitions.get(partition)
        if recent is None or recent.generation >= _LAST_GENERATION:
            recent = self._partitions[partition] = Generations()
        return recent

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the ids of these partitions."""
        for partition in partitions:
            self._partitions.pop(partition, None)


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
            self.move(time_us)
        return self._times.put(query_id, self._newest, self._begin) < self._begin

    def move(self, time_us: int) -> tuple[IdTimes, int, int]:
        """Move the window on, as `add` does.

        Returns:
            The table, the time to put ids with, and that before which they are not inside the window.
        """
        if time_us > self._newest_us:
            self._newest_us = time_us
            self._newest = seconds(time_us)
            self._begin = max(self._begin, seconds(time_us - self._window_us))
        return self._times, self._newest, self._begin
