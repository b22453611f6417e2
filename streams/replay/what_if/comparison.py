"""What if: a trace's queries and feedback through the whole loop in virtual time, with one thing changed.

    queries, feedback ─▶ driver: selection ─▶ workers ─▶ selection ─▶ joiner ─▶ learner ─▶ states
                                   changed      └─ recorded outputs and times

Loops are compared in pairs: unchanged and changed, both in virtual time. A query of which some model's answer is not
recorded is left out of both: it is counted, its feedback is not told, and it is not part of any figure.
"""

from __future__ import annotations

from array import array
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_texts
from schemas.records import Application, Model, ModelPredictions, Observations, Prediction, Query
from streams.replay.what_if.changes import ChangeError, changed
from streams.replay.what_if.forked import Copied
from streams.replay.what_if.loop import Inputs, Loop, poll_us_of
from streams.replay.what_if.outcomes import QueryOutcomes, difference
from streams.replay.what_if.recorded_models import RecordedModels, key_of
from streams.runtime.process.gc_schedule import gc_less_often

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Input, Observation
    from streams.operators.contract import Predicted, Record
    from streams.replay.as_it_was import RecordedDeployment
    from streams.replay.recording import Recording
    from streams.replay.what_if.outcomes import DifferenceMoment, Numbers


class Beside(NamedTuple):
    """What is read beside the queries and their answers.

    Attributes:
        ids: of the queries whose answers feedback tells, in order of time.
        losses: of these.
        worths: what a loss of 1 costs, of these; below 0 = the loss has no unit.
        times_us: that batches took, by model and rows.
    """

    ids: list[str]
    losses: array[float]
    worths: array[float]
    times_us: dict[str, dict[int, list[int]]]


T = TypeVar("T")


class AtHand(NamedTuple):
    """A model that can be asked: its record, and what returns its answers and how long they took (us)."""

    model: Model
    predict: Callable[[Sequence[Input]], tuple[Predicted, int]]


class PlayOutcome(NamedTuple):
    """What came of a play: the outcome, and 1 for each query that is left out, by number."""

    outcome: QueryOutcomes
    left_out: bytearray


class ChangeComparison(NamedTuple):
    """What a change does.

    Attributes:
        recorded: what came of the queries.
        unchanged: the same queries in virtual time, with nothing changed.
        changed: and with the change.
        queries: that were asked of the application.
        left_out: of which some answer is not recorded.
        order: the numbers of the queries that count.
    """

    recorded: QueryOutcomes
    unchanged: QueryOutcomes
    changed: QueryOutcomes
    queries: int
    left_out: int
    order: Numbers

    @property
    def columns(self) -> dict[str, QueryOutcomes]:
        """What came of the queries, by name."""
        return {"recorded": self.recorded, "unchanged": self.unchanged, "changed": self.changed}

    @property
    def difference(self) -> tuple[DifferenceMoment, ...]:
        """What the change adds to the error, after each part of the queries; the last of all."""
        return difference(self.unchanged, self.changed, self.order)


