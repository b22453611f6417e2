"""The definition of a scenario: a name, how it is measured, its figures, and how its results are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from load.results import pages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from load.figures import Figures
    from load.harness.environment import Environment
    from load.harness.system import Stage
    from load.results.results import Result
    from load.results.tables import Table


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario.

    Attributes:
        name: permanent.
        figures: the declarations of all that it measures.
        run: measures.
        summary: what it shows, in one line.
        any_arrivals: whether its arrivals can be chosen.
        tables: a result for the screen, beside its figures.
        page: the template of its page of the documentation, a path in `load`; empty = it has none.
        words: what the template shows besides figures, parameters and tables, by name.
        plots: pictures that the page shows, PNG by the name of the file beside it.
        html: what that page is called where it is HTML and is written beside the result.
        seconds: of a measured stretch, unless one asks for another length.
        parts: that can be asked for by themselves.
        short: whether it has a short form.
        offline: whether it needs neither a broker nor Redis.
        any_processes: whether its roles can share a process, too.
        hosted: whether its models can run in a host, too.
    """

    name: str
    figures: Figures
    run: Callable[[Stage], Coroutine[None, None, Result]]
    summary: str
    any_arrivals: bool = False
    tables: Callable[[Result], Sequence[Table]] | None = None
    page: str = ""
    words: Callable[[Result], Mapping[str, Any]] | None = None
    plots: Callable[[Result], Mapping[str, bytes]] | None = None
    html: str = ""
    seconds: float = 20.0
    parts: tuple[str, ...] = ()
    short: bool = False
    offline: bool = False
    any_processes: bool = False
    hosted: bool = False

    def written(self, result: Result, machine: Environment) -> str:
        """Return its page.

        Args:
            result: of it.
            machine: what `load.harness.environment` says of it, and the broker.

        Raises:
            LookupError: the result lacks something that the template shows.
        """
        tables = self.tables(result) if self.tables else ()
        more = self.words(result) if self.words else {}
        return pages.filled(self.page, {**pages.shown(result, self.figures, tables, machine), **more})
