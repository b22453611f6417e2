"""Traces of rows from elsewhere."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from schemas.codec import Codec
from schemas.errors import FormatError
from schemas.records import Feedback, Query, Tensor
from streams.trace import tables
from streams.trace.importing import imported
from streams.trace.manifest import TraceError, TraceManifest
from streams.trace.mapping import TraceMapping
from streams.trace.reader import Trace
from streams.trace.tables import rows
from workers.extras import remedy

if TYPE_CHECKING:
    from collections.abc import Callable

CODEC = Codec()
PLAIN = {"application": "digits", "time": {"column": "at", "unit": "s"}, "input": {"column": "text"}}


def made(file: Path, mapping: dict[str, Any]) -> tuple[list[Query], list[Feedback], list[int]]:
    """Import a file; return queries, feedback, and the times of both together."""
    folder = file.parent / "trace"
    imported(file, TraceMapping.parse(mapping), folder, TraceManifest("imported", "0", source=file.name), CODEC)
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
        ("at,text\nsoon,x\n", {}, "row 1: at: 'soon' is no time"),
        ("at,text\n1,x\n", {"context": {"column": "user"}}, "user: there is no such field; there are: at, text"),
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


def _npz(path: Path, **arrays: np.ndarray) -> None:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # its annotations take one array alone


def _pipe(path: Path) -> None:
    os.mkfifo(path)


BAD: dict[str, Callable[[Path], object]] = {
    "pipe.csv": _pipe,
    "device.csv": lambda path: path.symlink_to("/dev/zero"),
    "folder.csv": Path.mkdir,
    "wide.csv": lambda path: path.write_text(f"at,text\n1,{'x' * 200_000}\n"),
    "nul.csv": lambda path: path.write_bytes(b"at,text\n1,\0\n\xff\n"),
    "empty.jsonl": lambda path: path.write_bytes(b"5"),
    "deep.jsonl": lambda path: path.write_text("[" * 100_000),
    "number.jsonl": lambda path: path.write_text("1" * 100_000),
    "late.jsonl": lambda path: path.write_text('{"at": 1e300, "text": "a"}'),
    "ever.jsonl": lambda path: path.write_text('{"at": Infinity, "text": "a"}'),
    "never.jsonl": lambda path: path.write_text('{"at": NaN, "text": "a"}'),
    "half.jsonl": lambda path: path.write_text('{"at": 1, "text": "\\ud800"}'),
    "noise.npz": lambda path: path.write_bytes(b"PK\x03\x04" + bytes(range(200))),
    "nothing.npz": lambda path: path.write_bytes(b""),
    "single.npz": lambda path: _npz(path, at=np.array(5)),
    "none.npz": _npz,
    "uneven.npz": lambda path: _npz(path, at=np.zeros(3), text=np.zeros(2)),
    "objects.npz": lambda path: _npz(path, at=np.array([None])),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.timeout(60)
def test_a_bad_file_is_one_error(tmp_path: Path, name: str) -> None:
    """Whatever stands in it, and whatever it is instead of a file: never a hang, never another exception."""
    BAD[name](tmp_path / name)
    with pytest.raises(FormatError) as why:
        made(tmp_path / name, PLAIN)
    assert len(str(why.value)) < 1_000


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_row_is_bounded(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without line ends is not read whole, nor is a row of ever more quoted lines; long files are."""
    monkeypatch.setattr(tables, "LINE_BYTES", 1_000)
    row = {"a.csv": '1,"%s"\n', "a.jsonl": '{"at": 1, "text": "%s"}\n'}[name]
    head = "at,text\n" if name == "a.csv" else ""
    (tmp_path / name).write_text(head + (row % "x") * 500)
    assert len(made(tmp_path / name, PLAIN)[0]) == 500
    for text in ("x" * 2_000, '"' + "\n" * 2_000, '1,"' + "a\n" * 1_000):
        (tmp_path / name).write_text(head + text)
        with pytest.raises(TraceError):
            [*rows(tmp_path / name)]


def test_arrays_are_bounded_before_they_are_inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are held together: a megabyte of zeros takes a thousandth of it in the file."""
    monkeypatch.setattr(tables, "NPZ_BYTES", 1_000_000)
    _npz(tmp_path / "a.npz", at=np.zeros(1 << 20))
    assert (tmp_path / "a.npz").stat().st_size < 20_000
    with pytest.raises(TraceError, match="held at most"):
        [*rows(tmp_path / "a.npz")]


def test_a_row_stands_for_no_more_queries_than_a_disk_takes(tmp_path: Path) -> None:
    """A count is bounded."""
    (tmp_path / "a.jsonl").write_text('{"at": 1, "text": "a", "n": 1e18}')
    with pytest.raises(TraceError, match="several rows"):
        made(tmp_path / "a.jsonl", {**PLAIN, "count": {"column": "n"}})
