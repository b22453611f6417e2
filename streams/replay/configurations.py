"""The applications and models as they changed in a trace, and a kernel that is moved along them.

records of `applications`, `models`    r1      r2 r3            r4
epoch                               0  │   1   │2│      3       │  4
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Generic, TypeVar

from schemas import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streams.operators.contract import Operator, Record

K = TypeVar("K", bound="Operator")

_NEAR_US = 5_000_000
_CANDIDATES = 16


class Timeline:
    """The records of configuration in order of time.

    Args:
        records: of configuration.
        near_us: how much later than it was written a role may have followed a change, and how far clocks may disagree.
    """

    __slots__ = ("_near_us", "_times", "records")

    def __init__(self, records: Iterable[Record], near_us: int = _NEAR_US) -> None:
        self._near_us = near_us
        # Stable: what was written at one time stays in order.
        self.records = sorted(records, key=lambda record: record.timestamp_us)
        self._times = [record.timestamp_us for record in self.records]

    def at(self, time_us: int) -> int:
        """Return the epoch of a time: how many records had been written."""
        return bisect_right(self._times, time_us)

    def near(self, time_us: int) -> Iterator[int]:
        """Yield the epochs that a role may have been in at a time, other than `at`, the nearest first."""
        here = self.at(time_us)
        first, last = (bisect_right(self._times, time_us + apart_us) for apart_us in (-self._near_us, self._near_us))
        others = [epoch for epoch in range(first, last + 1) if epoch != here]
        yield from sorted(others, key=lambda epoch: abs(epoch - here))[:_CANDIDATES]

    def knows(self, application: str, epoch: int) -> bool:
        """Tell whether an application was configured."""
        record = self.application(application, epoch)
        return record is not None and record.value is not None

    def application(self, name: str, epoch: int) -> Record | None:
        """Return the record that an application's configuration was in."""
        key = name.encode()
        before = reversed(self.records[:epoch])
        return next((record for record in before if record.topic == topics.APPLICATIONS and record.key == key), None)


class Configured(Generic[K]):
    """A kernel in some epoch.

    Args:
        timeline: that it follows.
        make: a kernel that knows nothing.
    """

    __slots__ = ("_epoch", "_kernel", "_make", "_timeline")

    def __init__(self, timeline: Timeline, make: Callable[[], K]) -> None:
        self._timeline = timeline
        self._make = make
        self._epoch = 0
        self._kernel = make()

    def at(self, epoch: int) -> K:
        """Return the kernel as it is configured in an epoch."""
        if epoch < self._epoch:
            self._epoch, self._kernel = 0, self._make()
        for record in self._timeline.records[self._epoch : epoch]:
            self._kernel.on_records([record], record.timestamp_us)
        self._epoch = epoch
        return self._kernel
