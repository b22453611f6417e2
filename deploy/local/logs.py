"""Log files of child processes: their last lines, and a bound on their size."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_BYTES = 8 << 20  # of one file; a process keeps two of them at most
_TAIL_LINES = 12
_TAIL_BYTES = 1 << 16  # in which the last lines are looked for


def homes(folder: Path) -> Path:
    """Return the file beside a folder of logs that says which process each instance runs in, whose log is its own."""
    return folder.with_name(f"{folder.name}.json")


def size(log: Path) -> int:
    """Return how many bytes a log holds, 0 if there is none."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def tail(log: Path, lines: int = _TAIL_LINES, since: int = 0) -> str:
    """Return the last lines of a log file, or nothing if there is none.

    Args:
        log: the file.
        lines: at most so many.
        since: only what was written after it had so many bytes; of no meaning once it has been cut.
    """
    end = size(log)
    try:
        with log.open("rb") as file:
            file.seek(max(end - _TAIL_BYTES, since if since <= end else 0, 0))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def cut(log: Path, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Move what a log holds to `NAME.1` if it is larger than the limit; returns whether it was.

    The process that writes it goes on in the same file, which it has opened for appending.
    """
    if size(log) <= limit_bytes:
        return False
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)
    return True
