"""Traces of rows from elsewhere."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from schemas.codec import Codec
from schemas.records import Feedback, Query, Tensor
from streams.trace.importing import imported
from streams.trace.manifest import Manifest, TraceError
from streams.trace.mapping import TraceMapping
from streams.trace.reader import Trace
from streams.trace.tables import rows
from workers.extras import remedy

if TYPE_CHECKING:
    from pathlib import Path

CODEC = Codec()
PLAIN = {"application": "digits", "time": {"column": "at", "unit": "s"}, "input": {"column": "text"}}


def made(file: Path, mapping: dict[str, Any]) -> tuple[list[Query], list[Feedback], list[int]]:
    """Import a file; return queries, feedback, and the times of both together."""
    folder = file.parent / "trace"
    imported(file, TraceMapping.parse(mapping), folder, Manifest("imported", "0", source=file.name), CODEC)
    trace = Trace.open(folder)
    queries = [CODEC.decode(Query, record.value) for record in trace.records("queries")]
    feedback = [CODEC.decode(Feedback, record.value) for record in trace.records("feedback")]
    return queries, feedback, [record.timestamp_us for record in trace.merged(["queries", "feedback"])]


def test_csv_with_numbers_times_and_late_labels(tmp_path: Path) -> None:
    """As public traces have them: ISO times of seven digits, a label that comes after a while, or never."""
    (tmp_path / "a.csv").write_text(
        "TIMESTAMP,x,y,user,answer\n"
        "2023-11-16 18:15:46.6805900,374,44,ann,7\n"
        "2023-11-16 18:15:47.0000000,1.5,2,bob,\n"
        "2023-11-16 18:15:48.0000000,1,2,ann,cat\n"
    )
    mapping = {
        "application": "digits",
        "time": {"column": "TIMESTAMP"},
        "input": {"columns": ["x", "y"]},
        "context": {"column": "user"},
        "features": {"columns": ["y"]},
        "label": {"column": "answer"},
        "delay": {"value": 1},
    }
    queries, feedback, times_us = made(tmp_path / "a.csv", mapping)
    assert [query.query_id for query in queries] == ["a-0", "a-1", "a-2"]
    assert queries[0].input == Tensor.of(np.array([374, 44], np.float32))
    assert (queries[0].context, queries[0].features) == ("ann", (44.0,))
    assert [(one.query_id, one.label) for one in feedback] == [("a-0", 7), ("a-2", "cat")]
    first_us = 1_700_158_546_680_590
    assert [at_us - first_us for at_us in times_us] == [0, 319_410, 1_000_000, 1_319_410, 2_319_410]


def test_json_lines_and_npz_give_the_same_as_csv(tmp_path: Path) -> None:
    """Rows that hold lists or arrays are inputs as they are."""
    lines = [{"at": at, "text": [at, 2.5], "wrong": at / 2} for at in range(2)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    np.savez(tmp_path / "a.npz", at=np.arange(2), text=np.array([[0, 2.5], [1, 2.5]], np.float32), wrong=[0, 0.5])
    found = []
    for kind in ("jsonl", "npz"):
        folder = tmp_path / kind
        folder.mkdir()
        (tmp_path / f"a.{kind}").rename(folder / f"a.{kind}")
        found.append(made(folder / f"a.{kind}", {**PLAIN, "loss": {"column": "wrong"}}))
    assert found[0] == found[1]
    assert [one.loss for one in found[0][1]] == [0.0, 0.5]
    assert found[0][0][1].input == Tensor.of(np.array([1, 2.5], np.float32))


def test_counts_become_queries_evenly_over_their_time(tmp_path: Path) -> None:
    """A row that counts nothing asks nothing."""
    (tmp_path / "elb.csv").write_text("at,value\n0,3.0\n300,0\n600,1\n")
    mapping = {
        "application": "web",
        "time": {"column": "at", "unit": "s"},
        "input": {"value": [1.0]},
        "count": {"column": "value"},
        "over": 300,
    }
    queries, _, times_us = made(tmp_path / "elb.csv", mapping)
    assert times_us == [0, 100_000_000, 200_000_000, 600_000_000]
    assert len({query.query_id for query in queries}) == 4


def test_an_import_that_is_repeated_doubles_nothing(tmp_path: Path) -> None:
    """It may have been interrupted."""
    (tmp_path / "a.csv").write_text("at,text\n1,x\n2,y\n")
    assert made(tmp_path / "a.csv", PLAIN) == made(tmp_path / "a.csv", PLAIN)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"application": "a", "time": 1}, "lacks input"),
        ({**PLAIN, "contxt": 1}, "did you mean 'context'"),
        ({**PLAIN, "time": {"colum": "at"}}, "did you mean 'time.column'"),
        ({**PLAIN, "time": {"column": "at", "unit": "h"}}, "time.unit"),
        ([], "keys and values"),
    ],
)
def test_what_is_no_mapping_is_refused(mapping: Any, message: str) -> None:
    """The message says what to write."""
    with pytest.raises(TraceError, match=message):
        TraceMapping.parse(mapping)


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("at,text\n2,x\n1,y\n", {}, "row 2 is earlier"),
        ("at,text\nsoon,x\n", {}, "row 1: 'soon' is no time"),
        ("at,text\n1,x\n", {"context": {"column": "user"}}, "no column 'user'; there are: at, text"),
        ("at,text\n1,x\n", {"features": {"columns": ["text"]}}, "row 1 does not fit"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path: Path, text: str, more: dict[str, Any], message: str) -> None:
    """By its number, and by what is wrong with it."""
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(TraceError, match=message):
        made(tmp_path / "a.csv", {**PLAIN, **more})


def test_a_file_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    """As one that is not what its name says."""
    for name in ("a.xls", "a.npz", "a.jsonl"):
        (tmp_path / name).write_text("?")
        with pytest.raises(TraceError, match=r"a.xls is of no known kind|cannot be read"):
            next(rows(tmp_path / name))


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path) -> None:
    """Nothing else needs it."""
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ModuleNotFoundError) as why:
        next(rows(tmp_path / "a.parquet"))
    assert "skysail[parquet]" in remedy(why.value)


def test_parquet_gives_the_same_as_json_lines(tmp_path: Path) -> None:
    """Where pyarrow is there."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = arrow.table({"at": [1, 2], "text": [[0.0, 2.5], [1.0, 2.5]]})
    parquet.write_table(table, tmp_path / "a.parquet")
    queries, _, _ = made(tmp_path / "a.parquet", PLAIN)
    assert queries[1].input == Tensor.of(np.array([1, 2.5], np.float32))
