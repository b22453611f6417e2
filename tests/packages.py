"""Packages as runtimes see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the content of the files in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
