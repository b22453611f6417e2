"""A newcomer's first hour: what somebody has stands on the first page, and what they are given begins to work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
CELLS: list[dict[str, Any]] = json.loads((ROOT / "examples/notebook/digits.ipynb").read_text("utf-8"))["cells"]


@pytest.mark.parametrize(
    ("has", "page"),
    [
        ("notebook", "notebook.md"),
        ("curl", "gateway.md"),
        ("Helm", "kubernetes.md"),
        ("Parquet", "scoring.md"),
        ("policy", "extending.md"),
        ("error", "errors.md"),
    ],
)
def test_the_first_page_says_where_to_begin(has: str, page: str) -> None:
    """By what somebody has, before any list of pages."""
    beginning = (ROOT / "docs/index.md").read_text(encoding="utf-8").partition("\n## ")[0]
    (row,) = re.findall(rf"^\| [^|]*{has}[^|]* \|([^|]*)\|$", beginning, re.MULTILINE)
    assert f"({page}" in row


def test_each_cell_of_the_notebook_has_a_name_of_its_own() -> None:
    """The format wants one since its minor version 5; a notebook without them will be refused."""
    names = [cell["id"] for cell in CELLS]
    assert len({*names}) == len(names)


def test_the_notebook_needs_no_command_on_the_path() -> None:
    """A kernel's Python is often of an environment that is not active, so its programs are not found by name."""
    code = "".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code")
    assert re.findall(r"Popen\(\[(.*?)\]", code) == ['sys.executable, "-m", "skysail", "run"']
    typed = [sys.executable, "-P", "-m", "skysail", "--version"]
    done = subprocess.run(typed, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)})
    assert done.stdout.startswith("skysail, version ")


def test_a_table_is_scored_from_nothing(tmp_path: Path) -> None:
    """What docs/scoring.md has somebody save and type, without a broker; as CSV where there is no Parquet."""
    begun = (ROOT / "docs/scoring.md").read_text(encoding="utf-8").partition("## Score a file")[0]
    if find_spec("pyarrow") is None:
        begun = begun.replace('to_parquet("rows.parquet")', 'to_csv("rows.csv", index=False)')
        begun = begun.replace("read_parquet", "read_csv").replace(".parquet", ".csv")
    (program,) = re.findall(r"```python\n(# flowers.py\n.*?)```", begun, re.DOTALL)
    (tmp_path / "flowers.py").write_text(program, encoding="utf-8")
    (session,) = re.findall(r"```console\n(.*?)```", begun, re.DOTALL)
    typed = [line.removeprefix("$ ") for line in session.splitlines() if line.startswith("$ ")]
    script = "\n".join(["set -e", 'skysail() { python -m skysail "$@"; }', *typed])
    here = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "150 rows in scored." in done.stderr + done.stdout
    assert re.search(r"\n149 +2 +2 +[01]\.\d+ +complete\n", done.stdout), done.stdout
