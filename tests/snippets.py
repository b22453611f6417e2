"""What pages show as code: every block by its language, and every `skysail` command, also within a sentence."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_ASSIGNED = re.compile(r"[A-Z_]+=\S*")
_COMMENT = re.compile(r"(?m)(?:^|\s)#.*$")
_ENDS = ";|&>\n"
_SUBSTITUTED = re.compile(r"\$\([^()]*\)")


class Snippet(NamedTuple):
    """A block of code, or a span of it."""

    page: str
    line: int
    kind: str  # as the fence says; empty = it says nothing, "span" = within a sentence
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets() -> list[Snippet]:
    """Return all of all pages."""
    return [one for page in PAGES for one in _of(page)]


def _of(page: Path) -> Iterator[Snippet]:
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        line = (token.map or [0])[0] + 1
        if token.type in {"fence", "code_block"}:
            yield Snippet(page.name, line, token.info.strip(), token.content)
        for child in token.children or ():
            if child.type == "code_inline" and child.content.startswith("skysail "):
                yield Snippet(page.name, line, "span", child.content)


def commands(snippet: Snippet) -> Iterator[list[str]]:
    """Return the words of every `skysail` command in a block for a shell; of a session, what stands behind a `$`."""
    text = snippet.text.replace("\\\n", " ")
    if snippet.kind == "console":
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
    lexer = shlex.shlex(_SUBSTITUTED.sub("SUBSTITUTED", _COMMENT.sub("", text)), posix=True, punctuation_chars=_ENDS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if {*word} <= {*_ENDS}:
            while words and _ASSIGNED.fullmatch(words[0]):
                words.pop(0)
            if words and words[0] == "skysail":
                yield words[1:]
            words = []
        else:
            words.append(word)
