"""Files of every kind are scored: a row out for each row in, in order, with what came of it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LinearRegression

from deploy.cli import skysail
from deploy.errors import UsageError
from tests.scored import got, put, score
from workers.packages.packaging import package_function, package_sklearn

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


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--input", "a,c"), "input: there is no column c in the first 2 rows; there are: a, b"),
        (("--input", "a"), "takes float32[2], and 1 columns"),
        (("--input", "a,b,a"), "3 columns are named as its input"),
        (("--input", "a,b", "--id", "name"), "id: there is no column name"),
        (("--input", '{"columns": {"a": "user.a", "b": "b"}}'), "input: there is no column user.a"),
    ],
)
def test_columns_that_are_not_there_are_refused_at_once(
    tmp_path: Path, parity: Path, options: tuple[str, ...], why: str
) -> None:
    """A slip of the pen does not become a million rows with their default."""
    path = put(tmp_path / "rows.jsonl", [{"a": 1, "b": 2}, {"a": 2, "b": 2}])
    arguments = ["score", str(path), "--package", str(parity), "--out", str(tmp_path / "out.jsonl"), *options]
    result = CliRunner(env=dict(os.environ)).invoke(skysail, arguments)
    assert why in str(result.exception)
    assert not (tmp_path / "out.jsonl").exists()


def test_fields_are_called_as_one_likes(tmp_path: Path, parity: Path) -> None:
    """And a column that would be there twice is refused with the way out."""
    path = put(tmp_path / "rows.jsonl", [{"a": 1, "b": 2, "answer": "mine"}])
    runner = CliRunner(env=dict(os.environ))
    arguments = ["score", str(path), "--package", str(parity), "--input", "a,b", "--out", str(tmp_path / "out.jsonl")]
    result = runner.invoke(skysail, arguments)
    assert "--field scored_answer=answer" in str(result.exception)
    score(*arguments[1:], "--field", "score=answer", "--restart")
    assert got(tmp_path / "out.jsonl") == [{"a": 1, "b": 2, "answer": "mine", "score": 1}]


@pytest.mark.parametrize("kind", [".jsonl", ".csv"])
def test_several_tensors_are_written_as_json(tmp_path: Path, kind: str) -> None:
    """A text for each row, of a regression on two targets."""
    rows = np.random.default_rng(0).normal(size=(20, 2))
    fitted = LinearRegression().fit(rows, rows @ np.array([[1.0, 3.0], [2.0, 4.0]]))
    package_sklearn(fitted, tmp_path / "heights", "heights", "1", rows[:5], outputs=("short", "tall"))
    path = put(tmp_path / "rows.jsonl", [{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}])
    score(path, "--package", tmp_path / "heights", "--input", "a,b", "--out", tmp_path / f"out{kind}")
    found = [json.loads(row["answer"]) for row in got(tmp_path / f"out{kind}")]
    assert found == [pytest.approx({"short": 1.0, "tall": 3.0}), pytest.approx({"short": 2.0, "tall": 4.0})]


def test_a_model_that_takes_several_tensors_is_for_clients(tmp_path: Path) -> None:
    """Files have no columns for them; the message says what to do instead."""
    sample = {"left": np.ones((2, 2), np.float32), "right": np.ones(2, np.float32)}
    package_function("tests.toys:left_and_right", tmp_path / "p", "pairs", "1", sample, output="tensors")
    path = put(tmp_path / "rows.jsonl", [{"left": 1.0, "right": 2.0}])
    asked = ["score", str(path), "--package", str(tmp_path / "p"), "--out", str(tmp_path / "out.jsonl")]
    result = CliRunner().invoke(skysail, asked)
    assert isinstance(result.exception, UsageError), result
    assert "client.predict_many" in str(result.exception)
