"""`llms.txt` and `llms-full.txt`: what programs that read text need to know, made of the pages.

The first lists all pages with a line each, by the proposal of llmstxt.org; the second is all pages in that order. The
pages themselves are beside it as Markdown.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reading import INDEX, sections, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sphinx.application import Sphinx


def first_lines(index: str) -> str:
    """Return the first paragraph of the first page, as one line."""
    return " ".join(index.split("\n\n")[1].split())


def listed(index: str) -> str:
    """Return `llms.txt`."""
    parts = [f"# Skysail\n\n> {first_lines(index)}\n"]
    for head, pages in sections(index).items():
        lines = "\n".join(f"- [{p.title}]({p.name}.md)" + (f": {p.about}" if p.about else "") for p in pages)
        parts.append(f"## {head}\n\n{lines}\n")
    return "\n".join(parts)


def pages(folder: Path) -> Mapping[str, str]:
    """Return the text of every page by its name, in the order of the first page."""
    index = text_of(folder, INDEX)
    names = [page.name for found in sections(index).values() for page in found]
    return {name: text_of(folder, name) for name in names}


def on_finished(app: Sphinx, error: Exception | None) -> None:
    """Write both files and the pages into the site."""
    if error is not None or app.builder.format != "html":
        return
    source, out = Path(app.srcdir), Path(app.outdir)
    texts = pages(source)
    for name, text in texts.items():
        (out / f"{name}.md").write_text(text, encoding="utf-8")
    (out / "llms.txt").write_text(listed(text_of(source, INDEX)), encoding="utf-8")
    (out / "llms-full.txt").write_text("\n\n".join(texts.values()), encoding="utf-8")
