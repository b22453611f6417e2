"""Each example of `examples/` runs from a copy of its folder by its one command, as its page says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.local.process import free_port

if TYPE_CHECKING:
    from deploy.local.services import Broker

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
# What each says at its end, and what makes it short.
SAYS = {
    "canary": "version 2 right",
    "fraud": "50 of 50 orders scored",
    "images": "snow: light",
    "notebook": "of 100 are right",
    "recommender": "ann likes action",
    "replay": "all is as it was",
}
SHORT = {"ORDERS": "50", "QUERIES": "150", "ROUNDS": "40"}


def test_every_example_is_run() -> None:
    """A folder with a command that nobody runs rots."""
    assert {path.parent.name for path in EXAMPLES.glob("*/Makefile")} == {*SAYS}
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert [name for name in SAYS if f"examples/{name}" not in page] == []


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_does_what_it_says(name: str, kafka: Broker, prefix: str, tmp_path: Path) -> None:
    """Its exit status is 0, which it is only if the answers were as they should be."""
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("models", ".skysail", "trace"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ours = {"SKYSAIL_KAFKA__BOOTSTRAP": kafka.bootstrap, "SKYSAIL_PREFIX": prefix, "PATH": path}
    ours |= {"SKYSAIL_ROLES": "[selection, joiner, learner, mapping, worker]", "PYTHONPATH": str(ROOT), **SHORT}
    ours |= {"SKYSAIL_CONTROL__PORT": str(free_port()), "SKYSAIL_PROCESSES": "shared"}
    made = subprocess.run(["make"], cwd=folder, env=os.environ | ours, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    assert SAYS[name] in made.stdout, made.stdout
    assert "Traceback" not in made.stdout + made.stderr
