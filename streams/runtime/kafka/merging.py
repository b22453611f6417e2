"""How long a broker gathers records for one fetch: the more come, the longer, because a request has its price.

    records a second   below 1,000   1,000   2,000   3,000 ...
    wait               none           1 ms    2 ms    3 ms ... at most `merge_ms`

Below 1,000 a record would wait for others that do not come. From there on a request costs more than what it carries:
some tenths of a millisecond of CPU, in role and broker each. Measured on two cores that broker and sender share, 0 and
3 ms, CPU of roles and broker a query, p50 and p99:

    one process, 3,000/s     302 → 229 us   3.4 → 4.1 ms    8.6 → 10 ms
    one process, 10,000/s    121 →  86 us   3.2 → 4.9 ms     27 → 21 ms
    five processes, 3,000/s  517 → 351 us   7.4 → 7.9 ms     33 → 15 ms
    five processes, 10,000/s 166 → 136 us    13 → 9.2 ms    105 → 35 ms
"""

from __future__ import annotations

from typing import Final, NamedTuple

LEAST_PER_S: Final = 1_000.0
# As many bytes are a full request: a broker that has them waits for no more.
FULL_BYTES: Final = 256 << 10
# The rate is that of so long, or longer: of some hundred requests at the least rate.
WINDOW_S: Final = 0.25


class Merging(NamedTuple):
    """How a broker is to gather: for so long (ms), or until there are so many bytes."""

    wait_ms: int
    least_bytes: int


NONE: Final = Merging(0, 1)


def merging(per_s: float, bytes_per_s: float, most_ms: int) -> Merging:
    """Return how a broker is to gather records that come at this rate.

    Args:
        per_s: records.
        bytes_per_s: of them.
        most_ms: the longest wait; 0 = none at any rate.
    """
    wait_ms = min(int(per_s / LEAST_PER_S), most_ms)
    if wait_ms < 1:
        return NONE
    return Merging(wait_ms, max(1, min(int(bytes_per_s * wait_ms / 1e3), FULL_BYTES)))


class ArrivalRate:
    """Records and bytes a second, as they were taken.

    Attributes:
        per_s: records in the latest window; 0 before the first has ended.
        bytes_per_s: of them.
    """

    __slots__ = ("_bytes", "_count", "_since_s", "bytes_per_s", "per_s")

    def __init__(self) -> None:
        self.per_s = self.bytes_per_s = 0.0
        self._since_s: float | None = None
        self._count = self._bytes = 0

    def add(self, count: int, size: int, now_s: float) -> None:
        """Note records that have been taken, and their bytes; after a silence the rate is low at once."""
        if self._since_s is None:
            self._since_s = now_s  # what has come before the first window is not of it
            return
        self._count += count
        self._bytes += size
        took_s = now_s - self._since_s
        if took_s >= WINDOW_S:
            self.per_s, self.bytes_per_s = self._count / took_s, self._bytes / took_s
            self._since_s, self._count, self._bytes = now_s, 0, 0
