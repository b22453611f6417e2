"""The folder of a deployment: held by one, closed to others."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from deploy.config.folder import held, private
from deploy.errors import StartError, UsageError
from deploy.local.daemons import find

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


@pytest.mark.parametrize("name", [".skysail", ".skysail/run", ".skysail/run/skysail/lock", ".skysail/kafka.log"])
def test_no_link_in_it_is_followed(tmp_path: Path, name: str) -> None:
    """A folder that was unpacked or cloned may bring one: what it leads to is neither cut nor closed."""
    outside = tmp_path / "outside"
    (outside / "skysail").mkdir(parents=True, mode=0o755)
    (outside / "thesis").write_text("all of it")
    place = tmp_path / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside / "thesis" if place.suffix == ".log" or place.name == "lock" else outside)
    with pytest.raises(StartError, match="remove it"), held("skysail", tmp_path / ".skysail"):
        pass
    assert (outside / "thesis").read_text() == "all of it"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    assert sorted(path.name for path in outside.rglob("*")) == ["skysail", "thesis"]


def test_a_pipe_in_the_place_of_what_is_remembered_holds_nobody_up(tmp_path: Path) -> None:
    """Nor does deep JSON, a number that is no process, or a link end a command."""
    state = tmp_path / "kafka.json"
    os.mkfifo(state)
    assert find(state) is None
    for text in ("[" * 100_000, '{"pid": 1e400, "started": 0, "address": ""}', "5"):
        state.unlink()
        state.write_text(text)
        assert find(state) is None
    state.write_text(json.dumps({"pid": 2**70, "started": 0.0, "address": ""}))
    assert find(state) is None
    running = {"pid": os.getpid(), "started": psutil.Process().create_time(), "address": "here"}
    (tmp_path / "other.json").write_text(json.dumps(running))
    state.unlink()
    state.symlink_to(tmp_path / "other.json")
    assert find(state) is None
    assert find(tmp_path / "other.json") is not None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """With what to do instead of a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="start it in a folder where you may write"):
        private(tmp_path / "file" / ".skysail")
