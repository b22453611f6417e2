"""Pages as they are in the clone become pages of the site: navigation, whole files, links into the code.

Three pages say that they are made here: of files of the clone's first folder, of the command line, of the sources.

The first page lists all others under headings, in plain Markdown: that list is the navigation. A link to a file or
folder of the clone, which the site does not have, becomes its name.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import commands_page
import errors_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sphinx.application import Sphinx

ROOT: Final = Path(__file__).resolve().parents[2]
INDEX: Final = "index"
_SECTION: Final = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_LISTED: Final = re.compile(r"^- \[([^\]]+)\]\(([\w-]+)\.md\)(?:: (.+))?$", re.MULTILINE)
_OUTSIDE: Final = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")


class Listed(NamedTuple):
    """A page as the first page names it."""

    title: str
    name: str
    about: str


def sections(index: str) -> dict[str, list[Listed]]:
    """Return the pages under each heading of the first page."""
    return {head: [Listed(*found) for found in _LISTED.findall(body)] for head, body in _SECTION.findall(index)}


def navigation(index: str) -> str:
    """Return what the theme makes its menu of."""
    trees = []
    for head, pages in sections(index).items():
        lines = "\n".join(f"{page.title} <{page.name}>" for page in pages)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {head}\n\n{lines}\n```\n")
    return "\n".join(trees)


def whole(name: str) -> str:
    """Return a page of the clone's first folder, with its links as they are from `docs/`."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"\]\((?![#\w]*:|#|docs/)([^)]+)\)", r"](../\1)", text)
    return text.replace("](docs/", "](")


MADE: Final[Mapping[str, Callable[[], str]]] = {
    "changelog": lambda: whole("CHANGELOG.md"),
    "commands": commands_page.page,
    "contributing": lambda: whole("CONTRIBUTING.md"),
    "errors": errors_page.page,
}


@functools.cache
def text_of(folder: Path, name: str) -> str:
    """Return the Markdown of a page of the site."""
    return MADE[name]() if name in MADE else (folder / f"{name}.md").read_text(encoding="utf-8")


def without_code_links(text: str) -> str:
    """Return a page whose links to files of the clone are their names."""
    return _OUTSIDE.sub(r"\1", text)


def on_source(app: Sphinx, name: str, source: list[str]) -> None:
    """Change a page before it is parsed."""
    text = without_code_links(text_of(Path(app.srcdir), name) if name in MADE else source[0])
    source[0] = f"{text}\n{navigation(text)}" if name == INDEX else text
