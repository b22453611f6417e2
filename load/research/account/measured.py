"""Figures and rows of one stretch of load. All CPU times are per answered query."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from load.figures import CPU_US, FAULTS, NONE, SHOWN, Better, Figures, Kind, at_least, at_most, quantiles_ms
from load.research.account.steps import OTHER, STEPS
from load.research.account.traffic import LEGS, legs_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.harness.driving import Stretch
    from load.research.account.profile import Spent, Window
    from load.research.account.traffic import Traffic
    from load.results.results import Result

Row: TypeAlias = "dict[str, str | float]"

_SHOWN_UNKNOWN = 10
_POINTS = ("p50", "p99")


@dataclass(frozen=True, slots=True)
class Measured:
    """One stretch of load, seen from outside.

    Attributes:
        stretch: as it was driven, with the processes' CPU time.
        window: when.
        read_us: by query id, when the client had the answer.
    """

    stretch: Stretch
    window: Window
    read_us: Mapping[str, int]

    @property
    def queries(self) -> int:
        """How many were answered."""
        return max(1, self.stretch.recorder.total.answered)


def accounted(
    result: Result, name: str, sampled: Measured, plain: Measured, spent: Mapping[str, Spent], written: Traffic
) -> Result:
    """Return a result with one stretch more.

    Args:
        result: with the stretches so far.
        name: of this one.
        sampled: with every process sampling itself.
        plain: the same load without.
        spent: by instance, what the samples say.
        written: what went to the topics.
    """
    figures = _totals(sampled, plain, spent)
    series = {
        "steps": _step_rows(spent, sampled.queries),
        "unknown": _unknown_rows(spent, sampled.queries),
        "volumes": _volume_rows(written, sampled.queries),
        "batches": _batch_rows(written),
    }
    return _with(result, name, figures, series)


def with_legs(result: Result, name: str, measured: Measured, written: Traffic) -> Result:
    """Return a result with the latency of a stretch, leg by leg."""
    legs = legs_ms(written.ways(measured.read_us))
    figures = {
        f"leg_{leg}_{point}_ms": ms for leg, points in legs.items() for point, ms in zip(_POINTS, points, strict=True)
    }
    rows: list[Row] = [{"leg": LEGS[leg], "p50_ms": p50, "p99_ms": p99} for leg, (p50, p99) in legs.items()]
    return _with(result, name, figures, {"legs": rows})


def _with(result: Result, name: str, figures: Mapping[str, float], series: Mapping[str, list[Row]]) -> Result:
    return replace(
        result,
        figures={**result.figures, **{f"{name}_{key}": value for key, value in figures.items()}},
        series={**result.series, **{f"{name}_{key}": rows for key, rows in series.items()}},
    )


def declared(stretch: str) -> Figures:
    """Declare the figures of a stretch."""
    return Figures(
        FAULTS(f"{stretch}_lost", must=NONE),
        CPU_US(f"{stretch}_cpu_us_*", f"{stretch}_unsampled_cpu_us_per_query"),
        SHOWN(f"{stretch}_accounted", must=(at_least(0.9), at_most(1.1))),
        Kind("", Better.LOWER, 0.0, 0.05)(f"{stretch}_other", must=at_most(0.1)),
        SHOWN(*(f"{stretch}_{name}" for name in ("accounted_least", "accounted_most", "samples", "sampling"))),
        quantiles_ms(f"{stretch}_", *_POINTS),
    )


def declared_legs(stretch: str) -> Figures:
    """Declare the latencies of a stretch, leg by leg."""
    return Figures(*(quantiles_ms(f"{stretch}_leg_{leg}_", *_POINTS) for leg in LEGS))


def _totals(sampled: Measured, plain: Measured, spent: Mapping[str, Spent]) -> dict[str, float]:
    total_s = sum(sampled.stretch.cpu_s.values())
    sampled_s = sum(each.cpu_s for each in spent.values())
    other_s = sum(each.steps.get(OTHER, 0.0) for each in spent.values())
    latency_ms = plain.stretch.recorder.latency_ms()
    return {
        "lost": sampled.stretch.recorder.open + plain.stretch.recorder.open,
        "cpu_us_per_query": sampled.stretch.cpu_us_per_query,
        **{f"cpu_us_{_plain(role)}": cpu_s / sampled.queries * 1e6 for role, cpu_s in sampled.stretch.cpu_s.items()},
        "accounted": sampled_s / total_s,
        "accounted_least": min(each.cpu_s / sampled.stretch.cpu_s[name] for name, each in spent.items()),
        "accounted_most": max(each.cpu_s / sampled.stretch.cpu_s[name] for name, each in spent.items()),
        "other": other_s / sampled_s,
        "samples": sum(each.samples for each in spent.values()),
        "unsampled_cpu_us_per_query": plain.stretch.cpu_us_per_query,
        "sampling": sampled.stretch.cpu_us_per_query / plain.stretch.cpu_us_per_query - 1,
        **{f"{point}_ms": latency_ms[point] for point in _POINTS},
    }


def _step_rows(spent: Mapping[str, Spent], queries: int) -> list[Row]:
    """Return a row for each step and instance: CPU time (us per query) and its share of everything."""
    total_s = sum(each.cpu_s for each in spent.values())
    return [
        {"step": step, "instance": name, "cpu_us": used_s / queries * 1e6, "share": used_s / total_s}
        for step in STEPS
        for name, each in spent.items()
        if (used_s := each.steps.get(step, 0.0))
    ]


def _volume_rows(traffic: Traffic, queries: int) -> list[Row]:
    """Return a row for each topic: records and bytes per query."""
    return [
        {"topic": topic, "records": volume.records / queries, "bytes": volume.size_bytes / queries}
        for topic, volume in traffic.volumes.items()
    ]


def _batch_rows(traffic: Traffic) -> list[Row]:
    """Return a row for each model: rows of a batch, on average."""
    return [{"model": model, "rows": rows / traffic.batches[model]} for model, rows in traffic.rows.items()]


def _unknown_rows(spent: Mapping[str, Spent], queries: int) -> list[Row]:
    """Return the functions that belong to no step, the dearest first (us per query)."""
    found: Counter[str] = Counter()
    for each in spent.values():
        found.update(each.unknown)
    return [{"function": name, "cpu_us": used_s / queries * 1e6} for name, used_s in found.most_common(_SHOWN_UNKNOWN)]


def _plain(role: str) -> str:
    return role.replace(".", "_").replace("-", "_")
