"""The comparison as tables, and the page that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from load.research.peers.answer_audit import OBJECTIVES_MS, POINTS
from load.research.peers.contenders import DIRECT
from load.results.tables import Table, left_out, number, present, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from load.results.results import Result

    Row = Mapping[str, Any]

INTRODUCTION: Final = """\
# Beside what one would use instead

Written by `skysail load run peers --docs docs/benchmark.md`; the end of this page says how to run it yourself.

## What to doubt here

The figures in this list are not of this page's runs. They come from a review of commit 6363737 with this harness, of
24 November 2026: two cores of an AMD EPYC, a broker that had just been started, each case run once or twice.

- **The lead over the hand loops is a codec.** Everybody else reads and writes Skysail's records with fastavro; Skysail
  has a codec in C. The review gave the hand loops that codec, and the model as arrays. The confluent-kafka loop then
  did 106,000 and 146,000 queries a second at 5.8 and 5.1 µs of CPU; Skysail's shortest path did 54,000 and 59,000 at
  12.6 and 11.7 µs. FastStream, Bytewax and Quix Streams spend more than half of their CPU time in fastavro, too.
- **The whole loop's rate stops before anything is learnt.** The clock stops at 95 % of the predictions. The review
  counted to the last observation learnt and committed: 17,000 to 18,000 queries a second, where this measure says
  29,000 to 49,000. "flat at" and goodput are nearer to what can be kept up.
- **CPU time is that of the system's own processes.** The broker's is left out, and Redis's. A query of the whole loop
  takes four legs over Kafka. In the review the broker worked about as much as all roles together, or more, at 500 to
  10,000 queries a second, and a quarter to half as much while a backlog was drained.
- **Processes differ.** The whole loop is five processes on two cores; a hand loop, FastStream, Bytewax, Quix Streams,
  Faust and MLServer have one each. Nobody ran a hand loop in two processes.
- **Defaults** are counted over all stretches. In the backlogs, of which rate and CPU time are told, there are next to
  none; under overload they end at the deadline, and so bound the latency that is shown.
- **One setting for everything.** The grid chooses by goodput. Where it chose a linger of 5 ms, latencies have those
  5 ms in them: see the grid for the same system's p99 without.
- **The gain by batching is another page's**, and has two values. `skysail load run controllers` has found 28.7 times
  for a linear model under scikit-learn (`convert="none"`). As it is served by default, converted to arrays, the review
  found 16.8 times.
- **Stretches are short**, two seconds unless said otherwise, on one broker with one replica, all on one machine. A p999
  rests on a few answers. MLCommons' own rule asks for a minute.

## What was compared

Everybody reads the same queries from Kafka (Avro, 64 float32, four partitions), asks the same logistic regression and
writes predictions back: everybody with fastavro and scikit-learn, Skysail with its codec and, one lane apart, the model
as arrays. Each has the setting of the grid below that had the highest goodput. Rounds are interleaved; figures are
medians with the least and the most. The rate is that of draining a backlog: from its first query to the time when the
broker had 95 % of the predictions. Latency counts from the time when a query was meant to be sent, default answers
included; goodput counts right answers within the objective at the best of the rates tried, which for whoever is faster
than sender and sink alone are not the highest it can do. CPU time is that of all processes of a system; memory is the
sum of their peaks. Every answer is checked by id against the model. The code of each is a file in
`load/research/peers/`, 45 to 90 lines around one shared helper, that of the hand loops in `load/baseline/`; the
environments are pinned in `load/research/peers/requirements/`.
"""
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
YOURSELF: Final = """
## Run it yourself

    skysail load run peers --short                              # six systems at their best known settings: 6 minutes
    skysail load run peers --short --only faust --only skysail_whole  # others
    skysail load run peers --docs docs/benchmark.md             # everybody, the grid, five rounds, the judge: 50
    skysail load run forest                                     # a model that needs batching: hours; --short 40
    skysail load run trio                                       # one slow model among three: 8; --short 2
    skysail load run scale                                      # what grows, and how: 8; --short 4
    cd reports/load && skysail load page peers.json forest.json trio.json scale.json   # this page, from those results

A broker and Redis of its own are started unless `--broker` and `--redis` name others. Each peer is installed, when it
is first needed, into an environment of its own under `~/.cache/skysail/peers` (or `$SKYSAIL_CACHE`), never beside
Skysail; what cannot be installed stands under "Left out" with its reason. Let nothing else run: two cores hold
broker, sender and system, and the table without a system says what the harness alone takes at each rate tried.
`skysail load compare` tells two results apart.
"""


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    systems = result.series["systems"]
    shown = [_rates(systems), _goodput(systems)]
    shown += [_latency(systems, name) for name in _stretches(systems)]
    named = (("behind", _behind), ("judged", _judged), ("grid", _grid), ("direct", _direct), ("left_out", left_out))
    return [*shown, *(table(result.series[name]) for name, table in named if result.series.get(name))]


def page(result: Result, environment: Mapping[str, Any]) -> str:
    """Return the page in Markdown; `environment` is that of `load.harness.environment`, and the broker."""
    given = ", ".join(f"{name} {value}" for name, value in result.parameters.items())
    machine = f"Measured on {environment['cores_usable']} cores of {environment['processor']}, shared by broker, sender"
    parts = [INTRODUCTION, f"{machine} and system; {environment['broker']}, Python {environment['python']}; {given}.\n"]
    parts += [f"## {table.title}\n\n{table.markdown()}" for table in tables(result)]
    return "\n".join([*parts, *(f"- {note}" for note in result.notes), YOURSELF])


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
