"""The scenario `freshness`: its table and its picture."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from load.results.tables import Table
from load.scenario import Scenario
from load.scenarios.learning import freshness
from load.scenarios.learning.freshness import RATES
from streams.evaluation.drawing import COLOURS, panels, png

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.results.results import Result


_PICTURE: Final = "freshness.png"


def tables(result: Result) -> Sequence[Table]:
    """Return a line for each rate: medians, with the least and the most of the rounds."""
    heads = ("feedback/s", "p50 ms", "p99 ms", "in the log, p50 ms", "never seen", "defaults", "sender late ms")
    lines = []
    for rate in RATES:
        mine = [row for row in result.series["rounds"] if row["rate_per_s"] == rate]
        times = (_spread([row[name] for row in mine]) for name in ("p50_ms", "p99_ms", "logged_p50_ms"))
        counts = (f"{sum(row[name] for row in mine):,.0f}" for name in ("unseen", "defaults"))
        late = f"{max(row['sender_late_ms'] for row in mine):.1f}"
        lines.append((f"{rate:,}", *times, *counts, late))
    return (Table("From feedback written to the first decision by what it has taught", heads, tuple(lines)),)


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: the share of feedback that decides, by its age, of all rounds together."""
    figure, (axes,) = panels(1, (6.2, 2.9))
    for rate, colour in zip(RATES, COLOURS, strict=False):
        points = [(row["age_ms"], row["share"]) for row in result.series["ages"] if row["rate_per_s"] == rate]
        if points:
            axes.plot(*zip(*points, strict=True), label=f"{rate:,} a second", color=colour)
    axes.set_xlim(left=0)
    axes.set_xlabel("ms since feedback was written")
    axes.set_ylabel("share that decides")
    axes.legend()
    return {_PICTURE: png(figure)}


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


SCENARIO = Scenario(
    freshness.NAME,
    freshness.FIGURES,
    freshness.run,
    "feedback written until the first decision by what it has taught, at 100, 1,000 and 5,000/s, seen from outside",
    tables=tables,
    page="scenarios/learning/freshness.md.j2",
    plots=plots,
    seconds=freshness.SECONDS,
    short=True,
)
