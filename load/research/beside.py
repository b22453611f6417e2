"""Pages of several scenarios: tables of their figures beside those that others published.

What is written in a row was published by others; every figure of Skysail comes from a result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from load.results.pages import missed
from load.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.figures import Figures
    from load.harness.environment import Environment
    from load.results.results import Result


class Row(NamedTuple):
    """One line of a table.

    Attributes:
        what: was measured.
        figure: its name.
        shown: how it is written.
        published: beside it; "" = nothing like it.
    """

    what: str
    figure: str
    shown: Callable[[float], str]
    published: str = ""


class Part(NamedTuple):
    """What the page has of one scenario.

    Attributes:
        title: of it.
        figures: that the scenario declares.
        rows: of the table; those whose figures no result has are left out.
        plots: its pictures.
        picture: in words.
        differences: between what was published and this.
    """

    title: str
    figures: Figures
    rows: Sequence[Row]
    plots: Callable[[Result], Mapping[str, str]]
    picture: str
    differences: str


def share(value: float) -> str:
    """Return it in percent."""
    return f"{value:.3%}"


def times(value: float) -> str:
    """Return it as a ratio."""
    return f"{value:,.1f} times"


def ms(value: float) -> str:
    """Return it in milliseconds."""
    return f"{value:,.1f} ms"


def count(value: float) -> str:
    """Return a whole number."""
    return f"{value:,.0f}"


def plain(value: float) -> str:
    """Return a number of three digits."""
    return f"{value:.3g}"


class Collection(NamedTuple):
    """A page.

    Attributes:
        name: as it is asked for.
        introduction: its title and what it is about.
        parts: by the scenario's name, in order.
        is_whole: each part must have a result; else those without are named.
    """

    name: str
    introduction: str
    parts: Mapping[str, Part]
    is_whole: bool = True

    def page(self, results: Sequence[tuple[Result, Environment]]) -> str:
        """Return the page.

        Args:
            results: of its scenarios, each with its machine; of parts that were run one by one there are several.

        Raises:
            LookupError: a scenario has no result, or a result is of another one.
        """
        given, wanted = {result.scenario for result, _ in results}, {*self.parts}
        if not given <= wanted or (self.is_whole and given != wanted):
            raise LookupError(
                f"{self.name} is made of results of {', '.join(self.parts)}; these are of {', '.join(sorted(given))}"
            )
        of = {name: [each for each in results if each[0].scenario == name] for name in self.parts}
        return "\n".join(
            [self.introduction, *(_section(part, of[name]) for name, part in self.parts.items() if of[name])]
        )


def _section(part: Part, results: Sequence[tuple[Result, Environment]]) -> str:
    figures = {figure: value for result, _ in results for figure, value in result.figures.items()}
    rows = tuple(
        (row.what, row.shown(figures[row.figure]), row.published) for row in part.rows if row.figure in figures
    )
    table = Table(part.title, ("", "here", "published"), rows)
    said = dict.fromkeys(_machine(result, environment) for result, environment in results)
    pictures = dict.fromkeys(picture for result, _ in results for picture in part.plots(result))
    whole = replace(results[0][0], figures=figures)
    notes = [f"- {sentence}" for sentence in missed(whole, part.figures, with_unknown=False)]
    return "\n".join(
        [
            f"## {part.title}\n",
            *(f"{line}\n" for line in said),
            table.markdown(),
            *(f"![{part.picture}]({picture})\n" for picture in pictures),
            part.differences,
            "",
            *notes,
            *[""] * bool(notes),
        ]
    )


def _machine(result: Result, environment: Environment) -> str:
    return f"{environment['cores_usable']} cores of {environment['processor']}; {result.given}."
