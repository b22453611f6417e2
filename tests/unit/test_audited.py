"""What is made of what pip-audit says: a fault that is known is never passed over, and silence is no praise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / ".ci" / "audited"
SKIPPED = {"name": "mine", "skip_reason": "Dependency not found on PyPI and could not be audited: mine (1)"}
WELL = {"name": "numpy", "version": "2.4", "vulns": []}
WRONG = {"name": "old", "version": "1", "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2"]}]}


def audited(said: str) -> tuple[int, str]:
    """Return how it ends, and what it prints."""
    ended = subprocess.run([sys.executable, PROGRAM], input=said, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


def test_what_is_known_to_be_wrong_is_told_with_what_mends_it() -> None:
    """Whatever else could not be looked up."""
    code, said = audited(json.dumps({"dependencies": [SKIPPED, WELL, WRONG]}))
    assert (code, "old 1: PYSEC-1, CVE-1, mended in 2" in said) == (1, True)
    assert "2 packages were looked up, 1 faults are known" in said


def test_one_package_that_is_not_known_there_is_not_all_of_them() -> None:
    """The project itself may be none that is published."""
    code, said = audited(json.dumps({"dependencies": [SKIPPED, WELL]}))
    assert (code, "1 packages were looked up, 0 faults are known" in said) == (0, True)


def test_where_nothing_could_be_looked_up_nothing_is_known() -> None:
    """Neither good nor bad; also where it ended without a word."""
    for said in ("", "no JSON", json.dumps({"dependencies": [SKIPPED]})):
        code, told = audited(said)
        assert (code, told.startswith("not audited")) == (0, True)
