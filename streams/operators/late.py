"""Outputs of an ensemble that come after its answer: too late to count for it, in time to be learnt from.

    answered without m ─▶ remembered ─▶ m's output ─▶ topic `shadows` ─▶ the joiner, which takes it for the missing one

So a policy that votes learns how good a slow model is, and not that it was slow. A model that was asked alone has lost
its query: nothing was answered.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from schemas import topics
from schemas.records import ModelPredictions, Outcome, Tensor
from streams.operators.contract import Emit

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from schemas.codec import Codec
    from schemas.records import ModelOutput, Prediction
    from streams.operators.contract import Record

# Queries of a partition, at least: a slow model is seconds late, not minutes.
_REMEMBERED: Final = 10_000
# On a record of topic `shadows`: its outputs are late, not a shadow's. Which it is only who had asked for them knows:
# by the time of the feedback a shadow may serve, and the version that was late be gone.
_MARK: Final = ("late", b"1")


class LateOutputs:
    """What was answered without some of the models asked, by query; of the oldest nothing is known any more."""

    __slots__ = ("_missing",)

    def __init__(self) -> None:
        self._missing: dict[int, dict[str, frozenset[str]]] = {}

    def expect(self, partition: int, query_id: str, models: Collection[str]) -> None:
        """Remember a query that has been answered without these models."""
        queries = self._missing.setdefault(partition, {})
        queries[query_id] = frozenset(models)
        # All at once: from the front of a dict each takes 10 to 20 us (20,000 of them, CPython 3.11), as the search for
        # the first begins among all that were deleted.
        if len(queries) > 2 * _REMEMBERED:
            self._missing[partition] = dict(islice(queries.items(), _REMEMBERED, None))

    def take(self, partition: int, batch: ModelPredictions, codec: Codec) -> list[Emit]:
        """Return the record of those of a worker batch's outputs that some query was answered without."""
        queries = self._missing.get(partition)
        if not queries:
            return []
        rows = [
            row
            for row, (query_id, outcome) in enumerate(zip(batch.query_ids, batch.outcomes, strict=True))
            if outcome is Outcome.OK and batch.model in queries.get(query_id, ())
        ]
        for row in rows:
            left = queries[batch.query_ids[row]] - {batch.model}
            if left:
                queries[batch.query_ids[row]] = left
            else:
                del queries[batch.query_ids[row]]
        if not rows:
            return []
        return [Emit(topics.SHADOWS, partition, None, codec.encode(_only(batch, rows)), headers=(_MARK,))]

    def drop(self, partitions: Sequence[int]) -> None:
        """Forget these partitions."""
        for partition in partitions:
            self._missing.pop(partition, None)


def _only(batch: ModelPredictions, rows: Sequence[int]) -> ModelPredictions:
    if len(rows) == len(batch.query_ids):
        return batch
    answers, scores, places = batch.answers, batch.scores, np.array(rows)
    return batch._replace(
        query_ids=tuple([batch.query_ids[row] for row in rows]),
        outcomes=tuple([batch.outcomes[row] for row in rows]),
        answers=Tensor.of(answers.numpy()[places])
        if isinstance(answers, Tensor)
        else tuple([answers[row] for row in rows]),
        scores=None if scores is None else Tensor.of(scores.numpy()[places]),
        waited_us=tuple([batch.waited_us[row] for row in rows]),
    )


def is_late(record: Record) -> bool:
    """Tell whether a record of topic `shadows` holds late outputs, not a shadow's."""
    return _MARK in record.headers


class Beside(NamedTuple):
    """What a version said beside an answer: too late for it, or as a shadow."""

    output: ModelOutput
    is_late: bool


def completed(prediction: Prediction, come: Sequence[Beside]) -> tuple[Prediction, tuple[ModelOutput, ...]]:
    """Put outputs in the place of those that were missing when an ensemble was answered.

    Args:
        prediction: as it was answered.
        come: what versions said beside it: late ones, and shadows.

    Returns:
        The prediction, and what has no place in it: shadows.
    """
    missing = {output.model for output in prediction.outputs if output.outcome is Outcome.MISSING}
    late = {one.output.model: one.output for one in come if one.is_late and one.output.model in missing}
    if not late or len(prediction.outputs) == 1:
        return prediction, tuple([one.output for one in come])
    # At the end: what the answer is held against stands first.
    outputs = [output for output in prediction.outputs if output.model not in late] + [*late.values()]
    return prediction._replace(outputs=tuple(outputs)), tuple(
        [one.output for one in come if one.output is not late.get(one.output.model)]
    )
