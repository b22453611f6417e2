"""What `skysail run` tells when all is ready, and passes on of its roles' logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import pytest

from deploy.cli.supervise import errors_since, supervise, tell
from deploy.config.folder import held
from deploy.config.settings import Settings
from deploy.errors import UsageError
from schemas.codec import Codec

if TYPE_CHECKING:
    from deploy.system.launch import System

LOG = """2026-01-01 10:00:00,000 INFO streams.runtime.role.effects: forest 2 is ready
2026-01-01 10:00:01,000 ERROR streams.runtime.role.effects: forest 3 cannot take over, 2 goes on: no such file
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


def test_a_second_one_says_only_that_one_runs_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The settings are printed by the one that starts."""
    monkeypatch.chdir(tmp_path)
    with held("skysail"), pytest.raises(UsageError, match="runs already"):
        supervise(Settings(), Codec(), "settings: the defaults")
    assert not capsys.readouterr().out


class Running:
    """A deployment that runs one worker."""

    metrics_ports: ClassVar[dict[str, int]] = {}
    pids: ClassVar[dict[str, int]] = {"worker.forest": 4711}

    def log(self, instance: str) -> Path:
        """Return where an instance's output goes to."""
        return Path(f"{instance}.log")


def test_a_model_name_that_is_none_is_told_beside_that_all_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    """What was warned of at the start is a screenful of progress ago; a name that is one is not told."""
    settings = Settings.model_validate({"applications": {"digits": {"models": ["forrest", "forest"], "slo_ms": 100}}})
    tell(settings, cast("System", Running()), ["forest"])
    *_, warning, ready = capsys.readouterr().out.splitlines()
    assert warning.startswith("warning: application digits names model forrest, which is not deployed: did you mean")
    assert "did you mean forest?" in warning
    assert ready == "ready; Ctrl-C stops everything"
    tell(settings, cast("System", Running()), ["forest", "forrest"])
    assert "warning" not in capsys.readouterr().out
