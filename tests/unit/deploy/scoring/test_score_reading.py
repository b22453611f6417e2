"""Rows are read in runs that are bounded, and a line that is none stands in its place."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config.settings import Settings
from deploy.errors import DeployError
from deploy.scoring import reading, topic
from tests.scored import got, put, score
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = np.ones((2, 2), np.float32)
ROWS = [{"name": f"r{number}", "a": number, "b": 1} for number in range(40)]


@pytest.fixture
def parity(tmp_path: Path) -> Path:
    """Return a package that says whether a row's sum is odd."""
    package_function("tests.toys:parity", tmp_path / "parity", "parity", "1", SAMPLE)
    return tmp_path / "parity"


@pytest.mark.parametrize(
    ("ending", "text", "why"),
    [
        (
            ".jsonl",
            '{"a": 1, "b": 2}\n{"a": 1,\n[1]\n\n{"a": 4, "b": 4}\n',
            ["is no JSON", "is a JSON object, not list"],
        ),
        (".csv", "a,b\n1,2\n1\n1,2,3\n\n4,4\n", ["has 1 fields, not 2", "has 3 fields, not 2"]),
    ],
)
def test_a_line_that_is_no_row_stands_in_its_place(
    tmp_path: Path, parity: Path, ending: str, text: str, why: list[str]
) -> None:
    """With the reason; the others are answered, and lines with nothing are none."""
    path = tmp_path / f"rows{ending}"
    path.write_text(text)
    report = score(path, "--package", parity, "--input", "a,b", "--out", tmp_path / "out.jsonl")
    assert (report["rows"], report["defaults"]) == (4, {"unreadable": 2})
    found = got(tmp_path / "out.jsonl")
    assert [row["answer"] for row in found] == [1, None, None, 0]
    for row, word in zip(found[1:3], why, strict=True):
        assert word in row["message"]


def test_a_file_that_is_of_another_kind_is_refused(tmp_path: Path, parity: Path) -> None:
    """Nothing of its beginning can be read: no output is made of that."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"PAR1\n\x00\x01\nPAR1")
    arguments = ["score", str(path), "--package", str(parity), "--input", "a,b", "--out", str(tmp_path / "out.jsonl")]
    result = CliRunner(env=dict(os.environ)).invoke(skysail, arguments)
    assert "can be read: the line is no JSON" in str(result.exception)
    assert not (tmp_path / "out.jsonl.parts").exists()


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".avro", ".parquet"])
def test_runs_are_bounded_in_bytes(tmp_path: Path, parity: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """However many rows a chunk may have; each row is still there once."""
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    wide = [row | {"text": "x" * 1000} for row in ROWS]
    path = put(tmp_path / f"rows{ending}", wide)
    monkeypatch.setattr(reading, "BLOCK_BYTES", 4_000)
    sizes = [block.rows for block in reading.blocks(path, 0, 1_000)]
    assert sum(sizes) == len(ROWS)
    assert max(sizes) <= 6
    assert next(block.rows for block in reading.blocks(path, 30, 1_000)) <= 6
    score(path, "--package", parity, "--input", "a,b", "--out", tmp_path / "out.jsonl")
    assert [row["answer"] for row in got(tmp_path / "out.jsonl")] == [(number + 1) % 2 for number in range(40)]


def test_a_line_that_is_too_long_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not held, and what comes behind it is read."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"a": "x" * 200}) + "\n" + '{"a": 1}\n' + " " * 99 + "\n" + '{"a": 2}\n')
    monkeypatch.setattr(reading, "LINE_BYTES", 64)
    (block,) = reading.blocks(path, 0, 100)
    assert [row.get("a") for row in block.as_rows()] == [None, 1, 2]
    assert {*block.faults} == {0}
    assert "MiB" in block.faults[0]


class _Forgotten:
    """A consumer of a group that the broker knows nothing of."""

    def committed(self, places: list[Any], timeout: float) -> list[Any]:
        """Return that nothing is known."""
        return [SimpleNamespace(offset=-1001) for _ in places]

    def close(self) -> None:
        """Do nothing."""


def test_a_job_of_a_topic_is_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a week the broker has forgotten what a topic holds: nothing is written twice then."""
    monkeypatch.setattr(topic, "_consumer", lambda *_: _Forgotten())
    monkeypatch.setattr(topic.TopicSink, "_ready", lambda _: None)
    sink = topic.TopicSink(Settings(), "scored", cast("Any", None), "job")
    with pytest.raises(DeployError, match="no longer knows"):
        sink.holds(3)
    assert not sink.holds(0)
