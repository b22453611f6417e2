"""Results of `clockwork` as tables and as the page docs/clockwork.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from load.results.pages import section
from load.results.tables import Table
from load.scenarios.clockwork import FIGURES, LANES, OBJECTIVES_MS, PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.harness.environment import Environment
    from load.results.results import Result

TITLE: Final = "Many models on one host"
_INTRODUCTION: Final = """\
200 models of which a tenth fit into memory, 100 ms for an answer, and tweets about ten companies as they were counted
in five minutes each (NAB): no count is changed or left out, and time is divided. Which of a company's twenty models a
query asks is drawn by Zipf's law. Everything that a model does not answer in time is a miss. Written by
`skysail load run clockwork --docs docs/clockwork.md`.

All of it is simulated: the kernel's own schedules and residency, in virtual time. The *profiled* models are those of
Clockwork (OSDI'20) by its published times on a V100; they only take time, as in its own `docs/withoutgpus.md`, and are
loaded beside executions. The *real* ones are three packages that are measured on this machine, copied to 200; one
process loads and runs them in turn. The way to that process is left out, as are Kafka and selection.

The load is 70 % on average, reckoned with batches of one row. The counts are bursty: many of the five minutes ask for
more than the host can do, so no order could answer all. The targets, 99.99 % for profiled models and 99.9 % for real
ones, are of all queries; the profiled ones miss theirs. A second share is of the queries that come *within* the load,
in five minutes that ask, as those before them, for no more than 70 %. A query is cold if its model is not in memory
when it comes. With 20 ms and less most cold queries cannot be in time, because loading takes 4 to 20 ms.

How unequal the models are decides most. The exponent of Zipf's law, 2.5, was chosen among five: with 1.5 some 97 % of
the profiled models' queries were in time in the short form, with 1.0 some 88 %.

Clockwork itself reports 58 of 208 million queries beyond 100 ms, on twelve GPUs with a trace of Azure's functions.
There hundreds of models fit into memory, and bursts of one function are small beside the whole. With one objective for
all queries and one host, the latest feasible start is nearly the order in which they came, so `fifo` is close. Where a
burst asks for more than the host can do, `clockwork` refuses at once what `fifo` lets wait until it expires.
"""
_HEADS: Final = {
    "goodput": "in time",
    "goodput_within": "within the load",
    "cold_share": "cold",
    "cold_goodput": "cold in time",
    "refused_share": "refused",
    "expired_share": "expired",
    "late_share": "late",
    "no_model_share": "no model",
}
_COSTS: Final = {"rows_a_batch": "rows a batch", "loads_per_s": "loads a second", "busy": "busy"}


def tables(result: Result) -> list[Table]:
    """Return the tables of the parts that were run."""
    found = []
    for part in PARTS[:2]:
        if f"{part}_queries" in result.figures:
            found += [_outcomes(part, result.figures), _costs(part, result.figures)]
    if any(name.startswith("objective_") for name in result.figures):
        found.append(_objectives(result.figures))
    return found


def _outcomes(part: str, figures: Mapping[str, float]) -> Table:
    rows = tuple(
        (label, *(f"{figures[f'{part}_{lane}_{name}']:.3%}" for name in _HEADS)) for lane, label in LANES.items()
    )
    queries, per_s = figures[f"{part}_queries"], figures[f"{part}_per_s"]
    return Table(
        f"{part.capitalize()} models: {queries:,.0f} queries, {per_s:,.0f} a second", ("", *_HEADS.values()), rows
    )


def _costs(part: str, figures: Mapping[str, float]) -> Table:
    heads = ("", *_COSTS.values(), "predicted too short", "p99 by", "predicted too long", "p99 by")
    rows = []
    for lane, label in LANES.items():
        at = {
            name.removeprefix(f"{part}_{lane}_"): value for name, value in figures.items() if f"{part}_{lane}_" in name
        }
        errors = [(at[f"{side}_share"], at[f"{side}_p99_us"]) for side in ("under", "over")]
        told = [text for share, us in errors for text in (f"{share:.1%}", f"{us:,.0f} us")]
        rows.append((label, *(f"{at[name]:.2f}" for name in _COSTS), *told))
    return Table(f"{part.capitalize()} models: what it took", heads, tuple(rows))


def _objectives(figures: Mapping[str, float]) -> Table:
    rows = tuple(
        (f"{ms} ms", *(f"{figures[f'objective_{ms}_{lane}_goodput_within']:.3%}" for lane in ("clockwork", "fifo")))
        for ms in OBJECTIVES_MS
    )
    return Table("Profiled models: in time within the load, by objective", ("", "clockwork", "fifo, aimd"), rows)


def page(result: Result, environment: Environment) -> str:
    """Return the page, with a plot that is drawn from the text."""
    text = section(result, environment, TITLE, _INTRODUCTION, tables(result), FIGURES).replace("## ", "# ", 1)
    return (
        text + _plot(result.figures) if f"objective_{OBJECTIVES_MS[0]}_fifo_goodput_within" in result.figures else text
    )


def _plot(figures: Mapping[str, float]) -> str:
    """Return the shares in time by objective as a chart in Mermaid, which pages on GitHub and GitLab show."""
    lines = [
        ", ".join(f"{100 * figures[f'objective_{ms}_{lane}_goodput_within']:.2f}" for ms in OBJECTIVES_MS)
        for lane in ("clockwork", "fifo")
    ]
    axis = ", ".join(f'"{ms}"' for ms in OBJECTIVES_MS)
    return (
        "\n```mermaid\nxychart-beta\n"
        '    title "In time within the load (%): clockwork first, fifo second"\n'
        f'    x-axis "objective (ms)" [{axis}]\n    y-axis "%" 0 --> 100\n'
        f"    line [{lines[0]}]\n    line [{lines[1]}]\n```\n"
    )
