"""Rows of a data frame become what each of them would be alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from schemas.inputs import as_input
from schemas.rows import each_input

pd = pytest.importorskip("pandas")

FRAMES: list[dict[str, Any]] = [
    {"age": [41, 23], "pay": [1.5, float("nan")]},
    {"age": [41, 23]},
    {"age": [41, 23], "job": ["nurse", None]},
    {"age": [41, None], "is_new": [True, False], "job": ["nurse", "cook"]},
    {"at": [datetime(2026, 1, 2, tzinfo=UTC), None], "pay": [1, 2]},
    {"is_new": [True, False], "pay": [1.5, 2.5]},
]


@pytest.mark.parametrize("columns", FRAMES)
def test_a_row_of_a_frame_is_what_it_is_alone(columns: dict[str, Any]) -> None:
    """Whatever its columns hold, and whatever its index: `predict(frame.iloc[i])` is the definition."""
    frame = pd.DataFrame(columns, index=[7, 7])
    assert [*each_input(frame)] == [as_input(frame.iloc[row]) for row in range(len(frame))]


@pytest.mark.parametrize("rows", [np.arange(6.0).reshape(3, 2), [[1, 2], [3, 4]], ["a", "b"], [{"age": 1}], []])
def test_other_rows_are_taken_one_by_one(rows: Any) -> None:
    """An array's first dimension, a list's items."""
    assert [*each_input(rows)] == [as_input(row) for row in rows]


def test_a_row_that_is_no_input_becomes_its_error() -> None:
    """The others are not concerned."""
    found = [*each_input([[1.0], object(), "text"])]  # type: ignore[list-item]
    assert [type(one) for one in found[1:]] == [TypeError, str]
