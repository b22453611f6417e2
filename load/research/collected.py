"""Pages of several scenarios: tables of their figures beside those that others published.

What is written in a row was published by others; every figure of Skysail comes from a result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from load.results import pages
from load.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.harness.environment import Environment
    from load.results.results import Result
    from load.scenario import Scenario


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
        scenario: whose figures and pictures it shows.
        rows: of the table; those whose figures no result has are left out.
    """

    scenario: Scenario
    rows: Sequence[Row]


def share(value: float) -> str:
    """Return it in percent, to a thousandth."""
    return pages.share(value, 3)


def plain(value: float) -> str:
    """Return a number of three digits."""
    return f"{value:.3g}"


class Collection(NamedTuple):
    """A page.

    Attributes:
        name: as it is asked for.
        template: of the page, a path in `load`; it has the parts by their scenarios' names.
        parts: in order.
        is_whole: each part must have a result; else those without are left out.
    """

    name: str
    template: str
    parts: Sequence[Part]
    is_whole: bool = True

    def page(self, results: Sequence[tuple[Result, Environment]]) -> str:
        """Return the page.

        Args:
            results: of its scenarios, each with its machine; of parts that were run one by one there are several.

        Raises:
            LookupError: a scenario has no result, or a result is of another one.
        """
        names = [part.scenario.name for part in self.parts]
        given = {result.scenario for result, _ in results}
        if not given <= {*names} or (self.is_whole and given != {*names}):
            raise LookupError(
                f"{self.name} is made of results of {', '.join(names)}; these are of {', '.join(sorted(given))}"
            )
        of = {name: [each for each in results if each[0].scenario == name] for name in names}
        shown = {part.scenario.name: _shown(part, of[part.scenario.name]) for part in self.parts}
        return pages.filled(self.template, {"parts": shown})


def _shown(part: Part, results: Sequence[tuple[Result, Environment]]) -> dict[str, Any] | None:
    """Return what the template shows of a part; nothing where it has no result."""
    if not results:
        return None
    figures = {figure: value for result, _ in results for figure, value in result.figures.items()}
    whole = replace(results[0][0], figures=figures)
    return {
        "machines": [*dict.fromkeys(_machine(result, environment) for result, environment in results)],
        "table": _table(part.rows, figures),
        "pictures": _pictures(part.scenario, [result for result, _ in results]),
        "missed": pages.missed(whole, part.scenario.figures, with_unknown=False),
    }


def _table(rows: Sequence[Row], figures: Mapping[str, float]) -> Table:
    lines = [(row.what, row.shown(figures[row.figure]), row.published) for row in rows if row.figure in figures]
    return Table("", ("", "here", "published"), tuple(lines))


def _pictures(scenario: Scenario, results: Sequence[Result]) -> list[str]:
    plots = scenario.plots
    return [*dict.fromkeys(name for result in results for name in plots(result))] if plots else []


def _machine(result: Result, environment: Environment) -> str:
    return f"{environment['cores_usable']} cores of {environment['processor']}; {result.given}."
