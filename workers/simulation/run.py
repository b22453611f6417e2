"""What became of every query and batch of a simulation, and the figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from workers.simulation.legs import Leg
    from workers.simulation.plan import SimulationPlan
    from workers.simulation.worker import Journal

NEVER: Final = 1 << 62  # when an output is there that never comes (us)
_BUCKET_US = 1_000  # selection keeps deadlines by the millisecond
QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}


def column(numbers: array[int]) -> NDArray[np.int64]:
    """Return numbers as a column, without a copy."""
    return np.frombuffer(numbers, np.int64)


@dataclass(frozen=True)
class Run:
    """One simulation's outcome; columns have one entry a query, in the order in which queries were sent.

    Attributes:
        plan: that was simulated.
        ended_us: when the last event was.
        received_us: when selection had each query.
        drawn: the model that each query asked; None = all of them, or it is not said.
        answered_us: when selection answered each query.
        latency_us: from when each query was sent until the client had its answer.
        outputs: how many usable outputs each query's answer was made of; 0 = the default output.
        asked: how many it asked for.
        expired: by model, whether its worker gave the query up.
        journals: by model, what its workers did.
    """

    plan: SimulationPlan
    ended_us: int
    received_us: NDArray[np.int64]
    drawn: NDArray[np.uint8] | None
    answered_us: NDArray[np.int64]
    latency_us: NDArray[np.int64]
    outputs: NDArray[np.int64]
    asked: NDArray[np.int64]
    expired: tuple[NDArray[np.bool_], ...]
    journals: tuple[Journal, ...]

    @classmethod
    def of(
        cls,
        plan: SimulationPlan,
        ended_us: int,
        received_us: NDArray[np.int64],
        answer: Leg,
        drawn: NDArray[np.uint8] | None,
        outputs_us: tuple[NDArray[np.int64], ...],
        expired: tuple[NDArray[np.bool_], ...],
        journals: tuple[Journal, ...],
    ) -> Run:
        """Answer each query with its last output, at the latest a margin before its deadline.

        Args:
            plan: and so on: see above.
            ended_us: likewise.
            received_us: likewise.
            answer: the leg from selection to the client.
            drawn: likewise.
            outputs_us: by model, when its output was at selection, `NEVER` where none came.
            expired: likewise.
            journals: likewise.
        """
        count = len(received_us)
        all_of = [np.ones(count, bool) if drawn is None else drawn == model for model in range(len(journals))]
        complete_us, outputs = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for asked, at_us in zip(all_of, outputs_us, strict=True):
            np.maximum(complete_us, np.where(asked, at_us, 0), out=complete_us)
        due_us = (plan.arrivals_us + plan.application.limit_us) // _BUCKET_US * _BUCKET_US
        answered_us = np.maximum(np.minimum(complete_us, due_us), received_us)
        for asked, at_us, is_expired in zip(all_of, outputs_us, expired, strict=True):
            outputs += asked & ~is_expired & (at_us <= answered_us)
        latency_us, asked_of = answer.arrivals_us(answered_us) - plan.arrivals_us, np.sum(all_of, axis=0)
        return cls(plan, ended_us, received_us, drawn, answered_us, latency_us, outputs, asked_of, expired, journals)

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """Which queries count: those sent after the warm-up."""
        return self.plan.arrivals_us >= self.plan.warm_up_us

    @cached_property
    def in_time(self) -> NDArray[np.bool_]:
        """Which queries models have answered within the objective."""
        return (self.outputs > 0) & (self.latency_us <= self.plan.application.slo_us)

    @property
    def counted_s(self) -> float:
        """For how long queries came that count."""
        return max(1e-6, self.plan.seconds - self.plan.warm_up_us / 1e6)

    def waits_us(self, model: int) -> NDArray[np.int64]:
        """Return how long each predicted row that counts waited in its worker."""
        waited_us = column(self.journals[model].waited_us)[self.counted]
        return waited_us[waited_us >= 0]

    def figures(self) -> dict[str, float]:
        """Return everything about the queries, flat."""
        counted = self.counted
        queries = int(counted.sum())
        latency_us = self.latency_us[counted]
        outputs, asked = self.outputs[counted], self.asked[counted]
        answered = int((outputs > 0).sum())
        in_time = int(self.in_time[counted].sum())
        return {
            "queries": queries,
            "share_in_time": in_time / max(1, queries),
            "in_time_per_s": in_time / self.counted_s,
            "answered_per_s": answered / self.counted_s,
            "defaults": queries - answered,
            "partial": int(((outputs > 0) & (outputs < asked)).sum()),
            "late": int((latency_us > self.plan.application.slo_us).sum()),
            **{f"{name}_ms": value / 1e3 for name, value in quantiles(latency_us).items()},
        }

    def model_figures(self, model: int) -> dict[str, float]:
        """Return everything about one model's workers."""
        journal, warm_us, until_us = self.journals[model], self.plan.warm_up_us, int(self.plan.seconds * 1e6)
        started_us, took_us, rows = column(journal.started_us), column(journal.took_us), column(journal.rows)
        busy_us = np.clip(started_us + took_us, warm_us, until_us) - np.clip(started_us, warm_us, until_us)
        its = started_us >= warm_us
        waits_us = self.waits_us(model)
        replicas = self.plan.models[model].replicas
        return {
            "workers": replicas,
            "utilisation": float(busy_us.sum()) / (self.counted_s * 1e6 * replicas),
            "batches": int(its.sum()),
            "rows_a_batch": float(rows[its].mean()) if its.any() else 0.0,
            "batch_p50_ms": float(np.median(took_us[its])) / 1e3 if its.any() else 0.0,
            "cap_p50": float(np.median(column(journal.cap)[its])) if its.any() else 0.0,
            "queue_rows": float(waits_us.sum()) / (self.counted_s * 1e6),  # Little's law: the mean that wait
            "wait_mean_ms": float(waits_us.mean()) / 1e3 if len(waits_us) else 0.0,
            "wait_p99_ms": float(np.quantile(waits_us, 0.99)) / 1e3 if len(waits_us) else 0.0,
            "expired": int((self.expired[model] & self.counted).sum()),
        }

    def windows(self, count: int) -> list[dict[str, float]]:
        """Return so many equal windows of the time in which queries came: rate, share in time, p50 and p99."""
        arrivals_us = self.plan.arrivals_us
        edges = np.searchsorted(arrivals_us, np.linspace(0, self.plan.seconds * 1e6, count + 1))
        rows = []
        for first, last in pairwise(edges.tolist()):
            latency_us = self.latency_us[first:last]
            sent = last - first
            rows.append(
                {
                    "sent_per_s": sent * count / self.plan.seconds,
                    "share_in_time": float(self.in_time[first:last].mean()) if sent else 1.0,
                    "p50_ms": float(np.quantile(latency_us, 0.5)) / 1e3 if sent else 0.0,
                    "p99_ms": float(np.quantile(latency_us, 0.99)) / 1e3 if sent else 0.0,
                }
            )
        return rows

    def as_dict(self) -> dict[str, Any]:
        """Return all figures, of the application and by model."""
        names = [model.name for model in self.plan.models]
        return {
            **self.figures(),
            "left_out": self.plan.left_out,
            "models": {name: self.model_figures(index) for index, name in enumerate(names)},
        }

    @property
    def reaches(self) -> bool:
        """Whether the wanted share was in time."""
        return bool(self.figures()["share_in_time"] >= self.plan.application.wanted)


def quantiles(values_us: NDArray[np.int64], points: Mapping[str, float] = QUANTILES) -> dict[str, float]:
    """Return quantiles by name, 0 where there is nothing."""
    if not len(values_us):
        return dict.fromkeys(points, 0.0)
    found: Sequence[float] = np.quantile(values_us, list(points.values())).tolist()
    return dict(zip(points, found, strict=True))
