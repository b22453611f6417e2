"""The comparison with other systems: its tables, and who is the best of each kind."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from load.research.peers import scenario
from load.research.peers.answer_audit import OBJECTIVES_MS, POINTS
from load.research.peers.contenders import KINDS, SHORTEST, WHOLE, WHOLE_ONE
from load.research.peers.loadgen import verdict
from load.research.peers.summary import LANES, RATIOS, behind, best_row, judged_rows, no_default_rate
from load.results.tables import Table, left_out, number, present
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from load.results.results import Result

    Row = Mapping[str, Any]

_UNKNOWN: Final = "(not measured)"
_RATES: Final = {
    "drained_per_s": "queries/s",
    "answered_per_s": "answered/s",
    "cpu_us_per_query": "own CPU us/query",
    "services_cpu_us_per_query": "broker and Redis",
    "own_cores": "own cores",
    "all_cores": "cores in all",
    "peak_mib": "peak MiB",
}
_COUNTS: Final = {
    "lost": "lost",
    "unanswered": "unanswered",
    "duplicates": "duplicates",
    "wrong": "wrong",
    "backlog_defaults": "defaults in the backlog",
}
_LATENCY: Final = {
    **{f"{point}_ms": point for point in POINTS},
    "p999_ms": "p99.9 of all rounds",
    **{f"within_{objective}ms_percent": f"% within {objective} ms" for objective in OBJECTIVES_MS},
    "defaults": "defaults",
    "cpu_us_per_query": "own CPU us/query",
    "all_cpu_us_per_query": "with broker and Redis",
    "sender_late_ms": "sender late",
}
_KINDS: Final = {
    "floor": "the best floor: Skysail's codec, arrays, nothing else",
    "hand": "the best loop by hand: fastavro, scikit-learn",
    "peer": "the best peer",
}


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    systems, judged = result.series.get("systems", ()), judged_rows(result.series.get("judged", ()))
    shown = [_ratios(result, kind) for kind in KINDS]
    shown += [_rates(systems), _clean(systems)]
    shown += [_latency(systems, name) for name in _stretches(systems)]
    named = (("judged", _judged), ("grid", _grid), ("direct", _direct), ("left_out", left_out))
    shown.append(_behind([*result.series.get("behind", ()), *behind(judged)]))
    shown += [table(result.series[name]) for name, table in named if result.series.get(name)]
    return [table for table in shown if table.rows]


def words(result: Result) -> dict[str, Any]:
    """Return what the page says besides: the run's figures in words, and `best_KIND_FIGURE`, who has the best one."""
    said = defaultdict(lambda: _UNKNOWN, {name: _short(value) for name, value in result.figures.items()})
    rows = [*result.series.get("systems", ()), *judged_rows(result.series.get("judged", ()))]
    for kind in KINDS:
        for end, figure in RATIOS.items():
            if (row := best_row(rows, kind, figure)) is not None:
                said[f"best_{kind}_{end}"] = row["label"]
    return {"said": said}


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.0f}"  # two decimals are for ratios


def _ratios(result: Result, kind: str) -> Table:
    """Return a lane's figures over those of the best of a kind, figure by figure."""
    ends = [end for end in RATIOS if any(f"{lane}_to_{kind}_ratio_{end}" in result.figures for lane in LANES)]
    labels = {lane.name: lane.label for lane in (SHORTEST, WHOLE, WHOLE_ONE)}
    rows = []
    for lane in LANES:
        values = [result.figures.get(f"{lane}_to_{kind}_ratio_{end}") for end in ends]
        if any(value is not None for value in values):
            rows.append((labels[lane], *("" if value is None else f"{value:.2f}" for value in values)))
    heads = ("times", *(end.removeprefix("at_").replace("_", " ") for end in ends))
    return Table(f"Beside {_KINDS[kind]}", heads, tuple(rows))


