"""`aimd`: grow the batch a little while it is fast enough; shrink it by a tenth or two when it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from policies.errors import require
from policies.fixed import Linger

# A batch this far over the objective costs two steps. With one, a model that becomes twice as slow breaks it for nine
# batches (5 ms and 0.1 ms a row, under 20 ms), with two for five.
_FAR_OVER = 1.08
# Below this part of the objective the cap grows by a factor of at most its inverse, which cannot pass the objective
# where time is a + b * rows.
_FAR_BELOW = 0.5
# Full takes before a cap is tried that may be too large; twice as many after each that was, until the model takes less
# than half of the objective.
_PATIENCE, _MOST_PATIENCE = 6, 1024
# What is tried keeps twice the spread of those takes below this part of the objective; of six takes that is some five
# standard deviations: nothing of a model that takes the same time each time, more than the dead band of one that shares
# its cores. The other 3 % are for what six takes do not show: without them the 99th percentile of a kernel SVM's
# batches was 20.3 ms under 20.
_ROOM, _SPREADS = 0.97, 2


class Cap(NamedTuple):
    """The state.

    Attributes:
        rows: that a take may hold.
        goal: the cap after the first of the late takes that have made it smaller still; 0 = it was reached again.
        before: the cap before the present one, if that is on trial; 0 = it is not.
        patience: full takes before a larger cap is tried.
        takes: how many there have been.
        least_us, most_us: the shortest and the longest of them.
    """

    rows: int
    goal: int = 0
    before: int = 0
    patience: int = _PATIENCE
    takes: int = 0
    least_us: int = 0
    most_us: int = 0


@dataclass(frozen=True, slots=True)
class Aimd(Linger):
    """Additive increase, multiplicative decrease of the cap on one take, which is 1 at first.

    Only a take that *fills the cap* raises it. Below the objective less the dead band it adds `add` rows. Below half of
    the objective it multiplies by 1 / `backoff`, if that is more: TCP's slow start, without which 4,000 rows of a cheap
    model are 2,000 batches away instead of 60. The cap never rises to a size that might not fit. Clipper adjusted the
    size of the last batch instead, so under light load its cap fell to that and had to climb again.

    Any take above the objective multiplies the cap by `backoff`; a take far above it does so twice. After several such
    takes the cap climbs back to the value after the first one by steps of 1 / `backoff`: a burst counts once, as for
    TCP. A pause (garbage collection, a neighbour) costs two steps down, however long it was; a few full takes undo it.

    Inside the dead band, and if the next size might not fit, the cap stays. If its takes are so even that there is
    room, a size that fits for certain is tried, or one row more; it is left at once if it is too slow. With time
    a + b * rows the cap settles within `add` above (objective * (1 - dead_band) - a) / b if times spread. If they do
    not, it settles within 3 % of the objective. Without that, a model whose call alone takes half of the objective
    would reach 89 % of the best size's rate.

    Args:
        add: Rows added, at least 1.
        backoff: Factor, in (0, 1).
        dead_band: Part of the objective below it in which the cap stays, in [0, 1).
        max_rows: The cap never passes this.
        linger_ms: A free model waits at most so long for a full batch; 0 = it never waits.

    Examples:
        >>> aimd = Aimd()
        >>> aimd.observe(Cap(10), rows=10, duration_us=5_000, objective_us=20_000).rows
        12
        >>> aimd.observe(Cap(100), rows=3, duration_us=21_000, objective_us=20_000).rows
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

    def init(self) -> Cap:
        """Return a cap of one row."""
        return Cap(1)

    def cap(self, state: Cap) -> int:
        """Return the cap."""
        return state.rows

    def observe(self, state: Cap, rows: int, duration_us: int, objective_us: int) -> Cap:
        """Return the cap after one batch."""
        if duration_us > objective_us:
            return self._shrunk(state, duration_us, objective_us)
        if rows < state.rows:
            return state
        if duration_us < objective_us * _FAR_BELOW:
            factor = min(1 / self.backoff, 1 / _FAR_BELOW)
            return Cap(min(max(rows + self.add, int(rows * factor)), self.max_rows))
        fitting = rows * objective_us // max(1, duration_us)  # no batch of more rows takes longer than in proportion
        if fitting == rows or duration_us >= objective_us * (1.0 - self.dead_band):
            return self._tried(state, duration_us, objective_us)
        wanted = rows + self.add
        if wanted < state.goal:
            wanted = min(max(wanted, int(rows / self.backoff)), state.goal)
        raised = min(wanted, fitting, self.max_rows)
        return Cap(raised, state.goal if raised < state.goal else 0, patience=state.patience)

    def _shrunk(self, state: Cap, duration_us: int, objective_us: int) -> Cap:
        """Return the cap after a take above the objective."""
        if state.before:
            return Cap(state.before, patience=min(2 * state.patience, _MOST_PATIENCE))
        factor = self.backoff**2 if duration_us > objective_us * _FAR_OVER else self.backoff
        rows = max(1, int(state.rows * factor))
        return Cap(rows, state.goal or rows, patience=state.patience)

    def _tried(self, state: Cap, duration_us: int, objective_us: int) -> Cap:
        """Return the cap after a full take after which a larger one might be too large."""
        rows, takes = state.rows, state.takes + 1
        least_us, most_us = min(state.least_us or duration_us, duration_us), max(state.most_us, duration_us)
        if takes < state.patience:
            return state._replace(takes=takes, least_us=least_us, most_us=most_us)
        limit_us = objective_us * _ROOM - _SPREADS * (most_us - least_us)
        if most_us >= limit_us or rows == self.max_rows:
            return Cap(rows, patience=state.patience)
        raised = max(rows + 1, int(rows * limit_us / most_us))
        return Cap(min(raised, self.max_rows), before=rows, patience=state.patience)
