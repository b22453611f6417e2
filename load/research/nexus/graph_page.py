"""Results of `graph` as tables, as the page docs/graph-figures.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.research.models.traffic import SLOWER
from load.research.nexus import graph, graph_live
from load.research.nexus.graph import FIGURES, LANES, NAME, OBJECTIVES_MS, OVER
from load.research.nexus.graph_live import Became
from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = f"{NAME}.svg"
_WORDS: Final = {
    "split": "split by what batches take",
    "even": "split evenly",
    "whole": "as the first, without stages' deadlines",
}
_STAGES: Final = ("detect", "cars", "faces")
_BECAME: Final = {
    Became.WHOLE: "whole, in time",
    Became.PART: "with what was there",
    Became.DEFAULT: "by default",
    Became.LATE: "late",
    Became.NO_ANSWER: "no answer",
}
_INTRODUCTION: Final = """\
# Graphs, measured

Written by `skysail load run graph --docs docs/graph-figures.md`. [Graphs](graphs.md) says when they are of use, and how
they are set up.

It is the traffic example of Nexus (SOSP'19): a detector looks at a picture, then one model at each car in it and
another at each face. Batches take what Clockwork published for a V100: ResNet-152 detects, ResNet-18 takes cars,
ResNet-50 faces. A picture has 3 cars and 1 face on the average (Poisson); more than 16 of a kind are left out.
"""
_SIMULATED: Final = """\
Here all but selection's own kernel and the worker's batcher is simulated: pictures, Kafka, models and time.
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
_LIVE: Final = f"""\
Selection, {graph_live.WORKERS} workers, the broker and the sender share this machine. Pictures are made up, and things
are really found in them and cut out. A batch takes {SLOWER} times as long as on a V100, and objectives are as much
longer: so it is the models that are busy, and not the machine. A size that is not published takes as long as the next
one. The sender does not wait for answers, and a picture's time runs from when it was meant to be sent. Whatever is
late, in part, or the default is a miss.
"""
_LIVE_READING: Final = """\
- On Kafka a rate is the highest that held in steps of a tenth, beginning at the rate in virtual time, which is in
  brackets.
- Batches are at most as large as the split is made for (`worker.allowed_batch_sizes`).
- *With batches that workers size themselves* (`aimd`, the default) is at the tightest objective, too. They make larger
  batches where rows wait, whatever the split was made for. So it is the plan as a whole that helps: the times, the
  workers and the batches that follow from it.
- *With what was there*: a stage was late, or was not asked any more, and the picture was answered in time without it.
"""
_CHANCES: Final = """\
- A rate is asked for {} s. One that fails is tried once more, since one stall of the machine is enough for that."""


def tables(result: Result) -> list[Table]:
    """Return rates by objective, and how the time and the workers were split: simulated, and on Kafka."""
    return [*_simulated(result), *_live(result)]


def _simulated(result: Result) -> list[Table]:
    found = result.figures
    shown = [ms for ms in OBJECTIVES_MS if f"at_{ms}_ratio" in found]
    if not shown:
        return []
    rates = tuple(
        (f"{ms} ms", *(f"{found[f'at_{ms}_{lane}_per_s']:.0f}" for lane in LANES), f"{found[f'at_{ms}_ratio']:.2f}")
        for ms in shown
    )
    heads = ("objective", *_WORDS.values(), "first / second")
    over = tuple((f"{ms} ms", *(f"{found[f'at_{ms}_{lane}_over_per_s']:.0f}" for lane in LANES)) for ms in shown)
    return [
        Table("Pictures a second that are answered whole and in time", heads, rates),
        Table(f"The same, where {OVER:g} times the first lane's rate is asked", heads[:-1], over),
        _splits(found, [(ms, f"at_{ms}") for ms in shown]),
    ]


def _live(result: Result) -> list[Table]:
    found = result.figures
    shown = [(f"{ms} ms", f"live_at_{ms}") for ms in graph_live.OBJECTIVES_MS if f"live_at_{ms}_ratio" in found]
    if not shown:
        return []
    objectives = [(ms, f"live_at_{ms}") for ms in graph_live.OBJECTIVES_MS if f"live_at_{ms}_ratio" in found]
    if "live_own_ratio" in found:
        shown.append((f"{graph_live.OBJECTIVES_MS[0]} ms, with batches that workers size themselves", "live_own"))
    lanes = graph_live.LANES
    rates = tuple(
        (name, *(_rate(found, f"{at}_{lane}") for lane in lanes), f"{found[f'{at}_ratio']:.2f}") for name, at in shown
    )
    over = tuple(
        (name, _WORDS[lane], f"{found[f'{at}_{lane}_over_per_s']:.0f}", *_shares(found, f"{at}_{lane}_over"))
        for name, at in shown
        for lane in lanes
    )
    heads = ("objective", *(_WORDS[lane] for lane in lanes), "first / second")
    return [
        Table("Pictures a second that Kafka and workers answer whole and in time", heads, rates),
        Table(
            f"What becomes of {graph_live.OVER:g} times the first lane's rate",
            ("objective", "time", "asked a second", *_BECAME.values()),
            over,
        ),
        _splits(found, objectives),
    ]


def _rate(found: Mapping[str, float], lane: str) -> str:
    virtual = found.get(f"{lane}_virtual_per_s")
    return f"{found[f'{lane}_per_s']:.0f}" + ("" if virtual is None else f" ({virtual:.0f})")


def _shares(found: Mapping[str, float], prefix: str) -> tuple[str, ...]:
    return tuple(f"{found[f'{prefix}_{each.value}']:.1%}" for each in _BECAME)


def _splits(found: Mapping[str, float], objectives: Sequence[tuple[int, str]]) -> Table:
    rows = tuple(
        (f"{ms} ms", _WORDS[lane], *(_stage(found, f"{at}_{lane}_{stage}") for stage in _STAGES))
        for ms, at in objectives
        for lane in LANES[:2]
    )
    return Table("By when a stage must answer; workers, rows of a batch", ("objective", "time", *_STAGES), rows)


def _stage(found: Mapping[str, float], prefix: str) -> str:
    share, workers, rows = (found[f"{prefix}_{of}"] for of in ("share", "workers", "rows"))
    return f"{share:.0%}; {workers:.0f}, {rows:.0f}"


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    said = textwrap.fill(f"{environment['processor']}; {result.given}.", 120, break_on_hyphens=False)
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    picture = f"![Pictures a second by objective]({_PICTURE})\n"
    parts = [_INTRODUCTION, said + "\n", picture]
    for title, about, shown, reading in (
        ("Simulated", _SIMULATED, _simulated(result), _READING),
        ("On Kafka", _LIVE, _live(result), _LIVE_READING),
    ):
        if shown:
            parts += [f"## {title}\n", about]
            parts += [f"### {table.title}\n\n{table.markdown()}" for table in shown]
            parts += ["### How to read this\n", reading]
    if (seconds := result.parameters.get("live_seconds")) is not None:
        notes.insert(0, _CHANCES.format(seconds))
    return "\n".join([*parts, *notes, ""]).rstrip() + "\n"


def plots(result: Result) -> dict[str, str]:
    """Return the picture: rates by objective, simulated and on Kafka, and the ratio of the first two lanes."""
    found = result.figures
    simulated = [(ms, f"at_{ms}") for ms in OBJECTIVES_MS if f"at_{ms}_ratio" in found]
    live = [(ms // SLOWER, f"live_at_{ms}") for ms in graph_live.OBJECTIVES_MS if f"live_at_{ms}_ratio" in found]
    figure, (left, right) = panels(2)
    for number, lane in enumerate(LANES):
        rates = [found[f"{at}_{lane}_per_s"] for _, at in simulated]
        left.plot(
            [ms for ms, _ in simulated], rates, marker="o", markersize=3, color=COLOURS[number], label=_WORDS[lane]
        )
    left.set_ylabel("pictures a second, simulated")
    left.set_ylim(bottom=0)
    for shown, marker, word in ((simulated, "o", "simulated"), (live, "s", f"on Kafka, {SLOWER} times as slow")):
        _ratios(right, found, shown, marker, word)
    right.axhline(1.3, color=COLOURS[4], linewidth=0.8, linestyle="--")
    right.set_ylabel("split by what batches take / evenly")
    right.legend(fontsize=7)
    for axes in (left, right):
        axes.set_xlabel("objective, ms")
    right.set_xlabel(f"objective, ms; on Kafka {SLOWER} times that")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
    return {_PICTURE: svg(figure)}


def _ratios(axes: Axes, found: Mapping[str, float], shown: Sequence[tuple[int, str]], marker: str, word: str) -> None:
    if shown:
        ratios = [found[f"{at}_ratio"] for _, at in shown]
        colour = "black" if marker == "o" else COLOURS[3]
        axes.plot([ms for ms, _ in shown], ratios, marker=marker, markersize=3, color=colour, label=word)


SCENARIO = Scenario(
    graph.NAME,
    graph.FIGURES,
    graph.run,
    "a detector, then models of cars and faces: rates with the time split by what batches take, and evenly",
    tables=tables,
    page=page,
    plots=plots,
    parts=graph.PARTS,
    short=True,
)
