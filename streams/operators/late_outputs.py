"""Outputs of an ensemble's models that come after its answer: too late to count for it, in time to be learnt from.

    answered without m ─▶ remembered ─▶ m's output ─▶ topic `shadows` ─▶ the joiner, which takes it for the missing one

So a voting policy learns how good a slow model is, not that it was slow. A model that is asked alone has no late
outputs: without its output nothing was answered, unless that was reconstructed.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from schemas import topics
from schemas.records import ModelPredictions, Outcome, Tensor, dense_of
from streams.operators.contract import Emit

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from schemas.codec import Codec
    from schemas.records import ModelOutput, Prediction
    from streams.operators.contract import Record

# Queries of a partition, at least: a slow model is seconds late, not minutes.
_REMEMBERED: Final = 10_000
_ID: Final = 256  # characters: queries with longer ids are not remembered
# Mark on a record of topic `shadows`: its outputs are late, not a shadow's. Only selection, which asked for them, knows
# this. When the feedback comes, a shadow may serve by now, and the late version may be gone.
_MARK: Final = ("late", b"1")


class LateBatch(NamedTuple):
    """Outputs of one worker batch that some queries were answered without.

    Attributes:
        batch: of them alone.
        applications: for each row, whose running mean it belongs to; None = nobody's.
    """

    batch: ModelPredictions
    applications: tuple[str | None, ...]

    def emit(self, partition: int, codec: Codec) -> Emit:
        """Return the record for the joiner."""
        return Emit(topics.SHADOWS, partition, None, codec.encode(self.batch), headers=(_MARK,))


class _MissingModels(NamedTuple):
    """Which models a query was answered without, whose running means they belong to, and the query's id."""

    models: frozenset[str]
    application: str | None
    query_id: str


class LateOutputs:
    """Queries that were answered without some of their models; the oldest are forgotten."""

    __slots__ = ("_missing",)

    def __init__(self) -> None:
        self._missing: dict[int, dict[str, _MissingModels]] = {}

    def expect(
        self, partition: int, query_id: str, models: Collection[str], application: str | None, row_id: str = ""
    ) -> None:
        """Remember a query that has been answered without these models.

        Args:
            partition: of the query.
            query_id: its id.
            models: that were missing.
            application: that lets running means stand in for them; None = no such one.
            row_id: under which they were asked; empty = its id.
        """
        row_id = row_id or query_id
        if len(row_id) > _ID:
            return
        queries = self._missing.setdefault(partition, {})
        queries[row_id] = _MissingModels(frozenset(models), application, query_id)
        # All at once: from the front of a dict each takes 10 to 20 us (20,000 of them, CPython 3.11), as the search for
        # the first begins among all that were deleted.
        if len(queries) > 2 * _REMEMBERED:
            self._missing[partition] = dict(islice(queries.items(), _REMEMBERED, None))

    def take(self, partition: int, batch: ModelPredictions) -> LateBatch | None:
        """Return those of a worker batch's outputs that some query was answered without; None if there are none."""
        queries = self._missing.get(partition)
        if not queries:
            return None
        rows, applications, ids = [], [], []
        for row, (row_id, outcome) in enumerate(zip(batch.query_ids, batch.outcomes, strict=True)):
            missing = queries.get(row_id)
            if missing is None or outcome is not Outcome.OK or batch.model not in missing.models:
                continue
            rows.append(row)
            applications.append(missing.application)
            ids.append(missing.query_id)  # whoever joins them looks under the query's id
            left = missing.models - {batch.model}
            if left:
                queries[row_id] = missing._replace(models=left)
            else:
                del queries[row_id]
        return LateBatch(_only(batch, rows)._replace(query_ids=tuple(ids)), tuple(applications)) if rows else None

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
        answers=tuple([answers[row] for row in rows])
        if isinstance(answers, tuple)
        else dense_of(answers.numpy()[places]),
        scores=None if scores is None else Tensor.of(scores.numpy()[places]),
        waited_us=tuple([batch.waited_us[row] for row in rows]),
        messages=tuple([batch.messages[row] for row in rows]) if batch.messages else (),
        steps=tuple([batch.steps[row] for row in rows]) if batch.steps else (),
    )


def is_late(record: Record) -> bool:
    """Tell whether a record of topic `shadows` holds late outputs, not a shadow's."""
    return _MARK in record.headers


class SideOutput(NamedTuple):
    """An output of a version beside the answer: too late for it, or of a shadow."""

    output: ModelOutput
    is_late: bool
    written_us: int = 0  # when its worker wrote it


def completed(prediction: Prediction, come: Sequence[SideOutput]) -> Prediction:
    """Put outputs in the place of those that were missing when an ensemble was answered.

    Args:
        prediction: as it was answered.
        come: what versions said beside it: late ones, which have a place in it, and shadows, which have none.
    """
    if not come:
        return prediction
    missing = {output.model for output in prediction.outputs if output.outcome is Outcome.MISSING}
    late = {one.output.model: one.output for one in come if one.is_late and one.output.model in missing}
    is_alone = len(prediction.outputs) == 1 and not prediction.outputs[0].reconstructed
    if not late or is_alone:
        return prediction
    # At the end: the outputs that the answer was made of come first.
    outputs = [output for output in prediction.outputs if output.model not in late] + [*late.values()]
    return prediction._replace(outputs=tuple(outputs))
