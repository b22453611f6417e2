"""The comparison with other systems as tables and as a page. Its prose is in `benchmark.md`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from load.research.peers.answer_audit import OBJECTIVES_MS, POINTS
from load.research.peers.contenders import DIRECT
from load.results.tables import Table, left_out, number, present, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from load.harness.environment import Environment
    from load.results.results import Result

    Row = Mapping[str, Any]

_TEXT: Final = Path(__file__).with_name("benchmark.md")
_MARK: Final = "<!-- tables and notes -->\n"
_RATES: Final = {
    "rate_per_s": "queries/s",
    "flat_per_s": "flat at",
    "cpu_us_per_query": "CPU ms/1,000",
    "peak_mib": "peak MiB",
}
_LATENCY: Final = {
    **{f"{point}_ms": point for point in POINTS},
    "p999_ms": "p999 of all rounds",
    "defaults_percent": "defaults %",
    "sender_late_ms": "sender late",
}


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    systems = result.series["systems"]
    shown = [_rates(systems), _goodput(systems)]
    shown += [_latency(systems, name) for name in _stretches(systems)]
    named = (("behind", _behind), ("judged", _judged), ("grid", _grid), ("direct", _direct), ("left_out", left_out))
    return [*shown, *(table(result.series[name]) for name, table in named if result.series.get(name))]


def page(result: Result, environment: Environment) -> str:
    """Return the page in Markdown; `environment` is that of `load.harness.environment`, and the broker."""
    machine = f"Measured on {environment['cores_usable']} cores of {environment['processor']}, shared by broker, sender"
    introduction, yourself = _TEXT.read_text(encoding="utf-8").split(_MARK)
    software = f"Software: {environment['broker']}, Python {environment['python']}"
    measured = f"{machine} and system. {software}. Run: {result.given}.\n"
    shown = [f"## {table.title}\n\n{table.markdown()}" for table in tables(result)]
    return introduction + "\n".join([measured, *shown, *(f"- {note}" for note in result.notes), yourself])


def _rates(systems: Sequence[Row]) -> Table:
    counts = ("lost", "unanswered", "duplicates", "wrong", "defaults")
    shown = present(_RATES, systems)
    rows = tuple(
        (
            row["label"],
            row["guarantee"],
            *(_spread(row, figure) for figure in shown),
            *(f"{row[count]:,}" for count in counts),
        )
        for row in systems
    )
    heads = ("system", "guarantee", *shown.values(), *counts)
    return Table("Rate, CPU time and memory; what became of all queries", heads, rows)


def _goodput(systems: Sequence[Row]) -> Table:
    heads = ("system", *(f"within {objective} ms" for objective in OBJECTIVES_MS))
    figures = [f"goodput_{objective}ms_per_s" for objective in OBJECTIVES_MS]
    rows = tuple((row["label"], *(_spread(row, figure) for figure in figures)) for row in systems)
    return Table("Goodput: right answers a second, at the best of the rates tried", heads, rows)


def _latency(systems: Sequence[Row], stretch: str) -> Table:
    shown = present({f"{stretch}_{figure}": head for figure, head in _LATENCY.items()}, systems)
    rows = tuple(
        (
            row["label"],
            f"{_rate(row, stretch):,.0f}",
            *(_spread(row, figure) for figure in shown),
        )
        for row in systems
        if f"{stretch}_p50_ms" in row
    )
    share = stretch.removeprefix("at_").replace("pct", " % of its own rate")
    title = f"Latency in ms at {share if share != stretch[3:] else f'{share}/s'}"
    return Table(title, ("system", "queries/s", *shown.values()), rows)


def _stretches(systems: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key.removesuffix("_p50_ms") for row in systems for key in row if key.endswith("_p50_ms")))


def _rate(row: Row, stretch: str) -> float:
    number = stretch.removeprefix("at_")
    if number.endswith("pct"):
        return float(row["capacity_per_s"]) * float(number.removesuffix("pct")) / 100
    return float(number)


def _behind(rows: Sequence[Row]) -> Table:
    heads = ("lane", "figure", "Skysail", "best", "by", "ahead too")
    lines = tuple(
        (row["lane"], row["figure"], number(row["own"]), number(row["value"]), row["by"], ", ".join(row["also"]))
        for row in rows
    )
    return Table("Where somebody is ahead of Skysail", heads, lines)


def _judged(rows: Sequence[Row]) -> Table:
    lines = tuple(
        (row["label"], number(row["valid_per_s"]), ", ".join(_tried(row))) for row in sorted(rows, key=_is_system)
    )
    heads = ("system", "valid at queries/s", "tried (p99 ms)")
    return Table("MLCommons LoadGen, Server scenario: 99 % within 50 ms", heads, lines)


def _is_system(row: Row) -> bool:
    return bool(row["system"] != DIRECT.name)


def _tried(row: Row) -> Iterator[str]:
    for said in row["tried"]:
        verdict = "valid" if said["valid"] else "invalid"
        yield f"{said['rate_per_s']:,.0f}: {verdict} ({said['p99_ms']:.1f})"
    if "failed" in row:
        yield row["failed"]


def _grid(rows: Sequence[Row]) -> Table:
    heads = ("system", "setting", "queries/s", "in time (50 ms)", "p99 ms at 500/s", "chosen")
    lines = tuple(
        (
            row["label"],
            row["setting"],
            _worked(row["rate_per_s"]),
            number(row["goodput_per_s"]),
            number(row["p99_ms"]),
            "yes" * row["chosen"],
        )
        for row in rows
    )
    return Table("The grid of settings", heads, lines)


def _worked(value: float | None) -> str:
    return "does not work" if value is None else number(value)


def _direct(rows: Sequence[Row]) -> Table:
    heads = ("queries/s", "p50 ms", "p99 ms", "sender late ms", "saturated")
    keys = ("rate_per_s", "p50_ms", "p99_ms", "late_ms")
    lines = tuple((*(number(row[key]) for key in keys), "yes" * row["saturated"]) for row in rows)
    return Table("No system: sender → one topic → sink", heads, lines)


def _spread(row: Row, figure: str) -> str:
    return spread(row[figure]) if figure in row else ""
