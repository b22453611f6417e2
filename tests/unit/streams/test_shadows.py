"""Folders of a user that are called like packages of ours, beside the script that imports `skysail`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# An editable installation: modules of ours are found last, by name, and their folder is not on the path.
EDITABLE = f"""
import importlib.machinery, importlib.util, os, sys
class Editable:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {{"skysail", "schemas", "policies", "streams", "workers"}}:
            return None
        place = "{ROOT}/" + name.replace(".", "/")
        for file in (place + "/__init__.py", place + ".py"):
            if os.path.isfile(file):
                return importlib.util.spec_from_file_location(name, file)
        return None
sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder) + 1, Editable())
"""
SCRIPT = "from skysail import Codec, Query\nprint(Codec().encode(Query('q', 'a', 'text'))[:2].hex())\n"


def imported(folder: Path, prelude: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script that uses Skysail in a folder."""
    (folder / "script.py").write_text(prelude + SCRIPT)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if not prelude:
        environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("prelude", ["", EDITABLE], ids=["path", "editable"])
@pytest.mark.parametrize("name", ["schemas", "policies", "streams", "workers", "deploy", "load"])
def test_a_folder_of_data_that_is_called_like_a_package_does_no_harm(tmp_path: Path, name: str, prelude: str) -> None:
    """Our own files are found beside our own modules."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "order.json").write_text("{}")
    done = imported(tmp_path, prelude)
    assert (done.stdout, done.stderr) == ("c301\n", "")


@pytest.mark.parametrize("prelude", ["", EDITABLE], ids=["path", "editable"])
@pytest.mark.parametrize("name", ["schemas", "policies", "streams", "workers"])
def test_a_package_that_is_called_like_one_of_ours_is_named(tmp_path: Path, name: str, prelude: str) -> None:
    """With its folder and what to do, instead of what would go wrong somewhere inside."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    done = imported(tmp_path, prelude)
    assert done.returncode == 1
    assert f"ImportError: skysail has a package called {name}" in done.stderr
    assert f"{tmp_path / name}. Rename that folder" in done.stderr


@pytest.mark.parametrize("name", ["deploy", "load"])
def test_a_package_that_an_application_does_not_need_is_left_alone(tmp_path: Path, name: str) -> None:
    """`deploy` and `load` are common names, and only the command line uses ours."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    assert imported(tmp_path).stdout == "c301\n"


def test_a_clone_called_skysail_beside_the_script_does_no_harm(tmp_path: Path) -> None:
    """Where the clone is on the path, as `make` puts it there: a module goes before a folder without one."""
    (tmp_path / "skysail" / "schemas").mkdir(parents=True)
    assert imported(tmp_path).stdout == "c301\n"
