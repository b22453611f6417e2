"""What a model would refuse is said before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from deploy.diagnose.mapped_topics import MappedRecord
from deploy.diagnose.suited_rows import unsuited
from schemas.records import Feedback, Query, Tensor
from skysail import package_sklearn
from streams.operators.contract import Record

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.records import Input

ROWS: list[Input] = [
    '{"amount": 1.5, "country": "NZ", "other": null}', '{"amount": "lots", "country": "NZ"}', '{"amount": 2}',
    Tensor.of(np.array([1, 2], np.float32)),
]  # fmt: skip


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Return a model of a data frame, and one of two numbers."""
    frame = pd.DataFrame({"amount": [1.0, 2.0, 3.0, 4.0], "country": ["NZ", "DE", "NZ", "DE"]})
    pipeline = make_pipeline(
        ColumnTransformer([("c", OneHotEncoder(), ["country"])], remainder="passthrough"), LogisticRegression()
    )
    package_sklearn(pipeline.fit(frame, [0, 1, 0, 1]), tmp_path / "table", "table", "1", frame)
    rows = np.array([[0, 1], [1, 0]], np.float32)
    package_sklearn(LogisticRegression().fit(rows, [0, 1]), tmp_path / "array", "array", "1", rows)
    return {name: tmp_path / name for name in ("table", "array", "elsewhere")}


def mapped() -> list[MappedRecord]:
    """Return what records became: a query for each row, and feedback."""
    made = [Query(f"q{place}", "fraud", row) for place, row in enumerate(ROWS)]
    return [
        MappedRecord(Record("/orders", 0, place, 5, None, b""), one, b"k")
        for place, one in enumerate([*made, Feedback("q0", 1)])
    ]


def test_rows_that_a_model_would_refuse_are_told_with_their_places(folders: dict[str, Path]) -> None:
    """By its package; a model whose package is elsewhere says nothing, and feedback is no row."""
    found = unsuited(folders, ("elsewhere", "table", "unknown"), mapped())
    assert [(record.offset, message) for record, message in found] == [
        (1, "model table column amount takes a number, got 'lots'"),
        (2, "model table has no column country"),
        (3, found[2][1]),
    ]
    assert "as a JSON text, got float32[2]" in found[2][1]


def test_the_first_model_that_refuses_a_row_is_named(folders: dict[str, Path]) -> None:
    """A row that one takes may not be what the other takes."""
    found = unsuited(folders, ("array", "table"), mapped())
    assert [(record.offset, message.split()[1]) for record, message in found] == [
        (0, "array"), (1, "array"), (2, "array"), (3, "table"),
    ]  # fmt: skip
