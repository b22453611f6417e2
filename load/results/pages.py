"""A scenario's part of the benchmark page, and the prose that pages take from Markdown files beside their code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from load.results.targets import verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from load.figures import Figures
    from load.harness.environment import Environment
    from load.results.results import Result
    from load.results.tables import Table

# The heading under which a guide has its figures; what stands before is written by hand.
FIGURES_OF_A_GUIDE: Final = "## Figures\n"
_HEAD = re.compile(r"^## (.+)$", re.MULTILINE)


def section(
    result: Result,
    environment: Environment,
    title: str,
    introduction: str,
    tables: Sequence[Table],
    figures: Figures,
) -> str:
    """Return a section in Markdown: what was done, on what, its tables, its notes.

    Args:
        result: of the scenario.
        environment: what `load.harness.environment` says of the machine, and the broker.
        title: of the section.
        introduction: one paragraph.
        tables: in order.
        figures: that the scenario declares; missed targets are named.
    """
    machine = (
        f"{environment['cores_usable']} cores of {environment['processor']}; {environment['broker']}; {result.given}."
    )
    parts = [f"## {title}\n", introduction, f"{machine}\n"]
    parts += [f"### {table.title}\n\n{table.markdown()}" for table in tables]
    return "\n".join([*parts, *(f"- {note}" for note in (*result.notes, *missed(result, figures))), ""])


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
        f"Target missed: {verdict.target.figure} is {_shown(verdict.measured)}, and should be"
        f" {verdict.target.relation} {verdict.target.bound:g}."
        for verdict in verdicts(result, figures)
        if not verdict.reached and (with_unknown or verdict.measured is not None)
    ]


def with_short_form(
    result: Result,
    environment: Environment,
    title: str,
    text: Path,
    tables: Sequence[Table],
    figures: Figures,
) -> str:
    """Return a section as `section` does.

    Its introduction is what `text` has under the title; the short form's has a warning after it.
    """
    prose = sections(text)
    said = [prose[title]] + [prose[f"{title}, short form"]] * (result.parameters.get("form") == "short")
    return section(result, environment, title, "\n\n".join(said) + "\n", tables, figures)


def _shown(measured: float | None) -> str:
    return "not known" if measured is None else f"{measured:.4g}"


def sections(path: Path) -> dict[str, str]:
    """Return the text under each heading of the second level, without the space around it."""
    _, *found = _HEAD.split(path.read_text(encoding="utf-8"))
    return {title.strip(): text.strip() for title, text in zip(found[::2], found[1::2], strict=True)}
