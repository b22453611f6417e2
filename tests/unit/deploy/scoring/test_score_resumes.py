"""A job that is killed goes on where it was: each row of the input has exactly one in the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.errors import UsageError
from deploy.scoring.chunks import Chunks, DoneChunk, opened

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_written_and_not_noted_is_written_again(tmp_path: Path) -> None:
    """A chunk counts once it stands in the manifest."""
    chunks = Chunks(tmp_path / "parts", {"job": 1}, {"now_us": 3})
    chunks.add(DoneChunk("000000.csv", 0, 10, 10, {"invalid_input": 2}))
    (tmp_path / "parts" / "000001.csv").write_text("half")
    again = opened(tmp_path / "parts", {"job": 1})
    assert again is not None
    assert (again.place(), again.rows, again.pinned) == ((0, 10), 10, {"now_us": 3})
    assert again.next_name(".csv").name == "000001.csv"


def test_another_job_does_not_go_on_with_these_chunks(tmp_path: Path) -> None:
    """The message says what differs."""
    Chunks(tmp_path / "parts", {"keep": "all"}, {}).write()
    with pytest.raises(UsageError, match="keep was all, and is none"):
        opened(tmp_path / "parts", {"keep": "none"})
