"""Turns the outcomes of a batch's rows into records: one ModelPredictions for each partition that answers go to.

rows taken, predicted ──Batch──▶ columns by reply partition ──records──▶ ModelPredictions, each completing its sources
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from schemas.errors import SchemaError
from schemas.records import ModelPredictions, Outcome, Tensor, dense_of
from schemas.topics import SHADOWS
from streams.operators.contract import Emit
from workers.inputs.columns import Column, stacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.codec import Codec
    from schemas.records import Input, ModelQueries
    from streams.operators.contract import Effects, Position, Predicted
    from workers.kernel.model.batcher import Take, Waiting
    from workers.runtimes.contract import Answers


NO_MESSAGES: Final[Mapping[int, str]] = MappingProxyType({})


class RowSource:
    """A record whose rows wait: where it stood, where its answers go, its inputs and step, rows yet to be written."""

    __slots__ = ("column", "left", "position", "reply_partition", "step")

    def __init__(self, position: Position, reply_partition: int, column: Column, rows: int, step: int = 0) -> None:
        self.position = position
        self.reply_partition = reply_partition
        self.column = column
        self.left = rows
        self.step = step


class Asked(NamedTuple):
    """One row: a query's id, the record it came in, and its place there."""

    query_id: str
    place: int
    source: RowSource

    @property
    def input(self) -> Input:
        """The query's input, by itself."""
        return self.source.column[self.place]


def size_of(asked: Asked) -> int:
    """Return about how many bytes a row's input takes."""
    return asked.source.column.size(asked.place)


def asked_of(queries: ModelQueries, position: Position) -> list[tuple[int, Asked]]:
    """Return the rows of a record, with their due times."""
    ids = queries.query_ids
    source = RowSource(position, queries.reply_partition, Column(queries.inputs), len(ids), queries.step)
    new = tuple.__new__  # a third of the constructor's cost
    rows = enumerate(zip(queries.due_us, ids, strict=True))
    return [(due_us, new(Asked, (query_id, place, source))) for place, (due_us, query_id) in rows]


def inputs_of(rows: Sequence[Waiting[Asked]]) -> Sequence[Input]:
    """Return the inputs of rows, in one piece where they have one form."""
    return stacked((source.column, place) for _, place, source in [row.item for row in rows])


class Identity(NamedTuple):
    """Who answers."""

    model: str
    version: str
    worker: str


