"""How long models take to answer, as selection sees it: from a query's arrival to its output's.

A deadline is spent on round trips: both ways through the broker, the wait for a batch, and the batch. Each batch gives
one sample: its first row, which waited longest. A query without an output by the deadline counts as twice the time it
was given. A model that was silent for long is asked again now and then. If it answers in less than half of its known
time, it has recovered, and its old samples are forgotten.
"""

from __future__ import annotations

from collections import deque

QUANTILE = 0.95
SAMPLES = 64  # the last so many decide: four misses among them are enough to tell, of fewer than 20 one
RECOVERED = 0.5  # of what it took
# A model that has not answered for so long is asked once more, because it may have recovered. If it has not, the next
# pause is twice as long: the query that finds out waits until its deadline, and if few come, every one would.
PROBE_US, PROBE_AT_MOST_US = 1_000_000, 64_000_000


class RunningQuantile:
    """Stochastic approximation of a quantile (Robbins and Monro 1951) with a step in proportion to the estimate.

    Args:
        q: the quantile in (0, 1).
        start: the first estimate, in the unit of the samples, > 0.
        step: relative step; 0.05 forgets within a few hundred samples.
    """

    __slots__ = ("_down", "_up", "value")

    def __init__(self, q: float, start: float, step: float = 0.05) -> None:
        self.value = start
        self._up = 1.0 + step * q
        self._down = 1.0 - step * (1.0 - q)

    def add(self, sample: float) -> None:
        """Move the estimate towards the quantile by one sample."""
        self.value = max(1.0, self.value * (self._up if sample > self.value else self._down))


class _ModelLatency:
    """The latest latencies of one model."""

    __slots__ = ("estimate_us", "pause_us", "probed_us", "samples", "seen_us")

    def __init__(self) -> None:
        self.samples: deque[float] = deque(maxlen=SAMPLES)
        self.estimate_us: float | None = None
        self.seen_us = 0
        self.probed_us = 0
        self.pause_us = PROBE_US

    def answered(self, latency_us: float, now_us: int) -> None:
        if now_us - self.seen_us >= PROBE_US and self.samples and latency_us < RECOVERED * self.quantile_us():
            self.samples.clear()
        self.pause_us = PROBE_US
        self.add(latency_us, now_us)

    def add(self, latency_us: float, now_us: int) -> None:
        self.samples.append(latency_us)
        self.estimate_us = None
        self.seen_us = now_us

    def quantile_us(self) -> float:
        if self.estimate_us is None:
            ordered = sorted(self.samples)
            self.estimate_us = ordered[min(int(QUANTILE * len(ordered)), len(ordered) - 1)]
        return self.estimate_us

    def expected_us(self, now_us: int) -> float:
        if now_us - max(self.seen_us, self.probed_us) < self.pause_us:
            return self.quantile_us()
        self.probed_us, self.pause_us = now_us, min(2 * self.pause_us, PROBE_AT_MOST_US)
        return 0.0


class Latencies:
    """The latency of every model, for policies that use it."""

    __slots__ = ("_models",)

    def __init__(self) -> None:
        self._models: dict[str, _ModelLatency] = {}

    def add(self, model: str, latency_us: float, now_us: int) -> None:
        """Take one round trip of a model."""
        self._known(model).answered(latency_us, now_us)

    def miss(self, model: str, given_us: int, now_us: int) -> None:
        """Count a query that a model has not answered in the time it was given."""
        self._known(model).add(2.0 * given_us, now_us)

    def expected_us(self, models: tuple[str, ...], now_us: int) -> tuple[float, ...]:
        """Return each model's latency at `QUANTILE`; 0.0 where none is known, and for one query after each pause."""
        known = map(self._models.get, models)
        return tuple([0.0 if model is None else model.expected_us(now_us) for model in known])

    def quantile_us(self, model: str, share: float = QUANTILE) -> int | None:
        """Return how long that share of a model's rows take at most; None where its latency is not known."""
        known = self._models.get(model)
        if known is None or not known.samples:
            return None
        return int(known.quantile_us() if share == QUANTILE else sorted(known.samples)[int(share * len(known.samples))])

    def last_chance_us(self, model: str, until_us: int) -> int | None:
        """Return when a model must be asked to answer by `until_us`; None where its latency is not known."""
        known = self._models.get(model)
        return None if known is None or not known.samples else until_us - int(known.quantile_us())

    def _known(self, model: str) -> _ModelLatency:
        known = self._models.get(model)
        if known is None:
            known = self._models[model] = _ModelLatency()
        return known
