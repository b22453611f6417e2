"""Evidence by who asks: what one context cost while its draw stands is one value, however often it asked.

Its losses are alike, and one draw decides which version they are of. Taken one by one they would look like so many
independent ones, and bounds would be too narrow. So the mean counts of what a unit, a context and its draw, has cost in
its first hour. Later losses under the same draw tell no more about the draw, and are left out; with the next period
the context is drawn anew, and is a unit of its own again.

    first loss ── one hour ──▶ closed: its mean is one value          kept: which units were, `MOST_UNITS` of them

Where more than `MOST_OPEN` ask within an hour, those who began first are closed sooner. When that is follows from how
many others have come, and from nothing that they cost.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from policies.assignment import unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from schemas.records import Measurement, Observation

# Long enough for a visit, and short enough for a bad candidate to be noticed.
UNIT_US: Final = 3_600_000_000
# Of an application, at about 100 bytes each. With more, those closed longest ago may count once more.
MOST_UNITS: Final = 200_000
# Of an application, at about half a KiB each.
MOST_OPEN: Final = 20_000
U = TypeVar("U")


class _OpenUnit(NamedTuple, Generic[U]):
    begun_us: int
    content: U


class Units(Generic[U]):
    """Units of one application, in order of their first losses; those of a partition come in its order.

    Args:
        make: returns what gathers the losses of one, in as many bytes however many there are.
    """

    __slots__ = ("_again_us", "_closed", "_make", "_newest_us", "_open")

    def __init__(self, make: Callable[[], U]) -> None:
        self._make = make
        self._open: OrderedDict[int, _OpenUnit[U]] = OrderedDict()
        self._closed: OrderedDict[int, None] = OrderedDict()
        self._newest_us = self._again_us = 0

    @property
    def waiting(self) -> int:
        """How many are not closed yet."""
        return len(self._open)

    @property
    def is_spent(self) -> bool:
        """Whether all who asked within the last hour of the log had been counted: as long as their draws stand."""
        return self._again_us - self._newest_us > UNIT_US

    def of(self, seen: Observation | Measurement, timestamp_us: int) -> U | None:
        """Return what gathers the losses of a query's unit; None: it is closed."""
        key = hash(unit(seen.context, seen.episode, seen.drawn))
        if key in self._closed:
            self._again_us = timestamp_us
            return None
        found = self._open.get(key)
        if found is None:
            self._newest_us = timestamp_us
            found = self._open[key] = _OpenUnit(timestamp_us, self._make())
        return found.content

    def close(self, timestamp_us: int) -> Iterator[U]:
        """Close and yield units that began an hour before, and the oldest of too many."""
        while self._open:
            key, first = next(iter(self._open.items()))
            if timestamp_us - first.begun_us < UNIT_US and len(self._open) <= MOST_OPEN:
                return
            del self._open[key]
            self._closed[key] = None
            if len(self._closed) > MOST_UNITS:
                self._closed.popitem(last=False)
            yield first.content