def _rates(systems: Sequence[Row]) -> Table:
    shown = present(_RATES, systems)
    rows = tuple(
        (
            row["label"],
            row["guarantee"],
            number(row["processes"]) if row["processes"] else "its own",
            *(_spread(row, figure) for figure in shown),
            *(number(row[count]) for count in _COUNTS),
        )
        for row in systems
    )
    heads = ("system", "guarantee", "processes", *shown.values(), *_COUNTS.values())
    return Table("A backlog: rate, CPU time and memory", heads, rows)


def _clean(systems: Sequence[Row]) -> Table:
    paced = [row for row in systems if any(figure.endswith("_defaults") for figure in row if figure.startswith("at_"))]
    rows = tuple((row["label"], number(no_default_rate(row))) for row in paced)
    return Table("The highest rate tried up to which no round had a default", ("system", "queries/s"), rows)


def _latency(systems: Sequence[Row], stretch: str) -> Table:
    shown = present({f"{stretch}_{figure}": head for figure, head in _LATENCY.items()}, systems)
    rows = tuple(
        (row["label"], *(_spread(row, figure) for figure in shown)) for row in systems if f"{stretch}_p50_ms" in row
    )
    rate = float(stretch.removeprefix("at_"))
    return Table(f"Latency in ms at {rate:,.0f}/s", ("system", *shown.values()), rows)


def _stretches(systems: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key.removesuffix("_p50_ms") for row in systems for key in row if key.endswith("_p50_ms")))


def _behind(rows: Sequence[Row]) -> Table:
    heads = ("lane", "figure", "Skysail", "best", "by", "ahead too")
    lines = tuple(
        (row["lane"], row["figure"], _number(row["own"]), _number(row["value"]), row["by"], ", ".join(row["also"]))
        for row in rows
    )
    return Table("Where somebody is ahead of Skysail", heads, lines)


def _judged(rows: Sequence[Row]) -> Table:
    lines = tuple((row["label"], *map(number, verdict(row["tried"])), ", ".join(_tried(row))) for row in rows)
    heads = ("system", "queries/s, a default is late", "queries/s, no default", "asked for a minute each (p99 ms)")
    return Table("MLCommons LoadGen, Server scenario: 99 % within 50 ms, read in two ways", heads, lines)


def _tried(row: Row) -> Iterator[str]:
    for said in row["tried"]:
        verdict = "valid" if said["valid"] else "invalid"
        defaults = f", {said['defaults']:,} defaults" if said.get("defaults") else ""
        yield f"{said['rate_per_s']:,.0f}: {verdict} ({said['p99_ms']:.1f}{defaults})"
    if "failed" in row:
        yield row["failed"]


def _grid(rows: Sequence[Row]) -> Table:
    heads = ("system", "setting", "queries/s", "p50 ms at 500/s", "% within 50 ms at half its rate", "best for")
    lines = tuple(
        (
            row["label"],
            row["setting"],
            "does not work" if row["rate_per_s"] is None else number(row["rate_per_s"]),
            _number(row["p50_ms"]),
            number(row["in_time_percent"]),
            row["chosen"],
        )
        for row in rows
    )
    return Table("The grid of settings", heads, lines)


def _direct(rows: Sequence[Row]) -> Table:
    heads = ("queries/s", "p50 ms", "p99 ms", "sender late ms", "saturated")
    keys = ("rate_per_s", "p50_ms", "p99_ms", "late_ms")
    lines = tuple((*(number(row[key]) for key in keys), "yes" * row["saturated"]) for row in rows)
    return Table("No system: sender → one topic → sink", heads, lines)


def _spread(row: Row, figure: str) -> str:
    if figure not in row:
        return ""
    middle, least, most = (_number(value) for value in row[figure])
    return middle if least == most else f"{middle} ({least} to {most})"


def _number(value: float | None) -> str:
    """Return a number; a percentile among defaults has none."""
    return "default" if value is not None and math.isinf(value) else number(value)


SCENARIO = Scenario(
    scenario.NAME,
    scenario.FIGURES,
    scenario.run,
    "Skysail beside hand-written loops and other systems: rate, goodput, latency, CPU time, memory",
    tables=tables,
    page="research/peers/peers.md.j2",
    words=words,
    seconds=scenario.SECONDS,
    parts=scenario.PARTS,
    short=True,
)
