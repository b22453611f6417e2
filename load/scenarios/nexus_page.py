"""Results of `nexus` as a table, as the page docs/nexus.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table
from load.scenarios.nexus import FIGURES, NAME

if TYPE_CHECKING:
    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = f"{NAME}.svg"
_WAYS: Final = {
    "planned": "planned, knows nothing beforehand",
    "spread": "spread evenly, once, each model on two hosts",
    "known": "packed once for the day's peaks, known beforehand",
    "workers": "a worker a model",
}
_INTRODUCTION: Final = """\
# Hosts by plan

Written by `skysail load run nexus --docs docs/nexus.md`. [Planning](planning.md) says how hosts are planned.

Ten applications with three models each are asked for a day. The counts are Numenta's, of how often ten companies were
named on Twitter, and are played as they are, only faster; within five minutes rows come at random. All ways of placing
models have the same hosts, with the worker's own batcher. **Everything is simulated**: hosts, Kafka and time. Batch
times are those that Clockwork published for a V100, and weights are read from a disk at 500 MB/s.
"""
_READING: Final = """\
- *Hosts* are the fewest with which 99 % of the rows were answered in time, found by halving.
- The day was chosen: it is the calmest of nine that were looked at. *Spread* was given two hosts a model, since with
  whole models on one it never came to 99 %. On a day with steeper rises the planner, which sees a rise only afterwards,
  had 98.99 % with 30 hosts.
- *Planned* starts without any rate, and sees each rate after it was asked. When the plan changes, all hosts stand still
  for 200 ms. A model that is not in memory is loaded while its host does nothing else.
- *Known* could not be built: nobody knows the peaks of a day beforehand.
- *A worker a model* has a host's whole memory and processor for each model, as a process of its own has on a machine
  with enough cores.
- Nexus (SOSP'19) reports 1.8 to 12.7 times the rate of Clipper and TensorFlow Serving on 16 GPUs, with at least 99 % in
  time. That compares rates on real GPUs, this compares numbers of simulated hosts. What both say is how much one host
  does for several models; the ratio here depends on how unequal the applications are.
"""


def tables(result: Result) -> list[Table]:
    """Return the ways of placing models, side by side."""
    found = result.figures
    rows = tuple(
        (name, f"{found[f'{way}_hosts']:.0f}", f"{found[f'{way}_in_time']:.2%}") for way, name in _WAYS.items()
    )
    return [Table("Hosts for 99 % in time", ("models are", "hosts", "in time"), rows)]


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    found = result.figures
    machine = (
        f"{found['rows']:,.0f} rows of {found['models']:.0f} models in {found['simulated_s']:,.0f} simulated seconds,"
        f" {result.given}. Simulated by two processes on {environment['processor']}."
    )
    said = (
        f"The plan was made {found['plans']:.0f} times, and was another one {found['planned_changes']:.0f} times;"
        f" {found['planned_moves']:.0f} models moved and {found['planned_loads']:.0f} were loaded. It used"
        f" {found['planned_mean_hosts']:.1f} hosts on the average. The longest planning took {found['plan_s']:.2f} s."
    )
    shown = [
        textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n" for text in (machine, said)
    ]
    if result.parameters.get("form") == "short":
        shown[0] += "\n**This is the short form: the first two hours of the day, which are at night.**\n"
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    picture = f"![Hosts that were used, and rows that were asked, over the day]({_PICTURE})\n"
    table = tables(result)[0]
    parts = [_INTRODUCTION, shown[0], table.markdown(), shown[1], picture, "## How to read this\n", _READING.rstrip()]
    return "\n".join([*parts, *notes, ""])


def plots(result: Result) -> dict[str, str]:
    """Return the picture: what was asked, and the hosts that the plan used, over the day."""
    figure, (left, right) = panels(2, (8.6, 2.9))
    course = result.series["course"]
    hours = [row["second"] / len(course) * 24 for row in course]
    left.plot(hours, [row["asked"] for row in course], color=COLOURS[0], linewidth=0.8)
    left.set_ylabel("rows a second")
    right.step(hours, [row["hosts"] for row in course], color="black", where="post", label="planned")
    for way, colour in (("spread", COLOURS[1]), ("known", COLOURS[2]), ("workers", COLOURS[4])):
        right.axhline(result.figures[f"{way}_hosts"], color=colour, label=_WAYS[way])
    right.set_ylabel("hosts")
    for axes in (left, right):
        axes.set_xlabel("part of the day in 24ths")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7)
    return {_PICTURE: svg(figure)}
