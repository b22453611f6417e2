"""Logs of child processes: quoted from their end, and cut while they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.local.logs import cut, tail

if TYPE_CHECKING:
    from pathlib import Path


def test_the_last_lines_are_quoted(tmp_path: Path) -> None:
    """Of a log however long; what was there before is left out, unless the log was cut since."""
    log = tmp_path / "a.log"
    assert tail(log) == ""
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert tail(log, 2) == "line 99998\nline 99999"
    assert tail(log, 2, since=log.stat().st_size - len("line 99999\n")) == "line 99999"
    assert tail(log, 1, since=1 << 40) == "line 99999"


def test_a_log_that_grew_large_begins_anew_under_the_hands_of_its_writer(tmp_path: Path) -> None:
    """What it held is kept once; what is written next stands at the beginning, without a hole."""
    log = tmp_path / "a.log"
    with log.open("ab", buffering=0) as writer:
        for text in (b"first\n", b"second\n"):
            writer.write(text)
            assert not cut(log, len(text))
            assert cut(log, len(text) - 1)
            assert (tmp_path / "a.log.1").read_bytes() == text
        writer.write(b"third\n")
    assert log.read_bytes() == b"third\n"
