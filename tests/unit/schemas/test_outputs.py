"""What a worker batch says of each row: whatever a record can hold, an output is one that an answer can be made of."""

from __future__ import annotations

import numpy as np
import pytest

from schemas.codec import Codec
from schemas.records import ModelOutput, ModelPredictions, Outcome, Prediction, Status, Tensor, outputs_of

CODEC = Codec()


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (Tensor.of(np.array([3, -1], np.int8)), [3, -1]),
        (Tensor.of(np.array([0.5, 2.0])), [0.5, 2.0]),
        (("a", ""), ["a", ""]),
        (Tensor.of(np.array([True, False])), [1, 0]),
        (Tensor.of(np.array([np.nan, 2.0])), [None, 2.0]),
        (Tensor.of(np.array([np.inf, -np.inf], np.float32)), [None, None]),
        (Tensor.of(np.array([1e308, 1e308])), [1e308, 1e308]),  # only their sum is not finite
        (Tensor.of(np.array([2**63 - 1, 2**63], np.uint64)), [2**63 - 1, None]),
        (Tensor.of(np.ones((2, 2))), [None, None]),
        (Tensor.of(np.ones((2, 0))), [None, None]),
        (Tensor.of(np.ones((2, 1, 1), np.int64)), [None, None]),
    ],
)
def test_a_row_without_a_label_number_or_text_has_failed(
    answers: Tensor | tuple[str, ...], found: list[object]
) -> None:
    """All others are answers, and a prediction can hold them."""
    batch = ModelPredictions("m", "1", "w", ("q", "r"), (Outcome.OK,) * 2, answers, None, (0, 0), 1, 2, 2, 0)
    outputs = outputs_of(CODEC.decode(ModelPredictions, CODEC.encode(batch)))
    assert [output.answer for output in outputs] == found
    assert [output.outcome for output in outputs] == [Outcome.FAILED if x is None else Outcome.OK for x in found]
    for output in outputs:
        made = Prediction("q", "a", None, None, Status.COMPLETE, None, output.answer, 1.0, (output,), 0, 0, 0, 0, "")
        assert CODEC.decode(Prediction, CODEC.encode(made)).answer == output.answer


def test_a_row_that_is_not_answered_keeps_why() -> None:
    """What its column holds means nothing."""
    outcomes = (Outcome.EXPIRED, Outcome.INVALID)
    batch = ModelPredictions("m", "1", "w", ("q", "r"), outcomes, Tensor.of(np.ones((2, 2))), None, (0, 0), 1, 2, 2, 0)
    assert outputs_of(batch) == [ModelOutput("m", "1", outcome, None) for outcome in outcomes]
