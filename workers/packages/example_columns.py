"""What the rows of a sample are like, and a model's answers to them: the watch over drift begins with that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.records import dense_of, values_of
from streams.usual.columns import of_answer, of_input
from streams.usual.rows import ANSWERS, INPUTS, usual_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input
    from streams.operators.contract import Predicted
    from streams.usual.rows import UsualDocument
    from workers.manifest import Manifest


def usual_rows(manifest: Manifest, rows: Sequence[Input], predicted: Predicted) -> UsualDocument:
    """Return the columns of a sample; none of a few rows, of addresses, and of a parity model, which nobody asks.

    Confidences are none of them: of rows that it was trained on a model is surer than of others.

    Args:
        manifest: of the model.
        rows: as they travel, all of them answered.
        predicted: the answers.
    """
    if manifest.input.by_reference or "parity" in manifest.options:
        return {}
    answers = predicted.answers if isinstance(predicted.answers, tuple) else dense_of(predicted.answers)
    inputs = usual_of([of_input(row) for row in rows])
    return {INPUTS: inputs, ANSWERS: usual_of([of_answer(value) for value in values_of(answers)])} if inputs else {}
