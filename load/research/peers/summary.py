"""Summarises all visits: medians and ranges, Skysail's ratios to the others, and where it is behind."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Any

from load.figures import CPU_US, MIB, PER_S, SHOWN, Better, Figures, Kind, quantiles_ms
from load.harness.recorder import SENDER_LATE
from load.research.peers.answer_audit import p999_ms
from load.research.peers.contenders import KINDS, SHORTEST, WHOLE, WHOLE_ONE
from load.research.peers.loadgen import verdict
from load.research.peers.measurement import COUNTS, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from load.research.peers.contenders import Contender

Row = dict[str, Any]

LANES = (SHORTEST.name, WHOLE.name, WHOLE_ONE.name)
RATES = (500, 3_000, 10_000)
# Figures on which contenders are ranked, and whether more is better.
RANKED: Mapping[str, bool] = {
    "drained_per_s": True,
    "cpu_us_per_query": False,
    "all_cpu_us_per_query": False,
    "peak_mib": False,
    **{f"at_{rate}_{point}_ms": False for rate in RATES for point in ("p50", "p99")},
    "judged_per_s": True,
    "judged_no_default_per_s": True,
}
_DEFAULTS = re.compile(r"at_(\d+)_defaults")
# Ratios, by the ending of their names: of which figure.
RATIOS: Mapping[str, str] = {
    "drained": "drained_per_s",
    "cpu": "cpu_us_per_query",
    "all_cpu": "all_cpu_us_per_query",
    "judged": "judged_per_s",
    "judged_no_default": "judged_no_default_per_s",
    **{f"at_{rate}_{point}": f"at_{rate}_{point}_ms" for rate in RATES for point in ("p50", "p99")},
}


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

    def visits(self) -> list[Row]:
        """Return one row for each visit, with its figures as they are; `rows` has their medians and ranges."""
        return [
            {"name": name, "visit": number, **seen.figures}
            for name, visits in self.seen.items()
            for number, seen in enumerate(visits, start=1)
        ]

    def _row(self, contender: Contender) -> Row:
        visits = self.seen[contender.name]
        names = dict.fromkeys(name for seen in visits for name in seen.figures)
        figures = {name: spread(seen.figures[name] for seen in visits if name in seen.figures) for name in names}
        figures |= _rare(visits)
        if clean := no_default_rate(figures):
            figures["no_default_per_s"] = spread([clean])
        counts = {name: sum(seen.counts[name] for seen in visits) for name in COUNTS}
        about = {key: getattr(contender, key) for key in ("name", "label", "kind", "guarantee", "processes")}
        return {**about, "rounds": len(visits), "capacity_per_s": visits[0].capacity_per_s, **figures, **counts}


def judged_rows(judged: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each of those that the judge asked about, with both readings of what it said."""
    return [
        {
            "name": said["system"],
            "label": said["label"],
            "kind": said["kind"],
            "judged_per_s": spread([verdict(said["tried"]).in_time_per_s]),
            "judged_no_default_per_s": spread([verdict(said["tried"]).no_default_per_s]),
        }
        for said in judged
    ]


def spread(values: Iterable[float]) -> list[float]:
    """Return `[median, least, most]`."""
    found = sorted(values)
    return [median(found), found[0], found[-1]]


def no_default_rate(row: Mapping[str, Any]) -> float:
    """Return the highest rate (1/s) tried up to which no round had a default, 0 if the lowest had one.

    Args:
        row: `[median, least, most]` by figure.
    """
    most = {float(found[1]): row[name][2] for name in row if (found := _DEFAULTS.fullmatch(name))}
    clean = itertools.takewhile(lambda rate: not most[rate], sorted(most))
    return max(clean, default=0.0)


def _rare(visits: Sequence[Seen]) -> dict[str, list[float]]:
    """Return p99.9 by stretch, over all visits together: one alone has too few answers for it."""
    rare: dict[str, list[float]] = {}
    for name in dict.fromkeys(name for seen in visits for name in seen.latencies_us):
        found = p999_ms([latency_us for seen in visits for latency_us in seen.latencies_us.get(name, ())])
        if found is not None:
            rare[f"{name}_p999_ms"] = spread([found])
    return rare


def declared(lane: str) -> Figures:
    """Declare Skysail's own figures in one of its lanes."""
    return Figures(
        Kind("1/s", Better.HIGHER, 0.4)(f"{lane}_no_default_per_s"),  # one of a few rates
        PER_S(f"{lane}_drained_per_s", f"{lane}_answered_per_s"),
        PER_S(f"{lane}_judged_per_s", f"{lane}_judged_no_default_per_s"),
        CPU_US(f"{lane}_*cpu_us_per_query"),
        MIB(f"{lane}_peak_mib"),
        Kind("cores")(f"{lane}_own_cores", f"{lane}_all_cores"),
        SHOWN(f"{lane}_at_*_defaults"),
        Kind("", Better.HIGHER, 0.0, 5.0)(f"{lane}_at_*_within_*ms_percent"),
        SENDER_LATE(f"{lane}_at_*_sender_late_ms"),
        quantiles_ms(f"{lane}_at_*_"),
    )


def figures(rows: Sequence[Row], cores: int) -> dict[str, float]:
    """Return what runs are compared by: Skysail's own figures, its ratios to the best of the others, impossible rates.

    A percentile that falls among defaults is no figure.
    """
    counted = {f"{row['name']}_{key}": float(row[key]) for row in rows if row["kind"] == "skysail" for key in COUNTS}
    return _own(rows) | counted | _ratios(rows) | {"impossible_rates": impossible_rates(rows, cores)}


def judged_figures(judged: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what runs of the judge are compared by."""
    rows = judged_rows(judged)
    return _own(rows) | _ratios(rows)


def _own(rows: Sequence[Row]) -> dict[str, float]:
    """Return the medians of Skysail's own figures."""
    own = [
        (f"{row['name']}_{key}", value[0])
        for row in rows
        if row["kind"] == "skysail"
        for key, value in row.items()
        if isinstance(value, list)
    ]
    return {name: value for name, value in own if math.isfinite(value)}


def impossible_rates(rows: Sequence[Row], cores: int) -> int:
    """Return how many systems have a rate that costs more CPU time than so many cores have: it is not true."""
    return sum(row["all_cores"][0] > cores for row in rows if "all_cores" in row)


def _ratios(rows: Sequence[Row]) -> dict[str, float]:
    ratios: dict[str, float] = {}
    for lane, kind, (end, figure) in product(LANES, KINDS, RATIOS.items()):
        own, other = _value(rows, lane, figure), best(rows, kind, figure)
        if own and other and math.isfinite(own) and math.isfinite(other):
            ratios[f"{lane}_to_{kind}_ratio_{end}"] = own / other
    return ratios


def best(rows: Sequence[Mapping[str, Any]], kind: str, figure: str) -> float | None:
    """Return the best median of a figure among contenders of a kind, None where nobody has it."""
    row = best_row(rows, kind, figure)
    return None if row is None else float(row[figure][0])


def best_row(rows: Sequence[Mapping[str, Any]], kind: str, figure: str) -> Mapping[str, Any] | None:
    """Return the row that is best in a figure among contenders of a kind."""
    choose: Callable[..., Mapping[str, Any] | None] = max if RANKED[figure] else min
    having = [row for row in rows if row["kind"] == kind and row.get(figure)]
    return choose(having, key=lambda row: row[figure][0], default=None)


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
    others = [row for row in rows if row["kind"] in KINDS and figure in row]
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
