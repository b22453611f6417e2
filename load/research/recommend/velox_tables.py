"""The scenario `velox`: its tables and its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from load.research.recommend import velox
from load.research.recommend.velox import DIMENSIONS, HISTORY, LANES, WAVE
from load.results.tables import Table
from load.scenario import Scenario
from streams.evaluation.drawing import COLOURS, panels, png

if TYPE_CHECKING:
    from load.results.results import Result


_PICTURE: Final = "recommending.png"
_SAID: Final = {
    "personal": "`ridge`, weights of each user",
    "common": "`ridge`, weights of all users together",
    "retrained": "`ridge`, weights of each user, features trained anew meanwhile",
}


def tables(result: Result) -> list[Table]:
    """Return errors by history, and cost by dimension."""
    found = result.figures
    shown = [least for least in HISTORY if found[f"personal_rmse_{least}"]]
    heads = ("earlier ratings of the user", *(_head(least) for least in shown), "all")
    lines = tuple(
        (_SAID[lane], *(f"{found[f'{lane}_rmse_{least}']:.2f}" for least in shown), f"{found[f'{lane}_rmse']:.2f}")
        for lane in LANES
    )
    means = ("each film's mean", *[""] * len(shown), f"{found['films_rmse']:.2f}")
    least = ("all but the noise", *[""] * len(shown), f"{found['least_rmse']:.2f}")
    cost = tuple(
        (
            f"{dimension}",
            f"{found[f'update_{dimension}_us']:.0f}",
            f"{found[f'answer_{dimension}_us']:.0f}",
            f"{found[f'numbers_{dimension}']:,.0f}",
        )
        for dimension in DIMENSIONS
    )
    return [
        Table("Error by history", heads, (*lines, means, least)),
        Table("Cost by dimension", ("features", "update, us", "answer, us", "numbers kept"), cost),
    ]


def _head(least: int) -> str:
    index = HISTORY.index(least)
    if index + 1 == len(HISTORY):
        return f"{least} or more"
    last = HISTORY[index + 1] - 1
    return f"{least}" if last == least else f"{least} to {last}"


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: error by history, and over time."""
    figure, (left, right) = panels(2, (8.6, 2.9))
    found, course = result.figures, result.series["error"]
    shown = [least for least in HISTORY if found[f"personal_rmse_{least}"]]
    for lane, colour in zip(LANES, ("black", COLOURS[1], COLOURS[0]), strict=True):
        left.plot([_head(least) for least in shown], [found[f"{lane}_rmse_{least}"] for least in shown], color=colour)
        right.plot([row["queries"] for row in course], [row[lane] for row in course], color=colour, label=lane)
    last = course[-1]["queries"]
    for part in (0.25, 0.75):
        right.axvline(part * last, color="grey", linewidth=0.7, linestyle=":")
    left.axhline(found["least_rmse"], color="grey", linewidth=0.7)
    left.set_xlabel("earlier ratings of the user")
    left.set_ylabel("error (root mean square)")
    right.set_xlabel("queries of each application; dotted: features change")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
    return {_PICTURE: png(figure)}


SCENARIO = Scenario(
    velox.NAME,
    velox.FIGURES,
    velox.run,
    "films rated by users who have weights each: error by history, features trained anew meanwhile, 100,000 users",
    tables=tables,
    page="research/recommend/velox.md.j2",
    words=lambda _: {"wave": WAVE},
    plots=plots,
    short=True,
)
