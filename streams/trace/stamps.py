"""When queries came, of a trace that another system has written."""

from __future__ import annotations

import csv
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_stamps(path: Path, column: str = "TIMESTAMP") -> Iterator[int]:
    """Yield the times (us) of a CSV trace whose `column` holds ISO timestamps, as Azure's LLM traces do."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield int(datetime.fromisoformat(row[column]).timestamp() * 1e6)
