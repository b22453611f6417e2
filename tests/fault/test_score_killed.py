"""A scoring job that is killed goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from tests.scored import score
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 20_000


def test_a_killed_process_goes_on(tmp_path: Path) -> None:
    """SIGKILL between two chunks, wherever it hits; the output is as if nothing had been."""
    package_function("tests.toys:parity", tmp_path / "parity", "parity", "1", np.ones((2, 2), np.float32))
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text("".join(f'{{"a": {number}, "b": 1}}\n' for number in range(ROWS)))
    arguments = [str(rows), "--package", str(tmp_path / "parity"), "--out", str(out), "--chunk-rows", "200"]
    process = subprocess.Popen([sys.executable, "-m", "deploy.cli", "score", *arguments], env=dict(os.environ))
    manifest = tmp_path / "out.jsonl.parts" / "manifest.json"
    end = time.monotonic() + 60
    while not (manifest.exists() and len(json.loads(manifest.read_bytes())["chunks"]) > 3):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()
    report = score(*arguments)
    assert report["resumed_rows"] > 600
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in found] == [f"rows.jsonl:{number}" for number in range(ROWS)]
    assert [row["answer"] for row in found] == [(number + 1) % 2 for number in range(ROWS)]
