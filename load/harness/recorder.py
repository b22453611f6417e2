"""The outcome of every query: counts by id, and latency from the time each query was *meant* to be sent.

A stalled sender or a stalled system cannot hide: queries that were due during the stall count with the whole wait
(no coordinated omission). The recorder reads no clock; every time is an argument.
"""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from hdrh.histogram import HdrHistogram

from load.figures import DEFAULTS, ERROR, FAULTS, LEAST_FOR_P999, QUANTILES_MS, SHOWN, WITHIN_SLO, Better, Bound, Kind
from schemas.records import Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.figures import Figure

_HIGHEST_US = 600_000_000  # ten minutes: the longest backlog a scenario builds
_DIGITS = 3  # 0.1 % resolution
_ANSWERED = -1
_COUNTED = ("start_us", "sent", "answered", "in_time", "wrong")


@dataclass(slots=True)
class Window:
    """The queries meant to be sent within one window, and their outcomes."""

    start_us: int  # from the recorder's start
    sent: int = 0
    answered: int = 0
    in_time: int = 0
    defaults: int = 0
    late: int = 0
    wrong: int = 0
    judged: int = 0  # answers whose truth is known
    latencies_us: array[int] = field(default_factory=lambda: array("q"))

    def row(self) -> dict[str, float | None]:
        """Return the window as plain numbers: counts, error (None without truth), p50 and p99 in ms (None if empty)."""
        counts = {k: v for k, v in asdict(self).items() if isinstance(v, int)}
        p50, p99 = (np.percentile(self.latencies_us, (50, 99)) / 1e3).tolist() if self.latencies_us else (None, None)
        error = self.wrong / self.judged if self.judged else None
        return {**counts, "error": error, "p50_ms": p50, "p99_ms": p99}


