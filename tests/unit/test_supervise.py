"""What `skysail run` passes on of its roles' logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.cli.supervise import errors_since

if TYPE_CHECKING:
    from pathlib import Path

LOG = """2026-01-01 10:00:00,000 INFO workers.versions: forest 2 is ready
2026-01-01 10:00:01,000 ERROR workers.versions: forest 3 cannot take over, 2 goes on: no such file
Traceback (most recent call last): ERROR
"""


def test_errors_are_passed_on_once_and_whole(tmp_path: Path) -> None:
    """What is written at the moment waits for its end; nothing is told twice; a log that is not there yet is empty."""
    log = tmp_path / "worker.log"
    assert errors_since(log, 0) == ([], 0)
    log.write_text(LOG + "2026-01-01 10:00:02,000 CRITI")
    (line,), place = errors_since(log, 0)
    assert line.endswith("forest 3 cannot take over, 2 goes on: no such file")
    assert place == len(LOG)
    log.write_text(LOG + "2026-01-01 10:00:02,000 CRITICAL root: the end\n")
    assert errors_since(log, place) == (["2026-01-01 10:00:02,000 CRITICAL root: the end"], log.stat().st_size)
    assert errors_since(log, log.stat().st_size) == ([], log.stat().st_size)
