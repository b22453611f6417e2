"""Results of `graph` as a table, as the section of docs/graphs.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table
from load.scenarios.graph import FIGURES, LANES, NAME, OBJECTIVES_MS, OVER

if TYPE_CHECKING:
    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = f"{NAME}.svg"
_WORDS: Final = {
    "split": "split by what batches take",
    "even": "split evenly",
    "whole": "as the first, without stages' deadlines",
}
_INTRODUCTION: Final = """\
# Graphs, measured

Written by `skysail load run graph --docs docs/graph-figures.md`. [Graphs](graphs.md) says when they are of use, and how
they are set up.

It is the traffic example of Nexus (SOSP'19): a detector looks at a picture, then one model at each car in it and
another at each face. **All of it is simulated but selection's own kernel and the worker's batcher**: pictures, Kafka,
time, and models, whose batch times are those that Clockwork published for a V100 (ResNet-152 detects, ResNet-18 takes
cars, ResNet-50 faces). A picture has 3 cars and 1 face on the average (Poisson); more than 16 of a kind are left out.
"""
_READING: Final = """\
- A rate is the highest at which 99 of 100 pictures are answered whole and in time, found by halving. All lanes have the
  same number of workers, and each gives them to its stages as its split needs them.
- The tighter the objective, the more it matters which stage has the time: a detector with half of it makes batches of
  one picture. With time enough for full batches of all models, there is nothing to gain.
- *Without stages' deadlines* a row of the detector is dropped only when its whole picture would be too late. Workers
  and batches are those of the first lane.
- So it is the workers and batches that follow from a split which count at these rates, where hardly anything is late.
  The deadlines of stages count in the second table, where more is asked than can be answered.
- Of ResNet-50 all sizes of batches are published, of the others 1 and 16 rows: between them times lie on a line.
"""


def tables(result: Result) -> list[Table]:
    """Return rates by objective, and how the time and the workers were split."""
    found = result.figures
    shown = [ms for ms in OBJECTIVES_MS if f"at_{ms}_ratio" in found]
    rates = tuple(
        (f"{ms} ms", *(f"{found[f'at_{ms}_{lane}_per_s']:.0f}" for lane in LANES), f"{found[f'at_{ms}_ratio']:.2f}")
        for ms in shown
    )
    heads = ("objective", *_WORDS.values(), "first / second")
    splits = tuple(
        (f"{ms} ms", _WORDS[lane], *(_stage(result, ms, lane, stage) for stage in ("detect", "cars", "faces")))
        for ms in shown
        for lane in LANES[:2]
    )
    over = tuple((f"{ms} ms", *(f"{found[f'at_{ms}_{lane}_over_per_s']:.0f}" for lane in LANES)) for ms in shown)
    return [
        Table("Pictures a second that are answered whole and in time", heads, rates),
        Table(f"The same, where {OVER:g} times the first lane's rate is asked", heads[:-1], over),
        Table("By when a stage must answer; workers, rows of a batch", ("objective", "time", *_STAGES), splits),
    ]


_STAGES: Final = ("detect", "cars", "faces")


def _stage(result: Result, ms: int, lane: str, stage: str) -> str:
    share, workers, rows = (result.figures[f"at_{ms}_{lane}_{stage}_{of}"] for of in ("share", "workers", "rows"))
    return f"{share:.0%}; {workers:.0f}, {rows:.0f}"


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    said = textwrap.fill(f"{environment['processor']}; {result.given}.", 120, break_on_hyphens=False)
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    picture = f"![Pictures a second by objective]({_PICTURE})\n"
    shown = [f"## {table.title}\n\n{table.markdown()}" for table in tables(result)]
    return "\n".join(
        [_INTRODUCTION, said + "\n", picture, *shown, "## How to read this\n", _READING.rstrip(), *notes, ""]
    )


def plots(result: Result) -> dict[str, str]:
    """Return the picture: rates by objective, and the ratio of the first two."""
    found = result.figures
    shown = [ms for ms in OBJECTIVES_MS if f"at_{ms}_ratio" in found]
    figure, (left, right) = panels(2)
    for number, lane in enumerate(LANES):
        rates = [found[f"at_{ms}_{lane}_per_s"] for ms in shown]
        left.plot(shown, rates, marker="o", markersize=3, color=COLOURS[number], label=_WORDS[lane])
    left.set_ylabel("pictures a second")
    left.set_ylim(bottom=0)
    right.plot(shown, [found[f"at_{ms}_ratio"] for ms in shown], marker="o", markersize=3, color="black")
    right.axhline(1.3, color=COLOURS[4], linewidth=0.8, linestyle="--")
    right.set_ylabel("split by what batches take / evenly")
    for axes in (left, right):
        axes.set_xlabel("objective, ms")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
    return {_PICTURE: svg(figure)}
