"""Ctrl-C while a command starts, and what a command may import."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Sends Ctrl-C at the moment when a module is looked for.
INTERRUPTED = """
import os, signal, sys
class Presses:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Presses())
sys.argv[2:] = ["--help"]
from deploy.cli import main
sys.argv = ["skysail", "run", "--help"]
main()
"""


@pytest.mark.parametrize("module", ["click", "pydantic", "deploy.cli.run", "confluent_kafka"])
def test_an_interrupt_while_a_command_is_loaded_shows_no_traceback(module: str) -> None:
    """Whatever is being imported at that moment, before the command line is read or after."""
    argv = [sys.executable, "-c", INTERRUPTED, module]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    assert done.returncode in {-signal.SIGINT, 128 + signal.SIGINT, 0}


def test_a_command_imports_nothing_from_the_folder_where_it_is_started(tmp_path: Path) -> None:
    """Libraries look for optional modules; files of these names in a strange folder are no concern of theirs."""
    for name in ("gssapi", "lz4", "snappy", "brotlicffi", "aiodns"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of this folder was run')")
    code = "import sys; sys.argv = ['skysail', 'doctor', '--machine', '--json']; from deploy.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert "a file of this folder was run" not in done.stdout + done.stderr
    assert '"exit_code"' in done.stdout
