"""Results of `pretzel` as tables, as the page docs/pretzel.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

from load.models.pipelines import FAMILIES
from load.research.pretzel import pretzel
from load.research.pretzel.pretzel import FIGURES, NAME
from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table, number
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = f"{NAME}.svg"
_WAYS: Final = {
    "processes": "one process each, scikit-learn",
    "staged": "one process each, stages",
    "sklearn": "one process, scikit-learn",
    "alone_0": "one process, stages, nothing shared",
    "shared_0": "store, 0 % have common operators",
    "shared_50": "store, 50 %",
    "shared_100": "store, 100 %",
}
_INTRODUCTION: Final = """\
# Pipelines that share their steps

Written by `skysail load run pretzel --docs docs/pretzel.md`. [Pipelines in stages](runtimes.md#pipelines-in-stages)
says how pipelines are packaged so, and what can be.

There are two families of pipelines. *Sentiment* is of texts: words and pairs of them, and three or four characters of
words, each weighed by TF-IDF, then a linear classifier. *Attendees* is of rows of 40 numbers: scaled, then PCA,
distances from the centres of KMeans, and ranges, then boosted trees. Each family has five operators that its pipelines
may have in common. The last step is every pipeline's own. Texts are made of words, and words of letters, from seeds;
nobody wrote them.
"""
_READING: Final = """\
- *One process each, scikit-learn* is how such a model runs without stages and without a host: each process imports
  scikit-learn, which is most of its memory. *In stages* none does. Memory is PSS: pages that n processes share count
  for 1/n. It was measured at these numbers of processes, and is not multiplied.
- *One process, scikit-learn* has no second copy of any library, only of the operators. It is the fair comparison.
- *Cold* is the time from nothing to the first answer of a pipeline, in a process that runs: manifest, steps that the
  store lacks, plan, prediction. Files are in the system's cache. With 0 % that reads and checks a whole vocabulary. A
  pipeline of texts then takes 4.6 ms of CPU: 1.4 to read and hash its steps, 1.4 to copy them into a file without a
  name, 0.7 to find its arrays, and about a millisecond to check them. The p99 is longer where other work has the cores,
  so its CPU time stands beside it. One full garbage collection took 21 ms among 250 loads. The process of a host's
  models now leaves out of it what libraries bring: the longest load takes 5.3 ms of CPU, where it took 22.
- *Hot* is one row of one pipeline that has answered before, beside `Pipeline.predict` of scikit-learn on the same row.
  Rows differ, so no sub-result is reused.
- *Rows a second* are of single rows, of pipelines at random. One process uses one core; processes use all that there
  are, and all work at once.
- *Together* is a batch that several pipelines with common operators are asked about in turn: those after the first find
  the sub-results.
- PRETZEL (OSDI 2018) reports 25 times less memory, latencies 5.5 times lower at the p99 and 4.7 times the throughput,
  for 250 and 250 pipelines of Microsoft's ML.NET on 16 cores, of which the data and the code are not public. Its
  dictionaries hold about a million terms, these some ten thousand. So the figures say what sharing does here, and
  no more.
"""


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    return [
        _by_count(result, "memory", "pss_mib", "Memory by pipelines (MiB of PSS)"),
        _by_count(result, "work", "per_s", "Rows a second by pipelines"),
        _latency(result),
        _gains(result),
    ]


def _by_count(result: Result, series: str, value: str, title: str) -> Table:
    rows: Sequence[Mapping[str, Any]] = result.series[series]
    counts = sorted({int(row["pipelines"]) for row in rows})
    found = {(row["way"], row["pipelines"]): row[value] for row in rows}
    return Table(
        title,
        ("way", *map(str, counts)),
        tuple((name, *(number(found.get((way, count))) for count in counts)) for way, name in _WAYS.items()),
    )


def _latency(result: Result) -> Table:
    figures = result.figures
    points = ("p50_ms", "p99_ms", "p99_cpu_ms")
    ways = {f"cold, {sharing} % common, ms": f"cold_{sharing}" for sharing in (100, 50, 0)}
    rows = [
        (name, *(number(figures[f"{way}_{point}"]) for point in points))
        for name, way in (ways | {"cold, scikit-learn, ms": "sklearn_cold"}).items()
    ]
    return Table("First query of a pipeline that is not loaded", ("", "p50", "p99", "p99, CPU alone"), tuple(rows))


def _gains(result: Result) -> Table:
    figures = result.figures
    rows = [
        (
            f"{family}, hot, us",
            number(figures[f"{family}_hot_us"]),
            number(figures[f"{family}_hot_sklearn_us"]),
            number(figures[f"{family}_hot_gain"]),
        )
        for family in FAMILIES
    ]
    return Table("One row of a pipeline that is loaded", ("", "stages", "scikit-learn", "times"), tuple(rows))


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    figures = result.figures
    machine = f"{environment['cores_usable']} cores of {environment['processor']}; {result.given}."
    machine += f" Load average at the end: {environment['load_average'][0]:.1f}; other work makes p99s longer."
    said = (
        f"The most processes that were started take {figures['memory_gain_over_processes']:.1f} times the memory of as"
        f" many pipelines in one process with the store, and in stages {figures['memory_gain_over_staged']:.1f} times."
        f" All {result.parameters['pipelines']:,} take"
        f" {figures['memory_gain_over_sklearn']:.1f} times its memory under scikit-learn in one process, and"
        f" {figures['memory_gain_over_alone']:.1f} times in stages that share nothing. Of"
        f" {figures['compared_answers']:,.0f} answers to rows that nothing was fitted on,"
        f" {figures['different_answers']:,.0f} differ from scikit-learn's in any bit. A batch that another pipeline was"
        f" just asked about takes {figures['together_gain']:.1f} times less."
    )
    shown = [f"## {table.title}\n\n{table.markdown()}" for table in tables(result)]
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    said = textwrap.fill(said, 120, break_long_words=False, break_on_hyphens=False) + "\n"
    picture = f"![Memory and rows a second by the number of pipelines]({_PICTURE})\n"
    parts = [_INTRODUCTION, f"{machine}\n", said, picture, *shown, "## How to read this\n", _READING.rstrip()]
    return "\n".join([*parts, *notes, ""])


def plots(result: Result) -> dict[str, str]:
    """Return the picture: memory and rows a second by the number of pipelines."""
    figure, (left, right) = panels(2, (8.6, 3.4))
    for axes, series, value in ((left, "memory", "pss_mib"), (right, "work", "per_s")):
        for (way, name), colour in zip(_WAYS.items(), (*COLOURS[:6], "black"), strict=True):
            points = [(row["pipelines"], row[value]) for row in result.series[series] if row["way"] == way]
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name, color=colour)
        axes.set_xlabel("pipelines")
        axes.set_yscale("log")
    left.set_ylabel("MiB of PSS")
    right.set_ylabel("rows a second")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
    return {_PICTURE: svg(figure)}


SCENARIO = Scenario(
    pretzel.NAME,
    pretzel.FIGURES,
    pretzel.run,
    "250 pipelines in one process that shares equal steps: memory, cold and hot latency, beside scikit-learn",
    tables=tables,
    page=page,
    plots=plots,
    short=True,
    offline=True,
)