class Recorder:
    """Counts every query id once, by what became of it.

    Args:
        start_us: when the load starts; windows count from here.
        slo_us: an answer later than this after the intended send time is late.
        window_us: length of a window of the time series.
    """

    def __init__(self, start_us: int, slo_us: int, window_us: int = 1_000_000) -> None:
        self.start_us = start_us
        self.slo_us = slo_us
        self._window_us = window_us
        self._intended_us: dict[str, int] = {}
        self._windows: dict[int, Window] = {}
        self._latency = HdrHistogram(1, _HIGHEST_US, _DIGITS)
        self._lateness = HdrHistogram(1, _HIGHEST_US, _DIGITS)
        self.total = Window(0)
        self.duplicates = 0
        self.foreign = 0  # answers to queries that were not sent through this recorder

    def sent(self, query_id: str, intended_us: int, now_us: int) -> None:
        """Note a query that was meant for `intended_us` and handed to the client at `now_us`."""
        self._intended_us[query_id] = intended_us
        self._lateness.record_value(max(1, now_us - intended_us))
        self.total.sent += 1
        self._window(intended_us).sent += 1

    def all_sent(self, query_ids: Sequence[str], now_us: int) -> None:
        """Note a backlog, which is meant for now and handed to the client now: nothing of it is late."""
        self._intended_us |= dict.fromkeys(query_ids, now_us)
        self._lateness.record_value(1, len(query_ids))
        self.total.sent += len(query_ids)
        self._window(now_us).sent += len(query_ids)

    def answered(self, query_id: str, now_us: int, status: Status, *, correct: bool | None = None) -> bool:
        """Note an answer read at `now_us`; returns whether it is the first one for its query.

        Args:
            query_id: of the query.
            now_us: when the answer was read.
            status: as the prediction says.
            correct: whether the answer was right, None where the truth is not known.
        """
        intended_us = self._intended_us.get(query_id)
        if intended_us is None or intended_us == _ANSWERED:
            self.foreign += intended_us is None
            self.duplicates += intended_us is not None
            return False
        self._intended_us[query_id] = _ANSWERED
        latency_us = max(1, now_us - intended_us)
        self._latency.record_value(latency_us)
        window = self._window(intended_us)
        window.latencies_us.append(latency_us)
        for counts in (self.total, window):
            self._count(counts, latency_us > self.slo_us, status is Status.DEFAULT, correct)
        return True

    @property
    def open(self) -> int:
        """Queries without an answer so far; once the load has ended and drained, the lost ones."""
        return self.total.sent - self.total.answered

    def latency_ms(self) -> dict[str, float]:
        """Return p50, p95, p99, p99.9 of 10,000 answers or more, and the maximum, in ms from the intended send time."""
        return _quantiles_ms(self._latency)

    def recent_ms(self, first: int, until: int) -> dict[str, float]:
        """Return p50, p95 and p99, in ms, of the windows numbered `first` to before `until`; empty if none answered."""
        windows = (self._windows.get(index) for index in range(first, until))
        found = [window.latencies_us for window in windows if window is not None and window.latencies_us]
        if not found:
            return {}
        values = np.percentile(np.concatenate(found), (50, 95, 99)) / 1e3
        return dict(zip(("p50", "p95", "p99"), values.tolist(), strict=True))

    def figures(self) -> dict[str, float]:
        """Return everything counted, flat."""
        total = self.total
        sent = max(1, total.sent)
        return {
            "queries_sent": total.sent,
            "predictions_distinct": total.answered,
            "lost": self.open,
            "duplicates": self.duplicates,
            "in_time": total.in_time,
            "defaults": total.defaults,
            "late": total.late,
            "within_slo": total.in_time / sent,
            **({"error": total.wrong / total.judged} if total.judged else {}),
            **{f"{name}_ms": value for name, value in self.latency_ms().items()},
            **{f"sender_late_{name}_ms": value for name, value in _quantiles_ms(self._lateness).items()},
        }

    def windows(self) -> list[Mapping[str, float | None]]:
        """Return the time series, one row a window, in order of time."""
        return [self._windows[index].row() for index in sorted(self._windows)]

    def counts(self) -> list[Mapping[str, int]]:
        """Return the time series without latencies: may be asked in another thread than the one that records."""
        windows = sorted(self._windows.copy().items())
        return [{name: getattr(window, name) for name in _COUNTED} for _, window in windows]

    def _window(self, intended_us: int) -> Window:
        index = (intended_us - self.start_us) // self._window_us
        window = self._windows.get(index)
        if window is None:
            window = self._windows[index] = Window(index * self._window_us)
        return window

    @staticmethod
    def _count(counts: Window, late: bool, default: bool, correct: bool | None) -> None:
        counts.answered += 1
        counts.late += late
        counts.defaults += default
        counts.in_time += not late and not default
        counts.judged += correct is not None
        counts.wrong += correct is False


SENDER_LATE = Kind("ms", Better.LOWER, 9.0, 50.0)  # of the harness, not of what it measures
_FIGURES: Mapping[str, Kind] = {
    "queries_sent": SHOWN,
    "predictions_distinct": SHOWN,
    "lost": FAULTS,
    "duplicates": FAULTS,
    "in_time": SHOWN,
    "defaults": DEFAULTS,
    "late": SHOWN,
    "within_slo": WITHIN_SLO,
    "error": ERROR,
    **{f"{point}_ms": kind for point, kind in QUANTILES_MS.items()},
    **{f"sender_late_{point}_ms": SENDER_LATE for point in QUANTILES_MS},
}


def recorded(prefix: str = "", *names: str, **must: Bound) -> tuple[Figure, ...]:
    """Declare figures of a recorder.

    Args:
        prefix: of their names in the result.
        names: which; none = all of them.
        must: what some of them must reach.
    """
    return tuple(
        figure for name in names or _FIGURES for figure in _FIGURES[name](prefix + name, must=must.get(name, ()))
    )


def _quantiles_ms(histogram: HdrHistogram) -> dict[str, float]:
    points = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9, "max": 100.0}
    if histogram.get_total_count() < LEAST_FOR_P999:
        del points["p999"]
    return {name: histogram.get_value_at_percentile(point) / 1e3 for name, point in points.items()}
