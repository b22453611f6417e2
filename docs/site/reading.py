"""Pages as they are in the clone become pages of the site: navigation, whole files, links into the code.

The first page lists all others under headings, in plain Markdown: that list is the navigation. A link to a file or
folder of the clone, which the site does not have, becomes its name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT: Final = Path(__file__).resolve().parents[2]
INDEX: Final = "index"
WHOLE: Final = {"contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
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


def without_code_links(text: str) -> str:
    """Return a page whose links to files of the clone are their names."""
    return _OUTSIDE.sub(r"\1", text)


def on_source(app: Sphinx, name: str, source: list[str]) -> None:
    """Change a page before it is parsed."""
    del app
    text = whole(WHOLE[name]) if name in WHOLE else source[0]
    text = without_code_links(text)
    source[0] = f"{text}\n{navigation(text)}" if name == INDEX else text
