"""The writer of all pages: fills the template of a scenario from its result."""

from __future__ import annotations

import functools
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jinja2

from load.results.targets import verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from load.figures import Figures
    from load.harness.environment import Environment
    from load.results.results import Result
    from load.results.tables import Table

# The heading under which a guide has its figures; what stands before is written by hand.
FIGURES_OF_A_GUIDE: Final = "## Figures\n"
_TEMPLATES: Final = Path(__file__).parent.parent  # all of `load`
_WIDTH: Final = 120
_HEAD: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_SPACE: Final = re.compile(r"\n{3,}")


def shown(result: Result, figures: Figures, tables: Iterable[Table], machine: Environment) -> dict[str, Any]:
    """Return what every template can show of a result.

    Args:
        result: of a scenario.
        figures: that the scenario declares; missed targets are named.
        tables: of the result; the template finds them by their titles.
        machine: what `load.harness.environment` says of it, and the broker.
    """
    return {
        "figures": result.figures,
        "series": result.series,
        "parameters": result.parameters,
        "given": result.given,
        "is_short": result.parameters.get("form") == "short",
        "machine": machine,
        "tables": {table.title: table for table in tables},
        "notes": [*result.notes],
        "missed": missed(result, figures),
    }


def filled(template: str, context: Mapping[str, Any]) -> str:
    """Return a template of `load`, filled; blank lines that follow one another are one.

    Raises:
        LookupError: the context lacks something.
    """
    try:
        text = _environment().get_template(template).render(context)
    except jinja2.UndefinedError as error:
        raise LookupError(f"{template} cannot be filled: {error.message}") from error
    return _SPACE.sub("\n\n", text).strip() + "\n"


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= FILTERS
    return made


def share(value: float, decimals: int = 1) -> str:
    """Return it in percent."""
    return f"{value:.{decimals}%}"


def count(value: float) -> str:
    """Return a whole number."""
    return f"{value:,.0f}"


def ms(value: float, decimals: int = 1) -> str:
    """Return it in milliseconds."""
    return f"{value:,.{decimals}f} ms"


def times(value: float) -> str:
    """Return it as a ratio, in words."""
    return f"{value:,.1f} times"


def decimals(value: float, places: int = 2) -> str:
    """Return a number, such as a ratio, with so many decimals."""
    return f"{value:.{places}f}"


def listed(items: Iterable[str]) -> str:
    """Return a list in Markdown, an item a line."""
    return "\n".join(f"- {item}" for item in items)


def wrapped(text: str) -> str:
    """Return paragraphs, or items of a list, with lines as long as a page's may be."""
    return "\n\n".join("\n".join(map(_wrapped, _items(each))) for each in text.strip().split("\n\n")) + "\n"


def _items(paragraph: str) -> list[str]:
    return re.split(r"\n(?=- )", paragraph)


def _wrapped(text: str) -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        subsequent_indent="  " if text.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    each.__name__: each for each in (share, count, ms, times, decimals, listed, wrapped)
}


def beside_guide(path: Path, page: str) -> str:
    """Return what to write: a page that is the figures of a guide takes their place, and the guide stays.

    Args:
        path: of the guide; it may not be there.
        page: as the scenario makes it.
    """
    if not page.startswith(FIGURES_OF_A_GUIDE) or not path.exists():
        return page
    return path.read_text(encoding="utf-8").partition(FIGURES_OF_A_GUIDE)[0] + page


def missed(result: Result, figures: Figures, *, with_unknown: bool = True) -> list[str]:
    """Return a sentence for each target that the result misses; `with_unknown`: also by not having the figure."""
    return [
        f"Target missed: {verdict.target.figure} is {_measured(verdict.measured)}, and should be"
        f" {verdict.target.relation} {verdict.target.bound:g}."
        for verdict in verdicts(result, figures)
        if not verdict.reached and (with_unknown or verdict.measured is not None)
    ]


def _measured(measured: float | None) -> str:
    return "not known" if measured is None else f"{measured:.4g}"


def sections(path: Path) -> dict[str, str]:
    """Return the text under each heading of the second level, without the space around it."""
    _, *found = _HEAD.split(path.read_text(encoding="utf-8"))
    return {title.strip(): text.strip() for title, text in zip(found[::2], found[1::2], strict=True)}
