"""One output a row, out of what a worker says of a whole batch."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from schemas.records import ModelOutput, Outcome, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from schemas.records import ModelPredictions, Value

_NEW = tuple.__new__  # makes a named tuple for a third of its constructor's cost


def outputs_of(batch: ModelPredictions) -> list[ModelOutput]:
    """Split a worker batch into one output a row, without numpy scalars in them."""
    answers, (model, version) = batch.answers, batch[:2]
    labels: Sequence[Value] = answers.numpy().tolist() if isinstance(answers, Tensor) else answers
    scores: Iterable[Tensor | None] = repeat(None) if batch.scores is None else _rows(batch.scores)
    ok = Outcome.OK
    return [
        _NEW(
            ModelOutput, (model, version, ok, label, score) if outcome is ok else (model, version, outcome, None, None)
        )
        for outcome, label, score in zip(batch.outcomes, labels, scores, strict=False)
    ]


def _rows(column: Tensor) -> Iterator[Tensor]:
    """Return the rows of a column as they lie."""
    rows, *shape = column.shape
    size = len(column.data) // rows if rows else 0
    for row in range(rows):
        yield Tensor(column.dtype, tuple(shape), column.data[row * size : (row + 1) * size])
