"""What a story is made of: frozen values, times in microseconds since the epoch, durations in microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from schemas.records import Feedback, Observation, Outcome, PolicyState, Prediction, Query, Value
    from streams.operators.contract import Position

T = TypeVar("T", covariant=True)  # noqa: PLC0105 - the letter is the house's


class Told(NamedTuple, Generic[T]):
    """Something that stands in the log, and where.

    Attributes:
        place: of its record.
        time_us: of its record.
        said: what it says.
    """

    place: Position
    time_us: int
    said: T


class DeadRecord(NamedTuple):
    """Why a record about the query became a dead letter."""

    topic: str  # that it came from
    cause: str
    message: str


class BatchFigures(NamedTuple):
    """What a worker's batch took.

    Attributes:
        waited_us: from the worker's fetch to the start of the batch.
        predict_us: of the whole batch.
        rows: predicted together.
        cap: the controller's.
        queue_rows: that were still waiting.
        released: why the batch started.
        begun_us: when it did; 0 = none ran.
    """

    waited_us: int
    predict_us: int
    rows: int
    cap: int
    queue_rows: int
    released: str
    begun_us: int = 0


class ModelLeg(NamedTuple):
    """One question to one model, and what came of it.

    Attributes:
        model: that was asked.
        version: that answered; "" = none did.
        row_id: under which it was asked: the query's id, or that of a row of a stage.
        step: 0 = a first question; see `schemas.records.ModelQueries.step`.
        asked_us: when the question was written; None = there is no record of it.
        due_us: when the output had to be on its way back; None likewise.
        written_us: when the output was written; None = there is no record of it.
        worker: instance that answered.
        outcome: of the row, by the worker; of the prediction where no worker's record is there.
        answer: of the row.
        batch: what it took; None = there is no record of it.
        on_way_us: from the question's record to the worker's fetch, by two clocks; None = not known.
        spare_us: from the output's record until the query was answered; below 0 = it came too late. None = not known.
        is_late: the query was answered without it, because it had not come.
        is_shadow: a shadow was asked: it answers nothing.
        message: why there is no answer, for a person.
    """

    model: str
    version: str
    row_id: str
    step: int
    asked_us: int | None
    due_us: int | None
    written_us: int | None
    worker: str
    outcome: Outcome
    answer: Value | None
    batch: BatchFigures | None
    on_way_us: int | None
    spare_us: int | None
    is_late: bool
    is_shadow: bool = False
    message: str = ""


class StateChange(NamedTuple):
    """What an observation made of a policy state.

    Attributes:
        name: of the state.
        decided: the state by which the query was decided; None = the fold has not met it, or there was none yet.
        before: as it was before the observation; None = there was none.
        after: as it was after it; None = it taught nothing, see `refused`.
        folded: observations of this state that were folded for that, the last one too.
        refused: why it taught nothing; "" = it did.
    """

    name: str
    decided: PolicyState | None
    before: PolicyState | None
    after: PolicyState | None
    folded: int
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """All that the log says about one query.

    Attributes:
        query_id: its id.
        queries: as it was asked; more than one where the id was used again.
        answers: its predictions; the first one counts, as for the joiner.
        legs: questions to models, in the order in which they were asked.
        feedback: as it came.
        observations: what became of it; one, unless it was observed again after a crash.
        change: what it taught; None = nothing, or that is not known, see `notes`.
        dead: dead letters that name it.
        notes: what is not known, and why, for a person.
    """

    query_id: str
    queries: tuple[Told[Query], ...] = ()
    answers: tuple[Told[Prediction], ...] = ()
    legs: tuple[ModelLeg, ...] = ()
    feedback: tuple[Told[Feedback], ...] = ()
    observations: tuple[Told[Observation], ...] = ()
    change: StateChange | None = None
    dead: tuple[Told[DeadRecord], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def late(self) -> tuple[ModelLeg, ...]:
        """The legs without which the query was answered."""
        return tuple([leg for leg in self.legs if leg.is_late])

    @property
    def is_empty(self) -> bool:
        """Whether nothing names the query."""
        return not (self.queries or self.answers or self.legs or self.feedback or self.observations or self.dead)
