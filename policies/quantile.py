"""`quantile`: the largest batch whose 99th-percentile time, by regression on the last batches, meets the objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from policies.errors import require
from policies.fixed import Linger

# Below 100 samples the 0.99 regression line lies above all of them: an edge of their upper hull, exact and cheap.
_MOST_SAMPLES = 99
_FAR_OVER = 1.25
_BACKOFF = 0.9
_GROWTH = 4  # a step up is at most a quarter: beyond the sizes measured the line is a guess

_PROBED = 0.9  # of the objective: where all batches had one size there is no slope, and one row more shows it


class Fit(NamedTuple):
    """The state: the cap, the last (rows, duration_us), and a late batch that the next has yet to confirm."""

    cap: int
    samples: tuple[tuple[int, int], ...]
    suspect: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Quantile(Linger):
    """Fit duration = a + b * rows at quantile 0.99 after every batch, and take what fits the objective.

    One batch over the objective may be a pause: it costs a step down and is left out of the fit. If it was larger than
    all others it stays in, so that a size found too slow is not tried again while the window remembers it. A second
    late batch in a row means that the model has changed: it and each later one halve the cap, and earlier measurements
    are forgotten. Clipper fitted its line once, never again.

    Args:
        window: Batches that the line is fitted to, 2 to 99.
        max_rows: The cap never passes this.
        linger_ms: A free model waits at most so long for a full batch; 0 = it never waits.

    Examples:
        >>> quantile = Quantile()
        >>> quantile.cap(quantile.observe(quantile.init(), rows=1, duration_us=5_100, objective_us=20_000))
        3

    References:
        Koenker and Bassett, Regression quantiles, Econometrica 46 (1978); Crankshaw et al., Clipper, NSDI 2017.
    """

    name: ClassVar[str] = "quantile"

    window: int = 64
    max_rows: int = 4096

    def __post_init__(self) -> None:
        """Check the parameters."""
        self.require_linger(self.name)
        require(2 <= self.window <= _MOST_SAMPLES, f"quantile: window is {self.window}; it must lie in [2, 99]")
        require(self.max_rows >= 1, f"quantile: max_rows is {self.max_rows}; it must be at least 1")

    def init(self) -> Fit:
        """Return a cap of one row and no samples."""
        return Fit(1, (), None)

    def cap(self, state: Fit) -> int:
        """Return the cap."""
        return state.cap

    def observe(self, state: Fit, rows: int, duration_us: int, objective_us: int) -> Fit:
        """Return the state after one batch."""
        if rows < 1:
            return state
        sample = (rows, duration_us)
        if duration_us > objective_us:
            return self._late(state, sample, objective_us)
        samples = (*state.samples, sample)[-self.window :]
        if rows < state.cap:
            return Fit(state.cap, samples, None)
        step = state.cap + max(2, state.cap // _GROWTH)
        fitting = _fitting(samples, objective_us)
        if len({size for size, _ in samples}) == 1 and duration_us < objective_us * _PROBED:
            fitting = max(fitting, state.cap + 1)
        return Fit(min(max(1, fitting), step, self.max_rows), samples, None)

    def _late(self, state: Fit, sample: tuple[int, int], objective_us: int) -> Fit:
        if state.suspect is not None:  # by half, not by a line through late batches: two may be pauses, too
            return Fit(max(1, state.cap // 2), (), sample)
        factor = _BACKOFF**2 if sample[1] > objective_us * _FAR_OVER else _BACKOFF
        new = sample[0] > max((rows for rows, _ in state.samples), default=0)
        samples = (*state.samples, sample)[-self.window :] if new else state.samples
        return Fit(max(1, int(state.cap * factor)), samples, sample)


def _fitting(samples: tuple[tuple[int, int], ...], objective_us: int) -> int:
    """Return how many rows fit the objective by the line over the mean size; a model of one size scales with it."""
    left, right = _edge(samples)
    slope = (right[1] - left[1]) / (right[0] - left[0]) if right[0] > left[0] else 0.0
    if slope <= 0.0:  # no batch of more rows takes longer than in proportion
        return right[0] * objective_us // max(1, right[1])
    return int(right[0] + (objective_us - right[1]) / slope + 1e-6)


def _edge(samples: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the ends of the upper hull's edge that spans the mean size."""
    highest: dict[int, int] = {}
    for rows, duration_us in samples:
        highest[rows] = max(duration_us, highest.get(rows, 0))
    mean = sum(rows for rows, _ in samples) / len(samples)
    hull: list[tuple[int, int]] = []
    for x, y in sorted(highest.items()):
        while len(hull) > 1 and _below(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    right = next((index for index, (x, _) in enumerate(hull) if x >= mean and index), len(hull) - 1)
    return hull[max(0, right - 1)], hull[right]


def _below(left: tuple[int, int], middle: tuple[int, int], right: tuple[int, int]) -> bool:
    return (middle[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (middle[0] - left[0])
