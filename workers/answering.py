"""Writes down what became of a batch's rows: one ModelPredictions record for each partition that answers go to.

rows taken, predicted ──Batch──▶ columns by reply partition ──records──▶ ModelPredictions, each completing its sources
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from schemas.errors import SchemaError
from schemas.records import ModelPredictions, Outcome, Tensor
from streams.operators.contract import Emit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from schemas.codec import Codec
    from schemas.records import Input
    from streams.operators.contract import Effects, Position
    from workers.batcher import Take, Waiting
    from workers.rows import Predicted
    from workers.runtimes.contract import Answers


class Source:
    """A record whose rows wait: where it stood, where its answers go, and how many are still to be written."""

    __slots__ = ("left", "position", "reply_partition")

    def __init__(self, position: Position, reply_partition: int, rows: int) -> None:
        self.position = position
        self.reply_partition = reply_partition
        self.left = rows


class Asked(NamedTuple):
    """One row: a query's id and input, and the record it came in."""

    query_id: str
    input: Input
    source: Source


class Identity(NamedTuple):
    """Who answers."""

    model: str
    version: str
    worker: str


class Batch(NamedTuple):
    """Columns of everything that one batch decided; row i of each belongs to asked[i]."""

    asked: tuple[Waiting[Asked], ...]
    outcomes: tuple[Outcome, ...]
    answers: Answers
    scores: NDArray[np.generic] | None
    started_us: int
    predict_us: int
    rows: int
    cap: int
    queued: int

    @classmethod
    def of(cls, take: Take[Asked], predicted: Predicted, started_us: int, predict_us: int) -> Batch:
        """Return what was predicted, the take's expired rows behind it."""
        late = len(take.expired)
        answers, scores = predicted.answers, predicted.scores
        if late:
            answers = (*answers, *[""] * late) if isinstance(answers, tuple) else _padded(answers, late)
            scores = None if scores is None else _padded(scores, late)
        outcomes = predicted.outcomes + (Outcome.EXPIRED,) * late
        rows = take.rows + take.expired
        return cls(rows, outcomes, answers, scores, started_us, predict_us, len(take.rows), take.cap, take.queued)

    @classmethod
    def unpredicted(cls, take: Take[Asked], outcome: Outcome, now_us: int) -> Batch:
        """Return a take without rows; all that it gives up have one outcome."""
        rows = len(take.expired)
        answers = np.zeros(rows, dtype=np.int64)
        return cls(take.expired, (outcome,) * rows, answers, None, now_us, 0, 0, take.cap, take.queued)

    def columns(self, identity: Identity, rows: list[int]) -> ModelPredictions:
        """Return the record of some of the rows."""
        answers, scores = self.answers, self.scores
        return ModelPredictions(
            *identity,
            query_ids=tuple([self.asked[row].item.query_id for row in rows]),
            outcomes=tuple([self.outcomes[row] for row in rows]),
            answers=tuple([answers[row] for row in rows]) if isinstance(answers, tuple) else Tensor.of(answers[rows]),
            scores=None if scores is None else Tensor.of(scores[rows]),
            waited_us=tuple([max(0, self.started_us - self.asked[row].fetched_us) for row in rows]),
            predict_us=self.predict_us,
            batch_rows=self.rows,
            batch_cap=self.cap,
            queue_rows=self.queued,
        )

    def unanswered(self) -> Batch:
        """Give up answers that are too large to travel."""
        outcomes = tuple(Outcome.FAILED if outcome is Outcome.OK else outcome for outcome in self.outcomes)
        return self._replace(outcomes=outcomes, answers=np.zeros(len(self.asked), dtype=np.int64), scores=None)


@dataclass(frozen=True, slots=True)
class Answering:
    """Writes batches in one name, to one topic."""

    codec: Codec
    topic: str
    identity: Identity

    def records(self, batch: Batch) -> Effects:
        """Return the batch as records; a source whose last row is among them is complete."""
        groups: dict[int, list[int]] = {}
        for row, waiting in enumerate(batch.asked):
            groups.setdefault(waiting.item.source.reply_partition, []).append(row)
        return [emit for partition, rows in groups.items() for emit in self._emits(batch, partition, rows)]

    def _emits(self, batch: Batch, partition: int, rows: list[int]) -> Effects:
        """Make one record; what is too large for one (many classes, many rows) is halved."""
        try:
            value = self.codec.encode(batch.columns(self.identity, rows))
        except SchemaError:
            if len(rows) > 1:
                middle = len(rows) // 2
                return self._emits(batch, partition, rows[:middle]) + self._emits(batch, partition, rows[middle:])
            value = self.codec.encode(batch.unanswered().columns(self.identity, rows))
        done = tuple(_finished([batch.asked[row].item.source for row in rows]))
        return [Emit(self.topic, partition, None, value, done)]


def _finished(sources: list[Source]) -> Iterator[Position]:
    """Count one written row of each source; those that have none left are complete."""
    for source in sources:
        source.left -= 1
        if not source.left:
            yield source.position


def _padded(column: NDArray[np.generic], rows: int) -> NDArray[np.generic]:
    return np.concatenate([column, np.zeros((rows, *column.shape[1:]), dtype=column.dtype)])
