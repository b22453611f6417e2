"""Summarises all visits: medians and ranges, Skysail's ratios to the others, and where it is behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from load.figures import CPU_US, MIB, PER_S, SHOWN, Better, Figures, Kind, quantiles_ms
from load.harness.recorder import SENDER_LATE
from load.research.peers.contenders import SHORTEST, UNCONVERTED, WHOLE
from load.research.peers.measurement import COUNTS, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from load.research.peers.contenders import Contender

Row = dict[str, Any]

# Figures on which contenders are ranked, and whether more is better.
RANKED: Mapping[str, bool] = {
    "rate_per_s": True,
    "flat_per_s": True,
    "cpu_us_per_query": False,
    "peak_mib": False,
    "goodput_20ms_per_s": True,
    "goodput_50ms_per_s": True,
    "goodput_100ms_per_s": True,
    "at_200_p50_ms": False,
    "at_500_p50_ms": False,
    "at_200_p99_ms": False,
    "at_500_p99_ms": False,
    "judged_per_s": True,
}
# At a share of the capacity: another rate in every run, so nothing to compare runs by.
_OWN = "pct_"
_LEAST_FOR_P999 = 1_000


@dataclass(slots=True)
class Summary:
    """Collects visits by contender."""

    contenders: Sequence[Contender]
    seen: dict[str, list[Seen]] = field(default_factory=dict)

    def add(self, contender: Contender, seen: Seen) -> None:
        """Add a visit."""
        self.seen.setdefault(contender.name, []).append(seen)

    def capacity_per_s(self, contender: Contender) -> float:
        """Return what the first visit showed; 0 before it."""
        visits = self.seen.get(contender.name)
        return visits[0].capacity_per_s if visits else 0.0

    def rows(self) -> list[Row]:
        """Return one row for each contender that was measured: `[median, least, most]` by figure, counts added up."""
        return [self._row(contender) for contender in self.contenders if contender.name in self.seen]

    def judged(self) -> list[Row]:
        """Return what the judge said."""
        return [seen.judgement for visits in self.seen.values() for seen in visits if seen.judgement]

    def _row(self, contender: Contender) -> Row:
        visits = self.seen[contender.name]
        names = dict.fromkeys(name for seen in visits for name in seen.figures)
        figures = {name: spread(seen.figures[name] for seen in visits if name in seen.figures) for name in names}
        figures |= _rare(visits)
        if judged := [seen.judgement["valid_per_s"] for seen in visits if seen.judgement]:
            figures["judged_per_s"] = spread(judged)
        counts = {name: sum(seen.counts[name] for seen in visits) for name in COUNTS}
        about = {key: getattr(contender, key) for key in ("name", "label", "kind", "guarantee")}
        return {**about, "rounds": len(visits), "capacity_per_s": visits[0].capacity_per_s, **figures, **counts}


def spread(values: Iterable[float]) -> list[float]:
    """Return `[median, least, most]`."""
    found = sorted(values)
    return [median(found), found[0], found[-1]]


def _rare(visits: Sequence[Seen]) -> dict[str, list[float]]:
    """Return p99.9 by stretch, over all visits together: one alone has too few answers for it."""
    rare: dict[str, list[float]] = {}
    for name in dict.fromkeys(name for seen in visits for name in seen.latencies_us):
        pooled = [latency_us for seen in visits for latency_us in seen.latencies_us.get(name, ())]
        if len(pooled) >= _LEAST_FOR_P999:
            rare[f"{name}_p999_ms"] = spread([float(np.percentile(pooled, 99.9)) / 1e3])
    return rare


def declared(lane: str) -> Figures:
    """Declare Skysail's own figures in one of its lanes."""
    return Figures(
        Kind("1/s", Better.HIGHER, 0.4)(
            f"{lane}_flat_per_s"
        ),  # one of a few shares of the rate: 0.75 to 0.5 is one step
        PER_S(*(f"{lane}_{name}_per_s" for name in ("rate", "judged", "goodput_*", "at_*_goodput_*"))),
        CPU_US(f"{lane}_cpu_us_per_query", f"{lane}_at_*_cpu_us_per_query"),
        MIB(f"{lane}_peak_mib"),
        SHOWN(f"{lane}_at_*_defaults_percent"),
        SENDER_LATE(f"{lane}_at_*_sender_late_ms"),
        quantiles_ms(f"{lane}_at_*_"),
    )


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Return what runs are compared by: Skysail's own figures, and its ratios to the best of the others."""
    found: dict[str, float] = {}
    for row in rows:
        if row["kind"] == "skysail":
            own = {key: value for key, value in row.items() if _is_figure(value) and _OWN not in key}
            found |= {f"{row['name']}_{key}": value[0] for key, value in own.items()}
            found |= {f"{row['name']}_{key}": row[key] for key in COUNTS}
    return found | _ratios(rows)


def _ratios(rows: Sequence[Row]) -> dict[str, float]:
    ratios: dict[str, float] = {}
    latencies = ((f"at_{rate}_p50_ms", f"at_{rate}_p50") for rate in (200, 500))
    compared = (("rate_per_s", "rate"), ("flat_per_s", "flat"), ("cpu_us_per_query", "cpu"), *latencies)
    for lane, kind, (figure, end) in product((SHORTEST, UNCONVERTED, WHOLE), ("hand", "peer"), compared):
        own, other = _value(rows, lane.name, figure), best(rows, kind, figure)
        if own and other:
            ratios[f"{lane.name}_to_{kind}_ratio_{end}"] = own / other
    return ratios


def best(rows: Sequence[Row], kind: str, figure: str) -> float | None:
    """Return the best median of a figure among contenders of a kind, None where nobody has it."""
    values = [row[figure][0] for row in rows if row["kind"] == kind and row.get(figure)]
    return (max if RANKED[figure] else min)(values, default=None)


def behind(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each figure in which somebody beats one of Skysail's lanes: the best one, and who else does."""
    return [
        row
        for lane in rows
        if lane["kind"] == "skysail"
        for figure in RANKED
        if figure in lane and (row := _behind(lane, figure, rows))
    ]


def _behind(lane: Row, figure: str, rows: Sequence[Row]) -> Row | None:
    sign = 1 if RANKED[figure] else -1
    others = [row for row in rows if row["kind"] in ("hand", "peer") and figure in row]
    ahead = [row for row in others if (row[figure][0] - lane[figure][0]) * sign > 0]
    ahead.sort(key=lambda row: row[figure][0] * sign, reverse=True)
    if not ahead:
        return None
    first, *also = ahead
    names = [row["name"] for row in also]
    return {
        "lane": lane["label"],
        "figure": figure,
        "own": lane[figure][0],
        "by": first["label"],
        "value": first[figure][0],
        "also": names,
    }


def _value(rows: Sequence[Row], name: str, figure: str) -> float | None:
    return next((float(row[figure][0]) for row in rows if row["name"] == name and figure in row), None)


def _is_figure(value: object) -> bool:
    return isinstance(value, list)
