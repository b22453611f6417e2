"""Reads prose that pages print from the Markdown file beside their code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = re.compile(r"^## (.+)$", re.MULTILINE)


def sections(path: Path) -> dict[str, str]:
    """Return the text under each heading of the second level, without the space around it."""
    _, *found = _HEAD.split(path.read_text(encoding="utf-8"))
    return {title.strip(): text.strip() for title, text in zip(found[::2], found[1::2], strict=True)}