class WhatIf:
    """One application's part of a trace, ready to be played.

    Of each query its id, a digest of its input and 21 bytes a column stay in memory; the trace is read for each play.

    Args:
        trace: that it is in.
        application: its name; None = the only one.
        deployment: that was recorded.
        codec: of the trace's records.
        at_hand: models that run where their outputs are not recorded.

    Raises:
        ChangeError: there is no such application in the trace, or more than one and none is named.
    """

    def __init__(
        self,
        trace: Recording,
        application: str | None,
        deployment: RecordedDeployment,
        codec: Codec,
        at_hand: Sequence[AtHand] = (),
    ) -> None:
        self._codec = codec
        self._trace = trace
        self._deployment = deployment
        self._changes = [*self._merged(topics.APPLICATIONS, topics.MODELS)]
        self.application = self._application(application)
        self._models = {one.model.name: one.model for one in at_hand} | self._known_models()
        self._outputs = RecordedModels({one.model.name: one.predict for one in at_hand})
        self._numbers: dict[str, int] = {}  # of queries, by id
        self._keys: list[bytes] = []  # of their inputs
        self._start_us = 0  # when the first was asked
        self.recorded = QueryOutcomes.of(0)
        self._gather()

    def compare(self, changes: Mapping[str, str], poll_us: int | None = None) -> ChangeComparison:
        """Play the queries twice, and return what came of those that count.

        Both plays run at once, one of them in a copy of this process; see `_copied`.

        Args:
            changes: by name, as `changed` takes them.
            poll_us: how often selection and workers poll; None = as the shorter objective says.

        Raises:
            ChangeError: the change cannot be made.
        """
        other = changed(self.application, changes)
        unknown = set(other.models) - self._models.keys()
        if unknown:
            known = ", ".join(sorted(self._models))
            missing = ", ".join(sorted(unknown))
            raise ChangeError(f"the trace knows no model {missing}; it knows {known}. Give the others' --packages")
        if poll_us is None:
            poll_us = min(poll_us_of(self.application), poll_us_of(other))
        beside = self._copied(lambda: self.play(other, poll_us))
        before, after = self.play(self.application, poll_us), beside.result()
        left_out = np.frombuffer(before.left_out, np.bool_) | np.frombuffer(after.left_out, np.bool_)
        answered = before.outcome.answered() & after.outcome.answered() & self.recorded.answered()
        order = np.flatnonzero(answered & ~left_out)
        return ChangeComparison(
            self.recorded, before.outcome, after.outcome, len(self._numbers), int(left_out.sum()), order
        )

    def play(self, application: Application, poll_us: int) -> PlayOutcome:
        """Play all queries to an application; see `Loop`."""
        inputs = Inputs(self._numbers, self._keys, self._outputs, self._models, self._start_us)
        with gc_less_often():
            loop = Loop(application, inputs, self._deployment, self._codec, poll_us)
            for record, number in self._played():
                if record.topic == topics.QUERIES or not loop.left_out[number]:
                    loop.take(record)
            loop.end()
        return PlayOutcome(loop.outcome, loop.left_out)

    def _played(self) -> Iterator[tuple[Record, int]]:
        """Yield the application's queries, each once, and the feedback on them, with the query's number."""
        asked = bytearray(len(self._numbers))
        for record in self._merged(topics.QUERIES, topics.FEEDBACK):
            try:
                query_id, *others = peek_texts(record.value, 2 if record.topic == topics.QUERIES else 1)
            except DecodeError:
                continue  # a dead letter then, and now
            number = self._numbers.get(query_id)
            if number is None or (others and (asked[number] or others[0] != self.application.name)):
                continue
            if others:
                asked[number] = 1
            yield record, number

    def _merged(self, *names: str) -> Iterator[Record]:
        """Yield the records of these topics by time, as far as the trace has them."""
        held = self._trace.topics()
        return self._trace.merged([name for name in names if name in held])

    def _copied(self, work: Callable[[], T]) -> Copied[T]:
        """Have something done in a copy of this process; models at hand may have threads, which a copy has not."""
        return Copied(work, is_copied=not self._outputs.running)

    def _gather(self) -> None:
        """Number the queries, and learn what models have answered, how long they took, and what came of it."""
        beside = self._copied(self._beside)
        with gc_less_often():
            for record in self._merged(topics.QUERIES, topics.PREDICTIONS):
                with suppress(DecodeError):
                    self._take(record)
        ids, losses, worths, times_us = beside.result()
        self._outputs.learn_times(times_us)
        for query_id, loss, worth in zip(ids, losses, worths, strict=True):
            if (number := self._numbers.get(query_id)) is not None:
                self.recorded.observed(number, loss, worth if worth >= 0.0 else None)

    def _take(self, record: Record) -> None:
        if record.topic == topics.QUERIES:
            query = self._codec.decode(Query, record.value)
            if query.application == self.application.name and query.query_id not in self._numbers:
                self._start_us = self._start_us or record.timestamp_us
                self._numbers[query.query_id] = len(self._numbers)
                self._keys.append(key_of(query.input))
                self.recorded.add()
            return
        prediction = self._codec.decode(Prediction, record.value)
        number = self._numbers.get(prediction.query_id)
        if number is not None and prediction.application == self.application.name:
            self._outputs.learn(prediction, self._keys[number])
            self.recorded.predicted(number, prediction)

    def _beside(self) -> Beside:
        """Read losses and times."""
        models, found = RecordedModels(), Beside([], array("d"), array("d"), {})
        with gc_less_often():
            for record in self._merged(topics.OBSERVATIONS, topics.MODEL_PREDICTIONS):
                with suppress(DecodeError):
                    if record.topic == topics.MODEL_PREDICTIONS:
                        models.learn_time(self._codec.decode(ModelPredictions, record.value))
                    else:
                        self._note_losses(self._codec.decode(Observations, record.value).items, found)
        return found._replace(times_us=models.times_us())

    def _note_losses(self, several: Sequence[Observation], found: Beside) -> None:
        for one in several:
            if one.application == self.application.name and one.loss is not None:
                found.ids.append(one.query_id)
                found.losses.append(one.loss)
                found.worths.append(-1.0 if one.worth is None else one.worth)

    def _application(self, name: str | None) -> Application:
        found = {
            record.key: self._codec.decode(Application, record.value)
            for record in self._changes
            if record.topic == topics.APPLICATIONS and record.value is not None
        }
        # What a model answers is known by its input alone, whichever version it was.
        known = {application.name: replace(application, versions={}) for application in found.values()}
        if name is None and len(known) == 1:
            name = next(iter(known))
        if name is None or name not in known:
            raise ChangeError(f"name one of the applications in the trace with --app: {', '.join(sorted(known))}")
        if known[name].sources:
            raise ChangeError(
                f"application {name} has features that were looked up, which the trace's queries lack. Replay it"
                " without --set, or judge another policy by the features that were logged: skysail evaluate FOLDER"
                f" --app {name} --policy POLICY"
            )
        return known[name]

    def _known_models(self) -> dict[str, Model]:
        return {
            model.name: replace(model, shares={}, labels={}, standby=())
            for record in self._changes
            if record.topic == topics.MODELS
            and record.value is not None
            and topics.MODEL_VERSION.encode() not in (record.key or b"")
            for model in (self._codec.decode(Model, record.value),)
        }
