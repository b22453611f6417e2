"""Folders of one recording: a trace holds one log of each topic, so where a log begins anew another folder does, too.

    trace  ─ a log went on below what was recorded ─▶  trace.2  ─▶  trace.3 ...

The last one that is there is recorded to, also after a restart: those before it are never written again.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def last_of(folder: Path) -> Path:
    """Return the folder to go on in."""
    return next(_at(folder, number) for number in count(1) if not _at(folder, number + 1).exists())


def after(folder: Path) -> Path:
    """Return the folder to begin anew in, behind those that are there."""
    return next(path for number in count(2) if not (path := _at(folder, number)).exists())


def _at(folder: Path, number: int) -> Path:
    return folder if number == 1 else folder.with_name(f"{folder.name}.{number}")
