"""Results of `conformal` as a table, as the figures of docs/coverage.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.research.learning import conformal
from load.research.learning.conformal import COVERAGE, FIGURES, PARTS
from load.results.drawing import COLOURS, panels, svg
from load.results.pages import FIGURES_OF_A_GUIDE, missed
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = "coverage.svg"
_PARTS: Final = {"replayed": "seven models vote", "single": "forest alone", "vote": "forest and linear, exp4"}
_READING: Final = """\
- *Held* is the share of the sets that had the true label in them. *Fixed* are sets by split conformal prediction on the
  same weights: their threshold follows from the first thousand queries. Both columns *before* leave these out.
- The share may lie above the promise: the likeliest label is always in the set. Where models alone are right more
  often than promised, nearly all sets have one label.
- A size counts all labels there are where a set is `is_all`.
- The first row is arithmetic alone: with feedback 50 queries late, no Kafka. The others went through the whole system.
"""


def tables(result: Result) -> list[Table]:
    """Return what was held before and after the change, by kind of set, and how large the sets were."""
    names = ("held_before", "held_after", "lowest", "size_before", "size_after")
    rows = [
        (
            _PARTS[part] + (", fixed" if what else ""),
            *(f"{result.figures[f'{part}_{what}{name}']:.3f}" for name in names[:3]),
            *(f"{result.figures[f'{part}_{what}{name}']:.2f}" for name in names[3:]),
        )
        for part in PARTS
        for what in ("", "fixed_")
    ]
    heads = ("", "held before", "held after", "lowest window", "labels before", "labels after")
    return [Table(f"Promised: {COVERAGE:g}", heads, tuple(rows))]


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    figures = result.figures
    said = _filled(
        f"Measured by `skysail load run conformal --docs docs/coverage.md` ({result.given}), on"
        f" {environment['cores_usable']} cores of {environment['processor']}; {environment['broker']}. Load average at"
        f" the end: {environment['load_average'][0]:.1f}.",
        "After half of the queries the inputs change. In the first row three of seven public models answer MNIST at"
        " random from then on. In the others the images are noisy: the forest errs on"
        f" {figures['single_error_before']:.3f} of them before and {figures['single_error_after']:.3f} after,"
        f" the vote on {figures['vote_error_before']:.3f} and {figures['vote_error_after']:.3f}.",
    )
    shown = [f"### {table.title}\n\n{table.markdown()}" for table in tables(result)]
    picture = f"![Coverage held by windows, and labels in a set, over the queries]({_PICTURE})\n"
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    return "\n".join([FIGURES_OF_A_GUIDE, said, *shown, picture, _READING.rstrip(), *notes, ""])


def _filled(*paragraphs: str) -> str:
    return "\n".join(
        [textwrap.fill(each, 120, break_long_words=False, break_on_hyphens=False) + "\n" for each in paragraphs]
    )


def plots(result: Result) -> dict[str, str]:
    """Return the picture: coverage held by windows, beside that of fixed sets; labels in a set."""
    figure, (left, right) = panels(2, (8.6, 3.4))
    for (part, name), colour in zip(_PARTS.items(), COLOURS, strict=False):
        rows = result.series[part]
        share = [row["queries"] / rows[-1]["queries"] for row in rows]
        left.plot(share, [row["held"] for row in rows], marker="o", markersize=3, label=name, color=colour)
        left.plot(share, [row["fixed"] for row in rows], linestyle="--", label=f"{name}, fixed", color=colour)
        right.plot(share, [row["size"] for row in rows], marker="o", markersize=3, label=name, color=colour)
    left.axhline(COVERAGE, color="black", linewidth=0.8, linestyle=":")
    for axes in (left, right):
        axes.axvline(0.5, color="grey", linewidth=0.8, linestyle=":")
        axes.set_xlabel("share of the queries")
    left.set_ylabel("sets that held the true label")
    right.set_ylabel("labels in a set")
    right.set_ylim(bottom=0)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return {_PICTURE: svg(figure)}


SCENARIO = Scenario(
    conformal.NAME,
    conformal.FIGURES,
    conformal.run,
    "sets of labels while inputs change: coverage promised and held by windows, beside fixed sets",
    short=True,
    tables=tables,
    page=page,
    plots=plots,
)
