"""Files of every kind are scored: a row out for each row in, in order, with what came of it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from tests.scored import got, put, score
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = np.ones((2, 2), np.float32)
ROWS = [{"name": f"r{number}", "a": number, "b": number % 3} for number in range(25)]
EXPECTED = [(row["a"] + row["b"]) % 2 for row in ROWS]  # type: ignore[operator]


@pytest.fixture
def parity(tmp_path: Path) -> Path:
    """Return a package that says whether a row's sum is odd."""
    package_function("tests.toys:parity", tmp_path / "parity", "parity", "1", SAMPLE)
    return tmp_path / "parity"


@pytest.mark.parametrize("given", [".jsonl", ".csv", ".avro", ".parquet"])
@pytest.mark.parametrize("wanted", [".jsonl", ".csv", ".avro", ".parquet"])
def test_each_row_has_its_answer(tmp_path: Path, parity: Path, given: str, wanted: str) -> None:
    """In order, over chunks, with its own columns beside; the answers are those of arithmetic."""
    if ".parquet" in {given, wanted}:
        pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    rows, out = put(tmp_path / f"rows{given}", ROWS), tmp_path / f"out{wanted}"
    report = score(rows, "--package", parity, "--input", "a,b", "--id", "name", "--out", out, "--chunk-rows", 7)
    assert (report["rows"], report["defaults"]) == (25, {})
    found = got(out)
    assert [int(row["answer"]) for row in found] == EXPECTED
    assert [row["id"] for row in found] == [row["name"] for row in ROWS]
    assert [int(row["a"]) for row in found] == [row["a"] for row in ROWS]
    assert {row["model"] for row in found} == {"parity"}
    assert not (tmp_path / f"out{wanted}.parts").exists()


def test_a_row_that_cannot_be_asked_says_why(tmp_path: Path, parity: Path) -> None:
    """The others are answered; the counts say how many, and no row is left out."""
    rows = [{"a": 1, "b": 2}, {"a": "much", "b": 2}, {"a": None, "b": 2}, {"a": 4, "b": 4}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = score(path, "--package", parity, "--input", "a,b", "--out", tmp_path / "out.jsonl")
    assert report["defaults"] == {"unreadable": 1, "invalid_input": 1}
    found = got(tmp_path / "out.jsonl")
    assert [row["answer"] for row in found] == [1, None, None, 0]
    assert [row["reason"] for row in found] == [None, "unreadable", "invalid_input", None]
    assert "a: is a number, not 'much'" in found[1]["message"]
    assert "NaN at 0" in found[2]["message"]


def test_a_folder_is_scored_file_by_file(tmp_path: Path, parity: Path) -> None:
    """In order of their names; what is no data of its kind is passed over."""
    folder = tmp_path / "day"
    folder.mkdir()
    put(folder / "2.jsonl", ROWS[10:])
    put(folder / "1.jsonl", ROWS[:10])
    (folder / "_SUCCESS").write_text("")
    score(folder, "--package", parity, "--input", "a,b", "--keep", "none", "--out", tmp_path / "out.jsonl")
    found = got(tmp_path / "out.jsonl")
    assert [row["answer"] for row in found] == EXPECTED
    assert [row["id"] for row in found][8:12] == ["1.jsonl:8", "1.jsonl:9", "2.jsonl:0", "2.jsonl:1"]
    assert "a" not in found[0]


def test_columns_are_found_by_the_signature_or_asked_for(tmp_path: Path, parity: Path) -> None:
    """As many numbers as the model takes are its input; where that is not so, the message names them."""
    path = put(tmp_path / "two.csv", [{"a": 1, "b": 2, "name": "x"}])
    score(path, "--package", parity, "--out", tmp_path / "two.jsonl")
    assert got(tmp_path / "two.jsonl")[0]["answer"] == 1
    path = put(tmp_path / "three.csv", [{"a": 1, "b": 2, "c": 3}])
    runner = CliRunner(env=dict(os.environ))
    arguments = ["score", str(path), "--package", str(parity), "--out", str(tmp_path / "x.csv")]
    result = runner.invoke(skysail, arguments)
    assert "name them in its order, such as --input a,b,c" in str(result.exception)


def test_fields_are_called_as_one_likes(tmp_path: Path, parity: Path) -> None:
    """And a column that would be there twice is refused with the way out."""
    path = put(tmp_path / "rows.jsonl", [{"a": 1, "b": 2, "answer": "mine"}])
    runner = CliRunner(env=dict(os.environ))
    arguments = ["score", str(path), "--package", str(parity), "--input", "a,b", "--out", str(tmp_path / "out.jsonl")]
    result = runner.invoke(skysail, arguments)
    assert "--field scored_answer=answer" in str(result.exception)
    score(*arguments[1:], "--field", "score=answer", "--restart")
    assert got(tmp_path / "out.jsonl") == [{"a": 1, "b": 2, "answer": "mine", "score": 1}]