class DecidedBatch(NamedTuple):
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
    released: str = ""
    messages: Mapping[int, str] = NO_MESSAGES
    latest_us: int = 0

    @classmethod
    def of(cls, take: Take[Asked], predicted: Predicted, started_us: int, predict_us: int) -> DecidedBatch:
        """Return what was predicted, the take's expired rows behind it."""
        late = len(take.expired)
        answers, scores = predicted.answers, predicted.scores
        if late:
            answers = (*answers, *[""] * late) if isinstance(answers, tuple) else _padded(answers, late)
            scores = None if scores is None else _padded(scores, late)
        outcomes = predicted.outcomes + (Outcome.EXPIRED,) * late
        rows = take.rows + take.expired
        figures = (len(take.rows), take.cap, take.queued, take.reason)
        return cls(
            rows, outcomes, answers, scores, started_us, predict_us, *figures, predicted.messages, take.latest_us
        )

    @classmethod
    def unpredicted(cls, take: Take[Asked], outcome: Outcome, now_us: int, message: str = "") -> DecidedBatch:
        """Return a take without rows: all rows that it gives up have one outcome, and one message if there is any."""
        rows = len(take.expired)
        answers = np.zeros(rows, dtype=np.int64)
        messages = dict.fromkeys(range(rows), message) if message else NO_MESSAGES
        figures = (now_us, 0, 0, take.cap, take.queued, "", messages)
        return cls(take.expired, (outcome,) * rows, answers, None, *figures)

    def part(self, rows: list[int]) -> DecidedBatch:
        """Return some of the rows."""
        answers, scores = self.answers, self.scores
        return self._replace(
            asked=tuple([self.asked[row] for row in rows]),
            outcomes=tuple([self.outcomes[row] for row in rows]),
            answers=tuple([answers[row] for row in rows]) if isinstance(answers, tuple) else answers[rows],
            scores=None if scores is None else scores[rows],
            messages={at: self.messages[row] for at, row in enumerate(rows) if row in self.messages},
        )

    def record(self, identity: Identity) -> ModelPredictions:
        """Return the columns as a record."""
        answers, started_us = self.answers, self.started_us
        fetched_us = [row.fetched_us for row in self.asked]
        steps = tuple([row.item.source.step for row in self.asked])
        return ModelPredictions(
            *identity,
            query_ids=tuple([row.item.query_id for row in self.asked]),
            outcomes=self.outcomes,
            answers=answers if isinstance(answers, tuple) else dense_of(answers),
            scores=None if self.scores is None else Tensor.of(self.scores),
            waited_us=tuple([started_us - at_us if at_us < started_us else 0 for at_us in fetched_us]),
            predict_us=self.predict_us,
            batch_rows=self.rows,
            batch_cap=self.cap,
            queue_rows=self.queued,
            released=self.released,
            messages=tuple([self.messages.get(row, "") for row in range(len(self.asked))]) if self.messages else (),
            earliest_us=started_us if self.rows else 0,
            latest_us=self.latest_us,
            steps=steps if any(steps) else (),
        )

    def halves(self) -> tuple[DecidedBatch, DecidedBatch]:
        """Return the first half of the rows, and the others."""
        rows = list(range(len(self.asked)))
        return self.part(rows[: len(rows) // 2]), self.part(rows[len(rows) // 2 :])

    def unanswered(self) -> DecidedBatch:
        """Give up answers that are too large to travel."""
        outcomes = tuple(Outcome.FAILED if outcome is Outcome.OK else outcome for outcome in self.outcomes)
        return self._replace(outcomes=outcomes, answers=np.zeros(len(self.asked), dtype=np.int64), scores=None)


@dataclass(frozen=True, slots=True)
class AnswerWriter:
    """Writes batches in one name, to one topic."""

    codec: Codec
    topic: str
    identity: Identity

    def records(self, batch: DecidedBatch) -> Effects:
        """Return the batch as records; a source whose last row is among them is complete."""
        partitions = [row.item.source.reply_partition for row in batch.asked]
        parts = set(partitions)
        if len(parts) == 1:
            return self._answers(batch, *parts)
        groups: dict[int, list[int]] = {}
        for row, partition in enumerate(partitions):
            groups.setdefault(partition, []).append(row)
        return [answer for partition, rows in groups.items() for answer in self._answers(batch.part(rows), partition)]

    def _answers(self, batch: DecidedBatch, partition: int) -> Effects:
        """Make one record, or halve the rows if they are too large for one (many classes, many rows)."""
        record = batch.record(self.identity)
        try:
            value = self.codec.encode(record)
        except SchemaError:
            if len(batch.asked) > 1:
                return [answer for half in batch.halves() for answer in self._answers(half, partition)]
            record = batch.unanswered().record(self.identity)
            value = self.codec.encode(record)
        done = tuple(_finished([row.item.source for row in batch.asked]))
        return [Emit(self.topic, partition, None, value, done, is_part=not done and self.topic != SHADOWS)]


def _finished(sources: list[RowSource]) -> Iterator[Position]:
    """Count one written row of each source; sources with no row left are complete."""
    for source in sources:
        source.left -= 1
        if not source.left:
            yield source.position


def _padded(column: NDArray[np.generic], rows: int) -> NDArray[np.generic]:
    return np.concatenate([column, np.zeros((rows, *column.shape[1:]), dtype=column.dtype)])
