"""The scenario `cascade`: its table and its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from load.research.learning import cascade
from load.research.learning.cascade import LANES
from load.results.tables import Table
from load.scenario import Scenario
from streams.evaluation.drawing import COLOURS, panels, png

if TYPE_CHECKING:
    from load.results.results import Result


_PICTURE: Final = "cascades.png"
_LANES: Final = {"dear": "SVM alone", "cascade": "cascade, a risk", "budgeted": "cascade, a budget"}


def tables(result: Result) -> list[Table]:
    """Return error, shares and latency by application."""
    figures = result.figures
    shares = {
        "dear": (1.0, 1.0, 1.0),
        "cascade": (figures["asked_share"], figures["cost_share"], figures["time_share"]),
        "budgeted": (figures["budgeted_share"], figures["budgeted_cost_share"], figures["budgeted_time_share"]),
    }
    rows = [
        (
            _LANES[lane],
            f"{figures[f'{lane}_error']:.4f}",
            *(f"{share:.3f}" for share in shares[lane]),
            f"{figures[f'{lane}_p50_ms']:.1f}",
            f"{figures[f'{lane}_p99_ms']:.1f}",
        )
        for lane in LANES
    ]
    return [Table("Through the whole system", ("", "error", "asked", "cost", "time", "p50 ms", "p99 ms"), tuple(rows))]


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: what was asked of the dear model, and the error, over the queries."""
    figure, (left, right) = panels(2, (8.6, 3.2))
    for axes, value in ((left, "asked"), (right, "error")):
        for (lane, name), colour in zip(_LANES.items(), COLOURS, strict=False):
            points = [(row["queries"], row[value]) for row in result.series[lane]]
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name, color=colour)
        axes.set_xlabel("queries")
        axes.set_ylim(bottom=0)
    left.axhline(float(result.parameters["budget"]), color="black", linewidth=0.8, linestyle=":")
    left.set_ylabel("share that asked the dear model")
    right.set_ylabel("share of wrong answers")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return {_PICTURE: png(figure)}


def words(result: Result) -> dict[str, Any]:
    """Return what the page says besides: how many answers of each application were too late."""
    late = {name: int(result.figures[f"{lane}_defaults"]) for lane, name in _LANES.items()}
    return {"late": {name: count for name, count in late.items() if count}}


SCENARIO = Scenario(
    cascade.NAME,
    cascade.FIGURES,
    cascade.run,
    "a cheap model first, a dear one where it is in doubt: error and cost beside the dear model alone",
    short=True,
    tables=tables,
    page="research/learning/cascade.md.j2",
    words=words,
    plots=plots,
)
