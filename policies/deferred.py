"""`deferred`: start a batch at the latest moment at which one more row would no longer fit."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from math import exp, inf
from typing import ClassVar, NamedTuple, TypeAlias

from policies.errors import require
from policies.quantile import Fit, Quantile

# Rows and the time (us) to reckon with for a batch of them, both rising.
Profile: TypeAlias = tuple[tuple[int, int], ...]

_RATE_US = 1_000_000  # arrivals are counted over about a second
MARGIN_US = 1_000  # a timer of the event loop fires up to a millisecond late


class Deferral(NamedTuple):
    """The state: what the cap follows from, the profile, and how many rows a second arrived when last seen."""

    fit: Fit
    profile: Profile
    per_s: float
    seen_us: int


@dataclass(frozen=True, slots=True)
class Deferred:
    """Wait for more rows until one more would make the most urgent late, if the model is busy enough for that to pay.

    A batch that is not full starts at `due - l(rows + 1)`. The profile l is the longest of the last batches of each
    size, made monotone, straight between the sizes and in proportion beyond them. Larger batches cost less a row, which
    leaves the machine to others. The price is latency. So below a load of `eager_below` (rows a second times the time
    of the smallest batch) it starts at once, and no free model waits longer than `linger_ms`. The cap is that of
    `quantile`.

    Args:
        linger_ms: A model that is free waits at most so long, 0 or more.
        eager_below: The load below which nothing waits, 0 or more; 0 = always wait.
        window: Batches that cap and profile are made from, 2 to 99.
        max_rows: The cap never passes this.

    Examples:
        >>> deferred = Deferred(linger_ms=50, eager_below=0)
        >>> busy = deferred.observe(deferred.init(), rows=1, duration_us=2_000, objective_us=20_000)
        >>> deferred.wait_until(busy, queued=1, due_us=30_000, now_us=0)
        25000

    References:
        Chen et al., Symphony: Optimized DNN Model Serving using Deferred Batch Scheduling, arXiv 2308.07470 (2023).
    """

    name: ClassVar[str] = "deferred"

    linger_ms: float = 10.0
    eager_below: float = 0.6
    window: int = 64
    max_rows: int = 4096

    def __post_init__(self) -> None:
        """Check the parameters; those of `quantile` by making one."""
        require(0.0 <= self.linger_ms < inf, f"deferred: linger_ms is {self.linger_ms}; it must be at least 0")
        require(self.eager_below >= 0.0, f"deferred: eager_below is {self.eager_below}; it must be at least 0")
        self._sizes()

    @property
    def linger_us(self) -> int:
        """Return how long a free model waits at most."""
        return round(self.linger_ms * 1_000)

    def init(self) -> Deferral:
        """Return a cap of one row and an empty profile."""
        return Deferral(self._sizes().init(), (), 0.0, 0)

    def cap(self, state: Deferral) -> int:
        """Return the cap."""
        return state.fit.cap

    def observe(self, state: Deferral, rows: int, duration_us: int, objective_us: int) -> Deferral:
        """Return the state after one batch."""
        fit = self._sizes().observe(state.fit, rows, duration_us, objective_us)
        return state._replace(fit=fit, profile=_profile(fit))

    def arrived(self, state: Deferral, rows: int, now_us: int) -> Deferral:
        """Return the state after `rows` more to predict."""
        return state._replace(per_s=_per_s(state, now_us) + rows * 1e6 / _RATE_US, seen_us=now_us)

    def wait_until(self, state: Deferral, queued: int, due_us: int, now_us: int) -> int:
        """Return the latest moment for one row more, now if there is nothing to be gained."""
        if not state.profile or _per_s(state, now_us) * reckon(state.profile, 1) < self.eager_below * 1e6:
            return now_us
        return due_us - MARGIN_US - reckon(state.profile, queued + 1)

    def _sizes(self) -> Quantile:
        return Quantile(self.window, self.max_rows)


def reckon(profile: Profile, rows: int) -> int:
    """Return the time (us) to reckon with for a batch of `rows`; `profile` is not empty."""
    at = bisect_left(profile, (rows,))
    if at == len(profile):
        most, longest_us = profile[-1]
        return -(-longest_us * rows // most)
    more, above_us = profile[at]
    if at == 0:
        return above_us
    less, below_us = profile[at - 1]
    return below_us - (below_us - above_us) * (rows - less) // (more - less)


def _profile(fit: Fit) -> Profile:
    """Return the longest time of each size or of a smaller one; a late batch counts before it is confirmed."""
    samples = sorted(fit.samples if fit.suspect is None else (*fit.samples, fit.suspect))
    longest = accumulate((duration_us for _, duration_us in samples), max)
    return tuple({rows: us for (rows, _), us in zip(samples, longest, strict=True)}.items())


def _per_s(state: Deferral, now_us: int) -> float:
    return state.per_s * exp(-max(0, now_us - state.seen_us) / _RATE_US)
