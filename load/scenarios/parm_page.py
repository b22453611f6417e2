"""Results of `parm` as tables, as the part of docs/parity.md with figures, and as its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table
from load.scenarios.parm import FIGURES, NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = f"{NAME}.svg"
_LANES: Final = {
    "none": "12 workers",
    "equal": "18 workers",
    "k2": "12 workers, 6 of a parity model for groups of two",
}
_POINTS: Final = {"p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9", "max_ms": "most"}
_INTRODUCTION: Final = """\
# Coded inference, measured

Written by `skysail load run parm --docs docs/parm.md`. [Late outputs](parity.md) says when coding is of use,
and how it is set up.

ParM's network for MNIST (784-200-100-10, as published) is asked the 10,000 test images over and over. A call takes 25
to 50 ms, of which the workers sleep most, as accelerators would have it. Two workers at a time stand still for 100 to
300 ms; each worker does so every 12 s on the average, in each lane.
"""
_READING: Final = """\
- ParM (SOSP'19) has p99.9 up to 48 % lower at the same median, with 12 GPUs, ResNet-18, k = 2 and four copies of data
  between machines at a time. Its accuracy is at most 6.5 % lower where answers are decoded.
- Skysail waits with decoding until an output is later than 19 of 20 are, since the model's own answer is better. ParM
  decodes as soon as it can. So fewer answers are decoded here, and p99 gains less than p99.9.
- *Loaded*: nothing stands still, and queries wait for a free worker. There as many workers more are what helps, and
  coding does not: its workers take sums alone.
- *Killed*: one worker is killed and started again. Meanwhile its partition is not served, and coded queries are
  answered from the other ones of their groups.
"""


def tables(result: Result) -> list[Table]:
    """Return latencies by lane, and accuracies by size of groups."""
    found = result.figures
    lanes = {lane: words for lane, words in _LANES.items() if f"{lane}_p50_ms" in found}
    heads = ("lane", "queries", *_POINTS.values(), "loaded p99", "killed: unserved")
    rows = tuple((words, *_row(found, lane)) for lane, words in lanes.items())
    sizes = [k for k in (2, 3, 4) if f"k{k}_accuracy" in found]
    accuracies = tuple(
        (f"{k}", f"{found[f'k{k}_own_accuracy']:.2%}", f"{found[f'k{k}_accuracy']:.2%}",
         f"{found[f'k{k}_accuracy_lost_points']:.2f}")
        for k in sizes
    )  # fmt: skip
    return [
        Table("Latency in ms", heads, rows),
        Table("Accuracy on the test images", ("k", "the network's own", "decoded", "points lost"), accuracies),
    ]


def _row(found: Mapping[str, float], lane: str) -> tuple[str, ...]:
    points = [f"{found[f'{lane}_{point}']:.0f}" if f"{lane}_{point}" in found else "" for point in _POINTS]
    loaded = f"{found[f'{lane}_loaded_p99_ms']:.0f}" if f"{lane}_loaded_p99_ms" in found else ""
    killed = f"{found[f'{lane}_rebalance_unserved']:.0f}" if f"{lane}_rebalance_unserved" in found else ""
    return (f"{found[f'{lane}_queries_sent']:,.0f}", *points, loaded, killed)


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    found = result.figures
    said = [f"Measured on {environment['processor']}: {result.given}.\n"]
    if "k2_reconstructed" in found:
        said.append(
            f"Of the answers {found['k2_reconstructed_share']:.2%} were decoded, {found['k2_reconstructed']:.0f} in"
            f" all. {found['k2_served_accuracy']:.2%} of them were right, and {found['k2_served_own_accuracy']:.2%} of"
            f" the others. The parity model was asked {found['k2_more_work']:.2f} rows for each of the network's.\n"
        )
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    picture = f"![Latencies by lane]({_PICTURE})\n"
    shown = [table.markdown() for table in tables(result)]
    return "\n".join([_INTRODUCTION, *said, *shown, picture, "## How to read this\n", _READING.rstrip(), *notes, ""])


def plots(result: Result) -> dict[str, str]:
    """Return the picture: quantiles by lane, and what decoding costs by size of groups."""
    found = result.figures
    figure, (left, right) = panels(2)
    for number, (lane, words) in enumerate(_LANES.items()):
        points = [point for point in _POINTS if f"{lane}_{point}" in found]
        if points:
            places = [place + 0.25 * (number - 1) for place in range(len(points))]
            left.bar(places, [found[f"{lane}_{point}"] for point in points], 0.22, color=COLOURS[number], label=words)
            left.set_xticks(range(len(points)), [_POINTS[point] for point in points])
    left.set_ylabel("ms")
    sizes = [k for k in (2, 3, 4) if f"k{k}_accuracy" in found]
    right.bar(range(len(sizes)), [found[f"k{k}_accuracy_lost_points"] for k in sizes], 0.5, color=COLOURS[0])
    right.axhline(6.5, color="black", linewidth=0.8, linestyle="--", label="the most that ParM reports")
    right.set_xticks(range(len(sizes)), [f"k = {k}" for k in sizes])
    right.set_ylabel("points of accuracy lost")
    figure.legend(loc="outside lower center", ncols=2, fontsize=7)
    return {_PICTURE: svg(figure)}
