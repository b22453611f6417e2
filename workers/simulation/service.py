"""How long a model takes for a batch: a line with a spread, or batches that were measured."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from workers.simulation.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np

Draw: TypeAlias = "Callable[[int], int]"  # rows of a batch to its time (us)
_CHUNK = 1024  # numbers drawn at once


class SimulatedService(Protocol):
    """Service times of one model."""

    def sampler(self, random: np.random.Generator) -> Draw:
        """Return what draws the time (us) of one batch after the other by its rows."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """A batch of n rows takes `a_us + b_us * n`, on average.

    Attributes:
        a_us: that a call costs.
        b_us: that each row costs.
        noise: standard deviation as a share of the time, by a gamma distribution; 0 = always the same, 1 = exponential.
    """

    a_us: float
    b_us: float
    noise: float = 0.0

    def sampler(self, random: np.random.Generator) -> Draw:
        """Return what draws batch times, at least 1 us each."""
        a_us, b_us = self.a_us, self.b_us
        if not self.noise:
            return lambda rows: max(1, round(a_us + b_us * rows))
        factors = _gamma(random, self.noise)
        return lambda rows: max(1, round((a_us + b_us * rows) * next(factors)))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Batches that were measured. A size that was not measured lies between its neighbours, at the same quantile.

    Attributes:
        samples: sizes (rows) and the times (us) that batches of that size took, both rising.
    """

    samples: tuple[tuple[int, tuple[int, ...]], ...]

    @classmethod
    def of(cls, samples: Mapping[int, list[float]]) -> Recorded:
        """Take times (us) by rows.

        Raises:
            PlanError: there are none, or some are not positive.
        """
        found = tuple((rows, tuple(sorted(round(us) for us in times))) for rows, times in sorted(samples.items()))
        if not found or any(rows < 1 or not times or times[0] <= 0 for rows, times in found):
            raise PlanError("samples are positive times by a number of rows, at least one for each number")
        return cls(found)

    def sampler(self, random: np.random.Generator) -> Draw:
        """Return what draws batch times."""
        sizes = [rows for rows, _ in self.samples]
        times = [taken for _, taken in self.samples]
        uniform = _uniform(random)

        def draw(rows: int) -> int:
            u = next(uniform)
            at = bisect_left(sizes, rows)
            if at < len(sizes) and sizes[at] == rows:
                return _quantile(times[at], u)
            if at == 0:
                return _quantile(times[0], u)
            right = min(at, len(sizes) - 1)
            left = right - 1
            if left < 0:  # one size alone was measured: no batch of more rows takes longer than in proportion
                return _quantile(times[0], u) * rows // sizes[0]
            below, above = _quantile(times[left], u), _quantile(times[right], u)
            slope = max(0.0, (above - below) / (sizes[right] - sizes[left]))
            return round(below + slope * (rows - sizes[left]))

        return draw


@dataclass(frozen=True, slots=True)
class Delayed:
    """Another service whose batches take longer, by what was measured: a machine that is shared, a late timer.

    Attributes:
        service: without the delays.
        delays_us: drawn one for each batch.
    """

    service: SimulatedService
    delays_us: tuple[int, ...]

    def sampler(self, random: np.random.Generator) -> Draw:
        """Return what draws batch times."""
        its, of_delays = random.spawn(2)
        draw, uniform, delays_us = self.service.sampler(its), _uniform(of_delays), self.delays_us
        return lambda rows: draw(rows) + _quantile(delays_us, next(uniform))


def _quantile(times: tuple[int, ...], u: float) -> int:
    return times[int(u * len(times))]


def _uniform(random: np.random.Generator) -> Iterator[float]:
    while True:
        yield from random.random(_CHUNK).tolist()


def _gamma(random: np.random.Generator, noise: float) -> Iterator[float]:
    shape = 1.0 / noise**2
    while True:
        yield from random.gamma(shape, 1.0 / shape, _CHUNK).tolist()
