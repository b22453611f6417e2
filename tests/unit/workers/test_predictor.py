"""A model has answered once before its first query."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.records import Outcome, Tensor
from streams.operators.contract import Predicted
from workers.executors.predictor import LEAST_LONGEST, blank, longest_inside, predictor, within
from workers.manifest import Manifest, Signature
from workers.packages.loading import LoadedModel
from workers.runtimes.contract import Outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input


class Counting:
    """A runtime that counts its calls and refuses zeros."""

    def __init__(self) -> None:
        self.calls = 0

    def predict_batch(self, rows: np.ndarray | Sequence[str | bytes]) -> Outputs:
        """Answer 1 for every row."""
        self.calls += 1
        if not np.asarray(rows).any():
            raise ValueError("zeros")
        return Outputs(np.ones(len(rows), dtype=np.int64), None)


def test_a_model_that_refuses_the_blank_row_still_serves() -> None:
    """The warm-up's answer, or its failure, is forgotten."""
    runtime = Counting()
    signature = Signature("tensor", "float32", (2,))
    predict = predictor(LoadedModel(Manifest("m", "1", "function", signature, "label"), runtime, ""))
    warmed = runtime.calls

    predicted = predict([Tensor.of(np.ones(2, dtype=np.float32))])

    assert warmed >= 1
    assert list(predicted.outcomes) == [Outcome.OK]


@pytest.mark.parametrize(("kind", "expected"), [("string", ""), ("bytes", b"")])
def test_text_models_are_warmed_with_nothing(kind: str, expected: object) -> None:
    """There is no shape to fill."""
    assert blank(Signature(kind)) == expected


def echo(rows: Sequence[Input]) -> Predicted:
    """Answer each row with its text, and note how long each batch was."""
    return Predicted((Outcome.OK,) * len(rows), tuple(map(str, rows)))


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([3, 3, 3], [[3, 3, 3]]),
        ([5, 5, 5], [[5, 5], [5]]),
        ([11], []),
        ([0, 11, 0, 10, 1, 99], [[0], [0], [10], [1]]),
        ([], [[]]),
    ],
)
def test_rows_that_are_too_long_are_invalid_and_others_go_in_parts(sizes: list[int], parts: list[list[int]]) -> None:
    """No part is longer than one row may be, so that others of the process have a turn; each row has its outcome."""
    asked: list[list[int]] = []

    def ask(rows: Sequence[Input]) -> Predicted:
        asked.append([len(row) for row in rows if isinstance(row, str)])
        return echo(rows)

    found = within(10, ask, "m")([f"{size % 10}" * size for size in sizes])
    assert asked == parts
    assert found.outcomes == tuple(Outcome.OK if size <= 10 else Outcome.INVALID for size in sizes)
    assert found.reasons == {row: "size" for row, size in enumerate(sizes) if size > 10}
    assert all("at most 10" in found.messages[row] for row in found.reasons)
    if parts:
        assert [len(str(answer)) for answer in found.answers] == [size if size <= 10 else 0 for size in sizes]


def test_how_long_a_row_may_be_inside_follows_from_the_sample() -> None:
    """Ten times the largest; some thousands if the sample is short; tensors have one size."""
    manifest = Manifest("m", "1", "function", Signature("string"), "label")
    model = LoadedModel(manifest, Counting(), "", warm_up=("a" * 5_000, "b"))
    assert longest_inside(model) == 50_000
    assert longest_inside(replace(model, warm_up=("short",))) == LEAST_LONGEST
    assert longest_inside(replace(model, warm_up=())) == LEAST_LONGEST
    tensors = replace(manifest, input=Signature("tensor", "float32", (2,)))
    assert longest_inside(replace(model, manifest=tensors)) == 0
