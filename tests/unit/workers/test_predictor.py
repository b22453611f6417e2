"""A model has answered once before its first query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.records import Outcome, Tensor
from workers.executors.predictor import blank, predictor
from workers.manifest import Manifest, Signature
from workers.packages.loading import LoadedModel
from workers.runtimes.contract import Outputs

if TYPE_CHECKING:
    from collections.abc import Sequence


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
