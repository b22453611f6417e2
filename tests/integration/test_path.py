"""The path of a newcomer: what docs/serve.md and docs/learn.md say to save and to type is saved and typed here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.local.process import free_port

if TYPE_CHECKING:
    from deploy.local.services import Broker

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = 'Client("127.0.0.1:9092")'


def blocks(page: str, kind: str) -> list[str]:
    """Return the blocks of a page in one language."""
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def folder(kafka: Broker, prefix: str, tmp_path: Path) -> Path:
    """A folder with the files of both pages, whose clients find the broker of the tests."""
    for program in [*blocks("serve.md", "python"), *blocks("learn.md", "python")]:
        name = program.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(program.replace(ADDRESS, f'Client("{kafka.bootstrap}", "{prefix}")'))
    (tmp_path / "skysail.yaml").write_text(blocks("serve.md", "yaml")[0])
    (tmp_path / "thompson.yaml").write_text(blocks("learn.md", "yaml")[0])
    return tmp_path


def test_the_path_is_as_its_pages_say(folder: Path, kafka: Broker, prefix: str) -> None:
    """Package, run, ask, teach, ask from the shell, and put another policy into force: nothing else is needed."""
    session = blocks("serve.md", "console")[-1]
    query = re.findall(r"^\$ (skysail query .*)$", session, re.MULTILINE)
    typed = ["python ask.py", "python teach.py", *query, "skysail --version", "cp thompson.yaml skysail.yaml"]
    typed += [
        "skysail app apply",
        "skysail app show digits",
        "skysail evaluate --live digits --policy always:forest --window 1 --force",
    ]
    (folder / "typed.sh").write_text("set -ex\n" + "\n".join(typed))
    ours = {"SKYSAIL_KAFKA__BOOTSTRAP": kafka.bootstrap, "SKYSAIL_PREFIX": prefix, "SKYSAIL_STORE": "embedded"}
    ours |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ours |= {"SKYSAIL_CONTROL__PORT": str(free_port())}
    command = "python package.py && skysail run -- bash typed.sh"
    ran = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=os.environ | ours, capture_output=True, text=True, check=False
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    for words in (
        "forest 1 (sklearn): takes float32[64]",
        "live page: http://",
        "answer ",
        " of 300 answers were right",
    ):
        assert words in said, said
    assert re.search(r"policy +thompson", said), said
    assert "candidate - served, paired" in said, said


def test_a_program_that_fails_says_so_by_its_exit_status(folder: Path, kafka: Broker, prefix: str) -> None:
    """`skysail run -- PROGRAM` ends as the program does, so that scripts can go by it; a wrong name starts nothing."""
    (folder / "skysail.yaml").write_text("roles: [joiner]\nstore: embedded\n")
    ours = {"SKYSAIL_KAFKA__BOOTSTRAP": kafka.bootstrap, "SKYSAIL_PREFIX": prefix, "PYTHONPATH": str(ROOT)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "deploy.cli", "run", "--quiet", "--", *words]
        return subprocess.run(command, cwd=folder, env=os.environ | ours, capture_output=True, text=True, check=False)

    assert run("bash", "-c", "exit 7").returncode == 7
    wrong = run("no-such-program")
    assert wrong.returncode == 1
    assert "there is no program no-such-program" in wrong.stderr
    assert "ready" not in wrong.stdout
