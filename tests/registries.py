"""The libraries of examples in other languages, from the registries of those: without them a test is skipped."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = Path(__file__).parents[1] / "examples"
FETCH_S = 180


def fetched(argv: Sequence[str], folder: Path) -> None:
    """Fetch libraries by a command; skips the test where that cannot be done."""
    try:
        ran = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{argv[0]}: its libraries did not come within {FETCH_S} s")
    if ran.returncode:
        pytest.skip(f"{argv[0]}: its libraries cannot be fetched: {(ran.stderr or ran.stdout)[-300:]}")


def jars(example: str, folder: Path) -> Path:
    """Fetch what the pom.xml of an example names, and what that needs, by Maven; returns the folder of the jars."""
    argv = ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"]
    fetched(argv, EXAMPLES / example)
    return folder / "jars"
