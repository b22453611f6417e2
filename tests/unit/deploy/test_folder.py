"""The folder of a deployment: held by one, closed to others."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from deploy.config.folder import held, private
from deploy.errors import StartError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

KILLED = """
import os, signal, sys
from pathlib import Path
from deploy.config.folder import held
with held("skysail", Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_second_one_is_told_which_process_has_the_deployment(tmp_path: Path) -> None:
    """Others of the same folder are other deployments."""
    with held("skysail", tmp_path / ".skysail"):
        with (
            pytest.raises(UsageError, match=rf"skysail runs already.*process {os.getpid()}"),
            held("skysail", tmp_path / ".skysail"),
        ):
            pass
        with held("other", tmp_path / ".skysail") as place:
            assert place.logs == tmp_path / ".skysail" / "logs" / "other"
    with held("skysail", tmp_path / ".skysail"):
        pass


def test_one_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    """However it ended, the next one may start."""
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / ".skysail")], check=False, timeout=60)
    with held("skysail", tmp_path / ".skysail"):
        pass


def test_what_is_kept_is_closed_to_others(tmp_path: Path) -> None:
    """One that an earlier version left open is closed; a folder that a person names is left as it is."""
    (tmp_path / ".skysail").mkdir(mode=0o755)
    (tmp_path / "mine").mkdir(mode=0o755)
    with held("skysail", tmp_path / ".skysail") as place:
        folders = [tmp_path / ".skysail", place.folder, place.logs]
        assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * 3
    assert stat.S_IMODE(private(tmp_path / "mine").stat().st_mode) == 0o755


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """With what to do instead of a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="start it in a folder where you may write"):
        private(tmp_path / "file" / ".skysail")
