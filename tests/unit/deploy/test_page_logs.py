"""The page shows the log of the process that an instance runs in, and no other's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deploy.config.settings import Settings
from deploy.local.logs import homes
from deploy.system.page_commands import PageCommands

if TYPE_CHECKING:
    from pathlib import Path


def test_each_instance_has_the_log_of_its_process(tmp_path: Path) -> None:
    """Roles share a process on few cores, and a model may have several workers."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("loop", "worker.svc", "worker.svc@2"):
        (logs / f"{name}.log").write_text(f"of {name}\n")
    homes(logs).write_text(json.dumps({"joiner": "loop", "worker.svc": "worker.svc"}))
    page = PageCommands(Settings.model_validate({"control": {"logs": str(logs)}}), tmp_path)
    assert page.log("joiner@1") == "of loop"
    assert page.log("worker.svc@1") == "of worker.svc"
    assert page.log("worker.svc@2") == "of worker.svc@2"
    assert page.log("worker.svc@3") is None
    for outside in ("../secret@1", ".hidden@1", ""):
        assert page.log(outside) is None
    homes(logs).unlink()
    assert page.log("worker.svc@1") == "of worker.svc"
