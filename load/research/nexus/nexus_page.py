"""Results of `nexus` as a table, as the page docs/nexus.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.research.nexus import nexus
from load.research.nexus.nexus import FIGURES, NAME
from load.research.nexus.nexus_live import HOSTS, SLO_MS, SLOWER
from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = f"{NAME}.svg"
_WAYS: Final = {
    "planned": "planned, knows nothing beforehand",
    "spread": "spread evenly, once, each model on two hosts",
    "known": "packed once for the day's peaks, known beforehand",
    "workers": "a worker a model",
}
_MEASURED: Final = {"planned": "planned, from nothing", "spread": "spread evenly, as many on each host"}
_INTRODUCTION: Final = """\
# Hosts by plan

Written by `skysail load run nexus --docs docs/nexus.md`. [Planning](planning.md) says how hosts are planned.

Ten applications with three models each are asked for a day. The counts are Numenta's, of how often ten companies were
named on Twitter, and are played as they are, only faster; within five minutes rows come at random. All ways of placing
models have the same hosts, with the worker's own batcher. **This day is simulated**: hosts, Kafka and time. Batch times
are those that Clockwork published for a V100, and weights are read from a disk at 500 MB/s.
"""
_READING: Final = """\
- *Hosts* are the fewest with which 99 % of the rows were answered in time, found by halving.
- The day was chosen: it is the calmest of nine that were looked at. *Spread* was given two hosts a model, since with
  whole models on one it never came to 99 %. On a day with steeper rises the planner, which sees a rise only afterwards,
  had 98.99 % with 30 hosts.
- *Planned* starts without any rate, and sees each rate after it was asked. When the plan changes, all hosts stand still
  for 200 ms. A model that is not in memory is loaded while its host does nothing else.
- *Known* could not be built: nobody knows the peaks of a day beforehand. It keeps room for all of them all day long.
- *A worker a model* has a host's whole memory and processor for each model, as a process of its own has on a machine
  with enough cores.
- Nexus (SOSP'19) reports 1.8 to 12.7 times the rate of Clipper and TensorFlow Serving on 16 GPUs, with at least 99 % in
  time. That compares rates on real GPUs, this compares numbers of simulated hosts. What both say is how much one host
  does for several models; the ratio here depends on how unequal the applications are.
"""
_MEASURED_READING: Final = """\
Selection, the broker and the sender share the processors with the hosts. Whatever is not answered by its model in time
is a miss. Models sleep, so hosts hardly take a processor's time from each other; real models do.
"""


def tables(result: Result) -> list[Table]:
    """Return the ways of placing models, side by side: simulated, and on real hosts."""
    found = result.figures
    parts = []
    if "planned_hosts" in found:
        ways = tuple(
            (name, f"{found[f'{way}_hosts']:.0f}", f"{found[f'{way}_in_time']:.2%}") for way, name in _WAYS.items()
        )
        parts.append(Table("Hosts for 99 % in time, simulated", ("models are", "hosts", "in time"), ways))
    if "measured_queries" in found:
        rows = tuple((name, *_measured_row(found, f"measured_{lane}")) for lane, name in _MEASURED.items())
        heads = ("models are", "in time", "half within, ms", "99 % within, ms")
        parts.append(Table(f"{HOSTS} hosts on this machine, measured", heads, rows))
    return parts


def _measured_row(found: Mapping[str, float], lane: str) -> tuple[str, ...]:
    return f"{found[f'{lane}_goodput']:.2%}", f"{found[f'{lane}_p50_ms']:.1f}", f"{found[f'{lane}_p99_ms']:.1f}"


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    found, shown = result.figures, [*tables(result)]
    parts = [_INTRODUCTION]
    if "planned_hosts" in found:
        picture = f"![Hosts that were used, and rows that were asked, over the day]({_PICTURE})\n"
        parts += [_played(result, environment), shown.pop(0).markdown(), _planning(found), picture]
    if "measured_queries" in found:
        parts += [f"## {HOSTS} hosts on this machine, measured\n", _asked(found), shown.pop(0).markdown()]
        parts += [_moving(found), _MEASURED_READING]
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    return "\n".join([*parts, "## How to read this\n", _READING.rstrip(), *notes, ""])


def _played(result: Result, environment: Environment) -> str:
    found = result.figures
    said = _filled(
        f"{found['rows']:,.0f} rows of {found['models']:.0f} models in {found['simulated_s']:,.0f} simulated seconds,"
        f" {result.given}. Simulated by two processes on {environment['processor']}."
    )
    if result.parameters.get("form") == "short":
        said += "\n**This is the short form: the first two hours of the day, which are at night.**\n"
    return said


def _planning(found: Mapping[str, float]) -> str:
    return _filled(
        f"The plan was made {found['plans']:.0f} times, and was another one {found['planned_changes']:.0f} times;"
        f" {found['planned_moves']:.0f} models moved and {found['planned_loads']:.0f} were loaded. It used"
        f" {found['planned_mean_hosts']:.1f} hosts on the average. The longest planning took {found['plan_s']:.2f} s."
        f" A worker a model takes {found['workers_ratio']:.1f} times as many hosts, and models that are spread"
        f" {found['spread_ratio']:.1f} times as many."
    )


def _asked(found: Mapping[str, float]) -> str:
    return _filled(
        f"{found['measured_models']:.0f} of the models are asked {found['measured_queries']:,.0f} queries,"
        f" {found['measured_per_s']:,.0f} a second, as the day begins and as fast; each is due after {SLO_MS:g} ms."
        f" These are real hosts on a real Kafka. The models sleep {SLOWER} times as long as a V100 takes, and are asked"
        " as much less often."
    )


def _moving(found: Mapping[str, float]) -> str:
    return _filled(
        f"While queries were sent the plan was another one {found['measured_changes']:.0f} times, and"
        f" {found['measured_moves']:.0f} models moved. {found['measured_late_by_changes']:.2%} of all queries were"
        " missed within the 2 s after a change."
    )


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def plots(result: Result) -> dict[str, str]:
    """Return the picture: what was asked, and the hosts that the plan used, over the day."""
    if "course" not in result.series:
        return {}
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


SCENARIO = Scenario(
    nexus.NAME,
    nexus.FIGURES,
    nexus.run,
    "a day of thirty models, simulated: hosts needed for 99 % in time, planned, spread, and a worker a model",
    tables=tables,
    page=page,
    plots=plots,
    parts=nexus.PARTS,
    short=True,
)
