"""Runtimes behind fixed batch sizes: what they see, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from schemas.records import Outcome, Tensor
from workers.errors import OutputError
from workers.executors.predictor import Padded, predictor
from workers.manifest import Manifest, Signature
from workers.packages.loading import LoadedModel
from workers.runtimes.contract import Outputs

if TYPE_CHECKING:
    from workers.runtimes.contract import Rows

SIZES = (2, 8)


class Summing:
    """A runtime that answers the sum of a row, or a text in capitals, and notes what it was given."""

    def __init__(self, lost: int = 0) -> None:
        self.sizes: list[int] = []
        self._lost = lost

    def predict_batch(self, rows: Rows) -> Outputs:
        """Answer every row, but for the last `lost` ones; zero is refused."""
        self.sizes.append(len(rows))
        if isinstance(rows, np.ndarray):
            if not rows.any(axis=1).all():
                raise ValueError("zeros")
            sums = rows.sum(axis=1)[: len(rows) - self._lost]
            return Outputs(sums, np.stack([sums, -sums], axis=1))
        return Outputs(tuple(str(row).upper() for row in rows))


def batch(rows: int) -> np.ndarray[Any, Any]:
    """Return rows that sum to 1, 2, 3, ..."""
    return np.arange(1, rows + 1, dtype=np.float64)[:, None]


@pytest.mark.parametrize(("rows", "seen"), [(1, [2]), (2, [2]), (3, [8]), (8, [8]), (9, [8, 2]), (20, [8, 8, 8])])
def test_a_model_sees_allowed_sizes_only(rows: int, seen: list[int]) -> None:
    """Smaller batches are filled up, larger ones are several; every row has its own answer and scores."""
    runtime = Summing()
    outputs = Padded(runtime, SIZES).predict_batch(batch(rows))
    assert runtime.sizes == seen
    assert np.asarray(outputs.answers).tolist() == list(range(1, rows + 1))
    assert outputs.scores is not None
    assert outputs.scores.shape == (rows, 2)


def test_texts_are_padded_too() -> None:
    """And their labels joined."""
    texts = ["a", "b", "c"] * 3
    outputs = Padded(Summing(), SIZES).predict_batch(texts)
    assert outputs.answers == tuple("ABC" * 3)
    assert outputs.scores is None


def test_a_model_that_loses_rows_is_found_out() -> None:
    """Without the check, five lost rows of eight would look like the three that were asked."""
    with pytest.raises(OutputError, match="3 answers for 8 rows"):
        Padded(Summing(lost=5), SIZES).predict_batch(batch(3))


def test_a_model_that_prepares_for_its_sizes_is_told_them_first() -> None:
    """Before the first batch: that may be what is recorded."""

    class Preparing(Summing):
        def prepare(self, sizes: tuple[int, ...]) -> None:
            self.sizes += [-size for size in sizes]

    for sizes, seen in (((2, 8), [-2, -8]), ((), [])):
        runtime = Preparing()
        model = LoadedModel(Manifest("m", "1", "function", Signature("tensor", "float64", (1,)), "value"), runtime, "")
        predictor(model, sizes)
        assert [size for size in runtime.sizes if size < 0] == seen
        assert runtime.sizes[: len(seen)] == seen


def test_every_size_is_tried_at_the_start_and_a_bad_row_fails_alone() -> None:
    """What is compiled for each shape is compiled before the first query; halves of a batch are padded as well."""
    runtime = Summing()
    model = LoadedModel(Manifest("m", "1", "function", Signature("tensor", "float64", (1,)), "value"), runtime, "")
    predict = predictor(model, SIZES)
    assert {2, 8} == set(runtime.sizes)

    predicted = predict([Tensor.of(np.array([value])) for value in (1.0, 2.0, 0.0, 4.0, 5.0)])

    ok, failed = Outcome.OK, Outcome.FAILED
    assert list(predicted.outcomes) == [ok, ok, failed, ok, ok]
    assert [predicted.answers[row] for row in (0, 1, 3, 4)] == [1.0, 2.0, 4.0, 5.0]
    assert {2, 8} == set(runtime.sizes)
