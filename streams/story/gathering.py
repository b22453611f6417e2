"""Sorts records by what they say about one query; what is about others is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import (
    Feedback,
    ModelPredictions,
    ModelQueries,
    Observation,
    Observations,
    Prediction,
    Query,
    outputs_of,
)
from streams.operators.late_outputs import is_late
from streams.story.values import BatchFigures, DeadRecord, Told

if TYPE_CHECKING:
    from schemas.codec import Codec
    from schemas.records import ModelOutput
    from streams.operators.contract import Record

About = TypeVar("About", Query, Prediction, Feedback, Observation)
_DEAD = topics.dead_letters("")
_ERROR = "skysail.error."


class StoryQuestion(NamedTuple):
    """A row of `ModelQueries`."""

    model: str
    row_id: str
    step: int
    due_us: int


class WorkerOutput(NamedTuple):
    """A row of `ModelPredictions`.

    Attributes:
        is_copy: selection has forwarded it to the joiner, since it was late: its worker's record is another one.
    """

    output: ModelOutput
    row_id: str
    step: int
    worker: str
    batch: BatchFigures
    is_shadow: bool
    is_copy: bool
    message: str


def is_row_of(row_id: str, query_id: str) -> bool:
    """Tell whether models were asked under this id about a query.

    A row of a stage has the stage behind the query's id. One whose id was under way already has its offset there.
    """
    return row_id.startswith(query_id) and row_id[len(query_id) : len(query_id) + 1] in ("", "/", "@")


class Gathering:
    """What the log says about one query, as it is found.

    Args:
        codec: of the records.
        query_id: the query's.
    """

    def __init__(self, codec: Codec, query_id: str) -> None:
        self._codec = codec
        self.query_id = query_id
        self.queries: list[Told[Query]] = []
        self.questions: list[Told[StoryQuestion]] = []
        self.outputs: list[Told[WorkerOutput]] = []
        self.answers: list[Told[Prediction]] = []
        self.feedback: list[Told[Feedback]] = []
        self.observations: list[Told[Observation]] = []
        self.dead: list[Told[DeadRecord]] = []

    def take(self, record: Record) -> bool:
        """Take a record of any topic; returns whether it is about the query. One that cannot be read is not."""
        before = self._count()
        try:
            self._sort(record, record.value or b"")
        except DecodeError:
            return False
        return self._count() > before

    def _count(self) -> int:
        about = len(self.queries) + len(self.answers) + len(self.feedback) + len(self.observations)
        return about + len(self.questions) + len(self.outputs) + len(self.dead)

    def _sort(self, record: Record, value: bytes) -> None:
        decode = self._codec.decode
        match record.topic:
            case name if name.endswith(_DEAD):
                self._take_dead(record)
            case topics.QUERIES:
                self._add(self.queries, record, decode(Query, value))
            case topics.PREDICTIONS:
                self._add(self.answers, record, decode(Prediction, value))
            case topics.FEEDBACK:
                self._add(self.feedback, record, decode(Feedback, value))
            case topics.OBSERVATIONS:
                for seen in decode(Observations, value).items:
                    self._add(self.observations, record, seen)
            case topics.MODEL_PREDICTIONS | topics.SHADOWS:
                self._take_outputs(record, decode(ModelPredictions, value))
            case name:
                self._take_questions(record, topics.asked_model(name), decode(ModelQueries, value))

    def _add(self, found: list[Told[About]], record: Record, said: About) -> None:
        if said.query_id == self.query_id:
            found.append(Told(record.position, record.timestamp_us, said))

    def _take_questions(self, record: Record, model: str, asked: ModelQueries) -> None:
        for row_id, due_us in zip(asked.query_ids, asked.due_us, strict=True):
            if is_row_of(row_id, self.query_id):
                said = StoryQuestion(model, row_id, asked.step, due_us)
                self.questions.append(Told(record.position, record.timestamp_us, said))

    def _take_outputs(self, record: Record, batch: ModelPredictions) -> None:
        rows = [row for row, name in enumerate(batch.query_ids) if is_row_of(name, self.query_id)]
        if not rows:
            return
        outputs, is_copy = outputs_of(batch), is_late(record)
        for row in rows:
            said = WorkerOutput(
                outputs[row],
                batch.query_ids[row],
                batch.steps[row] if batch.steps else 0,
                batch.worker,
                _times(batch, row),
                record.topic == topics.SHADOWS and not is_copy,
                is_copy,
                batch.messages[row] if batch.messages else "",
            )
            self.outputs.append(Told(record.position, record.timestamp_us, said))

    def _take_dead(self, record: Record) -> None:
        if self.query_id.encode() not in (record.value or b"") + b"\n" + (record.key or b""):
            return
        found = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
        source = found.get(f"{_ERROR}topic", record.topic.removesuffix(_DEAD))
        said = DeadRecord(source, found.get(f"{_ERROR}cause", "?"), found.get(f"{_ERROR}message", ""))
        self.dead.append(Told(record.position, record.timestamp_us, said))


def _times(batch: ModelPredictions, row: int) -> BatchFigures:
    return BatchFigures(
        batch.waited_us[row],
        batch.predict_us,
        batch.batch_rows,
        batch.batch_cap,
        batch.queue_rows,
        batch.released,
        batch.earliest_us,
    )
