"""The log of an application as files: a row for each answer, joined by id."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from deploy.dataset import building
from deploy.dataset.building import build
from deploy.dataset.spill import Spill
from deploy.errors import UsageError
from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Decision,
    JoinStatus,
    ModelOutput,
    Observation,
    Observations,
    Outcome,
    Prediction,
    Query,
    Status,
    Tensor,
)
from streams.operators.contract import Record

if TYPE_CHECKING:
    from pathlib import Path

CODEC = Codec()
DECISION = Decision((1,), 4, "shop", "exp3", ("a", "b"), (0.25, 0.75))


def record(topic: str, value: object) -> Record:
    """Return a record as the broker has it."""
    return Record(topic, 0, 0, 5, b"k", CODEC.encode(value))


def asked(query_id: str, given: Any, application: str = "shop") -> Record:
    """Return a query."""
    return record(topics.QUERIES, Query(query_id, application, given, "ann", 1_000_000))


def answered(query_id: str, answer: Any, application: str = "shop") -> Record:
    """Return its answer."""
    outputs = (ModelOutput("b", "2", Outcome.OK, answer),)
    found = Prediction(
        query_id, application, "ann", DECISION, Status.COMPLETE, None, answer, 0.5, outputs, 1_000_000, 2, 3, 2_000_000
    )
    return record(topics.PREDICTIONS, found)


def seen(query_id: str, label: Any, application: str = "shop") -> Observation:
    """Return what was learnt of it."""
    return Observation(
        query_id, application, "ann", DECISION, (None, 1.0), 1.0, label, JoinStatus.JOINED, 2_000_000, 3_000_000
    )


def built(folder: Path, *records: Record, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Build a dataset; returns its report, and its rows by id."""
    report = build(records, CODEC, "shop", folder, lambda _: None, form="jsonl", **options)
    rows = [json.loads(line) for name in report.files for line in (folder / name).read_text().splitlines()]
    return report, sorted(rows, key=lambda row: str(row["query_id"]))


def test_rows_are_joined_by_id(tmp_path: Path) -> None:
    """Whatever order the log has; others' records are not in it, and what is missing is counted."""
    numbers = Tensor.of(np.array([1.0, 2.0], np.float32))
    report, rows = built(
        tmp_path / "data",
        record(topics.OBSERVATIONS, Observations((seen("q1", 7), seen("x", 1, "other")))),
        answered("q1", 7), answered("q2", 8), answered("q3", 9), answered("x", 1, "other"),
        asked("q1", numbers), asked("q2", numbers), asked("q4", numbers), asked("x", numbers, "other"),
        Record(topics.QUERIES, 0, 0, 5, b"k", b"no record"),
    )  # fmt: skip
    assert report[:6] == (3, 1, 1, 1, 1, 1)
    assert [row["query_id"] for row in rows] == ["q1", "q2", "q3"]
    first = rows[0]
    assert first["input"] == [1.0, 2.0]
    assert (first["label"], first["loss"], first["losses"]) == (7, 1.0, [None, 1.0])
    assert (first["cost"], first["weight"]) == (None, None)
    assert (first["chosen"], first["propensity"], first["models"], first["versions"]) == (["b"], 0.75, ["b"], ["2"])
    assert rows[2]["input"] is None
    about = json.loads((tmp_path / "data" / "_dataset.json").read_text())
    assert about["columns"]["label"] == "whole"
    assert not (tmp_path / ".data.part").exists()


def test_costs_and_weights_have_columns(tmp_path: Path) -> None:
    """A cost in the unit of the loss; the part of a full lesson."""
    priced = seen("q1", 7)._replace(worth=40.0, weight=0.5)
    _, (row,) = built(tmp_path / "data", record(topics.OBSERVATIONS, Observations((priced,))), answered("q1", 7))
    assert (row["loss"], row["cost"], row["weight"]) == (1.0, 40.0, 0.5)


def test_inputs_with_names_have_columns(tmp_path: Path) -> None:
    """Of one kind each; one that holds texts and numbers holds texts."""
    rows = [{"age": 3, "job": "nurse", "odd": 1}, {"age": 3.5, "job": None, "odd": "x"}]
    log = [asked(f"q{n}", json.dumps(row)) for n, row in enumerate(rows)]
    _, found = built(tmp_path / "data", *log, answered("q0", "yes"), answered("q1", "no"))
    assert [row["input.age"] for row in found] == [3.0, 3.5]
    assert [row["input.job"] for row in found] == ["nurse", None]
    assert [row["input.odd"] for row in found] == ["1", "x"]


def test_only_rows_with_labels_where_that_is_wanted(tmp_path: Path) -> None:
    """The others are left out."""
    log = [answered("q0", 1), answered("q1", 2), record(topics.OBSERVATIONS, seen("q1", "two"))]
    report, found = built(tmp_path / "data", *log, labelled_only=True)
    assert (report.rows, [row["query_id"] for row in found]) == (1, ["q1"])


def test_parquet_reads_as_a_frame(tmp_path: Path) -> None:
    """With lists of numbers, and times as moments."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    log = [asked("q0", Tensor.of(np.array([1.5], np.float32))), answered("q0", 0.5)]
    report = build(log, CODEC, "shop", tmp_path / "data", lambda _: None)
    (row,) = parquet.read_table(tmp_path / "data" / report.files[0]).to_pylist()
    assert (row["input"], row["answer"], row["asked_at"].timestamp()) == ([1.5], 0.5, 1.0)


def test_a_folder_is_one_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pandas reads it, with all that lies in it; files are cut by the bytes of their records."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    monkeypatch.setattr(building, "PART_BYTES", 1)
    log = [each for n in range(5) for each in (asked(f"q{n}", Tensor.of(np.ones(2, np.float32))), answered(f"q{n}", n))]
    report = build(log, CODEC, "shop", tmp_path / "data", lambda _: None)
    assert len(report.files) == 5
    frame = pandas.read_parquet(tmp_path / "data")
    assert sorted(frame["query_id"]) == [f"q{n}" for n in range(5)]
    assert dict(zip(frame["query_id"], frame["answer"], strict=True)) == {f"q{n}": n for n in range(5)}


def test_nothing_is_written_where_there_is_nothing(tmp_path: Path) -> None:
    """And a folder that is there is left as it is."""
    with pytest.raises(UsageError, match="no answers of application shop"):
        built(tmp_path / "data")
    assert not [*tmp_path.iterdir()]
    (tmp_path / "data").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        built(tmp_path / "data", answered("q0", 1))


def test_the_first_value_of_an_id_counts(tmp_path: Path) -> None:
    """Whatever its length: who was answered twice has read the first answer, and feedback was joined with it."""
    spill = Spill(tmp_path, "values")
    for query_id, value in (("a", b"1"), ("b", b""), ("a", b"22")):
        spill.put(query_id, value)
    spill.close()
    found: dict[str, bytes] = {}
    for number in range(64):
        found |= spill.bucket(number)
    assert found == {"a": b"1", "b": b""}
