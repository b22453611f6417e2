"""`aimd`: grow the batch by a little while it is fast enough, shrink it by a tenth or two when it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policies.errors import require
from policies.lingering import Lingering

# A batch this far over the objective costs two steps: with one, a model that turns twice as slow breaks it for nine
# batches, with two for five (5 ms and 0.1 ms a row, under 20 ms).
_FAR_OVER = 1.15
# Below this part of the objective the cap grows by a factor of at most its inverse, which cannot pass the objective
# where time is a + b * rows.
_FAR_BELOW = 0.5


@dataclass(frozen=True, slots=True)
class Aimd(Lingering):
    """Additive increase, multiplicative decrease of the cap on one take. The state is the cap, 1 at first.

    A take that *filled the cap* and took less than the objective less the dead band raises the cap by `add`, one that
    took less than half of the objective by 1 / `backoff` if that is more: TCP's slow start, without which 4,000 rows of
    a cheap model are 2,000 batches away instead of 60. Inside the dead band nothing changes; any take above the
    objective lowers the cap by the factor `backoff`, and one that is far above it does so twice. Only full takes raise
    it: Clipper adjusted the size of the last batch instead, so under light load its cap fell to that and had to climb
    again. A pause (garbage collection, a neighbour) costs two steps down, however long it was, which a few full takes
    make good.

    With time a + b * rows the cap settles within `add` above (objective * (1 - dead_band) - a) / b.

    Args:
        add: Rows added, at least 1.
        backoff: Factor, in (0, 1).
        dead_band: Part of the objective below it in which nothing changes, in [0, 1).
        max_rows: The cap never passes this.
        linger_ms: A free model waits at most so long for a full batch; 0 = it never waits.

    Examples:
        >>> aimd = Aimd()
        >>> aimd.observe(10, rows=10, duration_us=5_000, objective_us=20_000)
        12
        >>> aimd.observe(100, rows=3, duration_us=21_000, objective_us=20_000)
        90

    References:
        Crankshaw et al., Clipper, NSDI 2017, section 4.3; the parameters are those of its prototype.
        Jacobson, Congestion Avoidance and Control, SIGCOMM 1988: slow start.
    """

    name: ClassVar[str] = "aimd"

    add: int = 2
    backoff: float = 0.9
    dead_band: float = 0.1
    max_rows: int = 4096

    def __post_init__(self) -> None:
        """Check the parameters."""
        self.require_linger(self.name)
        require(self.add >= 1, f"aimd: add is {self.add}; it must be at least 1")
        require(0.0 < self.backoff < 1.0, f"aimd: backoff is {self.backoff}; it must lie between 0 and 1, 0.9 is usual")
        require(
            0.0 <= self.dead_band < 1.0, f"aimd: dead_band is {self.dead_band}; it must lie in [0, 1), 0.1 is usual"
        )
        require(self.max_rows >= 1, f"aimd: max_rows is {self.max_rows}; it must be at least 1")

    def init(self) -> int:
        """Return a cap of one row."""
        return 1

    def cap(self, state: int) -> int:
        """Return the cap."""
        return state

    def observe(self, state: int, rows: int, duration_us: int, objective_us: int) -> int:
        """Return the cap after one batch."""
        if duration_us > objective_us:
            factor = self.backoff**2 if duration_us > objective_us * _FAR_OVER else self.backoff
            return max(1, int(state * factor))
        if rows < state or duration_us >= objective_us * (1.0 - self.dead_band):
            return state
        raised = state + self.add
        if duration_us < objective_us * _FAR_BELOW:
            raised = max(raised, int(state * min(1 / self.backoff, 1 / _FAR_BELOW)))
        return min(raised, self.max_rows)
