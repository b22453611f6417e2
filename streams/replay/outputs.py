"""The outputs that a prediction was made from, as worker batches again: one for each model, version and form."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from schemas.records import ModelPredictions, Outcome, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import ModelOutput, Prediction, Value

# Partition, model, version, kind of answer, type and shape of scores, and what is told of the batch.
_Form: TypeAlias = "tuple[int, str, str, type, tuple[str, tuple[int, ...]] | None, int, int]"
_Row: TypeAlias = "tuple[str, ModelOutput, str]"


def is_whole(prediction: Prediction) -> bool:
    """Tell whether no output was missing."""
    outcomes = [*[output.outcome for output in prediction.outputs], *[row.outcome for row in prediction.stages]]
    return Outcome.MISSING not in outcomes


def has_substitutes(prediction: Prediction) -> bool:
    """Tell whether a running mean stood in for a model."""
    return any(output.outcome is not Outcome.OK and output.answer is not None for output in prediction.outputs)


def batches(predictions: Iterable[tuple[int, Prediction]]) -> list[tuple[int, ModelPredictions]]:
    """Return the worker batches that hold the outputs of predictions, each with its partition.

    Messages are recorded by query, not by model: the first output brings all of them.
    """
    rows: list[tuple[int, _Row]] = []
    for partition, prediction in predictions:
        known = [output for output in prediction.outputs if output.outcome is not Outcome.MISSING]
        said = [prediction.message, *[""] * len(known)]
        rows += [(partition, (prediction.query_id, *row)) for row in zip(known, said, strict=False)]
    return batched(rows)


def batched(rows: Iterable[tuple[int, _Row]]) -> list[tuple[int, ModelPredictions]]:
    """Return the worker batches that hold rows: partition, and id, output and message of each."""
    forms: defaultdict[_Form, list[_Row]] = defaultdict(list)
    for partition, row in rows:
        output = row[1]
        scores = output.scores
        kind: type = int if output.outcome is not Outcome.OK else output.answer.__class__
        form = None if scores is None else (scores.dtype, scores.shape)
        key = partition, output.model, output.version, kind, form, output.predict_us, output.batch_rows
        forms[key].append(row)
    return [(form[0], _batch(form, its)) for form, its in forms.items()]


def _batch(form: _Form, rows: list[_Row]) -> ModelPredictions:
    _, model, version, kind, scored, predict_us, batch_rows = form
    ids, outputs, messages = zip(*rows, strict=True)
    return ModelPredictions(
        model=model,
        version=version,
        worker="",
        query_ids=ids,
        outcomes=tuple([output.outcome for output in outputs]),
        answers=_answers(kind, outputs),
        scores=None if scored is None else Tensor(scored[0], (len(rows), *scored[1]), _joined(outputs)),
        waited_us=tuple([output.waited_us for output in outputs]),
        predict_us=predict_us,
        batch_rows=batch_rows,
        batch_cap=len(rows),
        queue_rows=0,
        messages=messages if any(messages) else (),
    )


def _answers(kind: type, outputs: tuple[ModelOutput, ...]) -> Tensor | tuple[str, ...]:
    answers: list[Value | None] = [output.answer if output.outcome is Outcome.OK else 0 for output in outputs]
    if kind is str:
        return tuple(map(str, answers))
    return Tensor.of(np.array(answers, dtype=np.float64 if kind is float else np.int64))


def _joined(outputs: tuple[ModelOutput, ...]) -> bytes:
    return b"".join([output.scores.data for output in outputs if output.scores is not None])
