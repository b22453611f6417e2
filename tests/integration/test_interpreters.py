"""What shows only in an interpreter of its own: what it has imported, and what it finds where it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_roles_load_nothing_that_only_other_roles_need() -> None:
    """Selection, joiner and learner carry neither Faust (40 MB) nor librdkafka (9 MB) nor scikit-learn nor torch."""
    unwanted = ("aiohttp", "confluent_kafka", "faust", "matplotlib", "prometheus_client", "redis", "rich", "scipy")
    unwanted += ("sklearn", "torch", "workers.kernel.model.worker")
    script = f"import sys, deploy.cli.run; print([name for name in {unwanted} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, cwd=ROOT).stdout == b"[]\n"


def test_a_function_in_the_folder_of_the_command_is_found(tmp_path: Path) -> None:
    """A newcomer's module is where the command is started, not on PYTHONPATH; nothing of ours is shadowed by it."""
    (tmp_path / "my_rules.py").write_text("def first(rows):\n    return [int(row[0]) for row in rows]\n")
    (tmp_path / "workers.py").write_text("raise RuntimeError('shadowed')\n")
    argv = ["model", "package", "my_rules:first", "p", "--name", "m", "--sample", "[[1.0], [2.0]]"]
    program = f"import sys\nfrom deploy.cli import main\nsys.argv = ['skysail', *{argv}]\nmain()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
