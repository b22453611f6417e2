"""Results of `velox` as tables, as the figures of docs/recommending.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.research.recommend import velox
from load.research.recommend.velox import DIMENSIONS, FIGURES, HISTORY, LANES, NAME, WAVE
from load.results.drawing import COLOURS, panels, svg
from load.results.pages import FIGURES_OF_A_GUIDE, missed
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = "recommending.svg"
_SAID: Final = {
    "personal": "`ridge`, weights of each user",
    "common": "`ridge`, weights of all users together",
    "retrained": "`ridge`, weights of each user, features trained anew meanwhile",
}
_READING: Final = """\
- The error is the root mean square of the answer less the rating. *Each film's mean* is what all earlier ratings of
  other users say. *All but the noise* is the error of whoever knows how the ratings were made.
- With fewer than five ratings of their own, users are answered about as well by everybody's weights. After that their
  own are better.
- The ratings are made up from a seed (`load/research/models/movies.py`). Real users are less regular: expect less to be
  gained.
- Velox's paper prints no figures to compare with.
- *Longest answer* is that of the retrained application within two seconds after a change, the kill of the learner among
  the changes. Answers never wait for learning.
- An update was measured without Kafka and Redis; it is a rank-one update in NumPy, and takes features^2 steps.
"""

# Only where there were any: a short run on a machine that did little else had none.
_LATE: Final = (
    "Answers by default would have come later than the objective: the machine was busy with other programs.\n"
    "  They count as the default output, in the errors of all three applications."
)


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


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    found = result.figures
    error, cost = tables(result)
    measured = (
        f"Measured by `skysail load run velox --docs docs/recommending.md`, {result.given}, on"
        f" {environment['processor']}. {found['users']:.0f} users asked"
        f" {result.parameters['queries']:,} times about films in three applications at once, and rated each."
    )
    switched = (
        f"Of the retrained application's queries, {found['answers_of_few']:,.0f} were answered from the old features,"
        f" {found['answers_of_both']:,.0f} from both and {found['answers_of_many']:,.0f} from the new ones. Between"
        f" the changes the learner was killed, and a backfill taught {found['backfilled']:,.0f} labels. In the last"
        f" quarter the error was {found['retrained_saved']:.2f} lower than with the old features. Lost:"
        f" {found['lost']:.0f}; answered twice: {found['duplicates']:.0f}; by default: {found['defaults']:.0f};"
        f" longest answer: {found['switch_max_ms']:.0f} ms."
    )
    crowd = (
        f"Then {found['guests']:,.0f} users asked once each, {WAVE:,} at the same time; medians of these waves:"
        f" {found['guests_answered_per_s']:,.0f} answers a second, and {found['guests_learnt_per_s']:,.0f} learnt a"
        f" second until all was learnt. Lost: {found['guests_lost']:.0f}."
    )
    said = [
        textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"
        for text in (measured, switched, crowd)
    ]
    if result.parameters.get("form") == "short":
        said[0] += "\n**This is the short form.**\n"
    late = (_LATE,) if found["late"] else ()
    notes = [f"- {sentence}" for sentence in (*result.notes, *late, *missed(result, FIGURES))]
    picture = f"![Error by earlier ratings of the user, and over time]({_PICTURE})\n"
    parts = [FIGURES_OF_A_GUIDE, said[0], error.markdown(), picture, *said[1:], cost.markdown()]
    return "\n".join([*parts, "## How to read this\n", _READING.rstrip(), *notes, ""])


def plots(result: Result) -> dict[str, str]:
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
    return {_PICTURE: svg(figure)}


__all__ = ["NAME", "page", "plots", "tables"]


SCENARIO = Scenario(
    velox.NAME,
    velox.FIGURES,
    velox.run,
    "films rated by users who have weights each: error by history, features trained anew meanwhile, 100,000 users",
    tables=tables,
    page=page,
    plots=plots,
    short=True,
)
