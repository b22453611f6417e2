"""The files of the page: read once, from the package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from streams.gateway.protocol.values import HttpReply

FOLDER: Final = Path(__file__).with_name("static")
PAGE: Final = "page.html"
_KINDS: Final = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
}


def files() -> dict[str, HttpReply]:
    """Return what is handed out, by name."""
    return {
        each.name: HttpReply(each.read_bytes(), 200, _KINDS[each.suffix])
        for each in sorted(FOLDER.iterdir())
        if each.suffix in _KINDS
    }
