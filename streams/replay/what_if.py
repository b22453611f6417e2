"""What if: a trace's queries and feedback through the whole loop in virtual time, with one thing changed.

    queries, feedback ─▶ driver: selection ─▶ workers ─▶ selection ─▶ joiner ─▶ learner ─▶ states
                                   changed      └─ recorded outputs and times

Loops are compared in pairs: unchanged and changed, both in virtual time. A query of which some model's answer is not
recorded is left out of both: it is counted, its feedback is not told, and it is not part of any figure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Feedback, Model, ModelPredictions, Observations, Prediction, Query
from streams.operators.join.kernel import Joiner
from streams.operators.learn.kernel import Learner
from streams.operators.selection.kernel import Selection
from streams.replay.changes import ChangeError, changed
from streams.replay.configurations import Timeline
from streams.replay.outcomes import Outcome, note_observations, note_prediction
from streams.replay.recorded_models import RecordedModels
from streams.testing import START_US, Driver
from streams.topology import build, worker_role
from workers.kernel.worker import ModelWorker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Input
    from streams.operators.contract import Operator, Predicted, Record
    from streams.replay.as_it_was import Deployment, Recording


class AtHand(NamedTuple):
    """A model that can be asked: its record, and what returns its answers and how long they took (us)."""

    model: Model
    predict: Callable[[Sequence[Input]], tuple[Predicted, int]]


class Played(NamedTuple):
    """What is played: a query or feedback, when, and where it stands."""

    at_us: int
    topic: str
    partition: int
    key: bytes | None
    value: Query | Feedback


class Comparison(NamedTuple):
    """What a change does.

    Attributes:
        recorded: what came of the queries that count.
        unchanged: the same queries in virtual time, with nothing changed.
        changed: and with the change.
        queries: that were asked of the application.
        left_out: of which some answer is not recorded.
        order: ids of the queries that count.
    """

    recorded: Outcome
    unchanged: Outcome
    changed: Outcome
    queries: int
    left_out: int
    order: tuple[str, ...]


class WhatIf:
    """One application's part of a trace, ready to be played.

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
        deployment: Deployment,
        codec: Codec,
        at_hand: Sequence[AtHand] = (),
    ) -> None:
        self._codec = codec
        self._deployment = deployment
        self._timeline = Timeline(
            r for name in (topics.APPLICATIONS, topics.MODELS) if name in trace.topics() for r in trace.records(name)
        )
        self.application = self._application(application)
        self._models = {one.model.name: one.model for one in at_hand} | self._known_models()
        self._outputs = RecordedModels({one.model.name: one.predict for one in at_hand})
        self._played: list[Played] = []
        self._inputs: dict[str, Query] = {}
        self.recorded = Outcome()
        self._gather(trace)
        self._first_us = min((one.at_us for one in self._played), default=0)

    def compare(self, changes: Mapping[str, str]) -> Comparison:
        """Play the queries twice, and return what came of those that count.

        Raises:
            ChangeError: the change cannot be made.
        """
        other = changed(self.application, changes)
        unknown = set(other.models) - self._models.keys()
        if unknown:
            known = ", ".join(sorted(self._models))
            missing = ", ".join(sorted(unknown))
            raise ChangeError(f"the trace knows no model {missing}; it knows {known}. Give the others' --packages")
        before, left_out = self.play(self.application)
        after, left_out_too = self.play(other)
        left_out |= left_out_too
        answered = before.latencies_us.keys() & after.latencies_us.keys() & self.recorded.latencies_us.keys()
        order = tuple(name for name in self._inputs if name in answered and name not in left_out)
        ids = set(order)
        return Comparison(
            self.recorded.only(ids), before.only(ids), after.only(ids), len(self._inputs), len(left_out), order
        )

    def play(self, application: Application) -> tuple[Outcome, set[str]]:
        """Play all queries to an application; return what came of them, and which are not answerable."""
        driver = self._driver(application)
        left_out: set[str] = set()
        seen: dict[int, int] = {}
        for one in sorted(self._played, key=lambda each: each.at_us):
            wait_us = one.at_us - self._first_us + START_US - driver.now_us
            driver.run(max(0, wait_us) / 1e6)
            self._note_left_out(driver, seen, left_out)
            if isinstance(one.value, Feedback) and one.value.query_id in left_out:
                continue
            driver.produce(one.topic, one.partition, self._codec.encode(self._shifted(one.value)), one.key)
        driver.run(self._rest_s(application))
        self._note_left_out(driver, seen, left_out)
        return self._outcome(driver), left_out

    def _rest_s(self, application: Application) -> float:
        return application.window_s + application.slo_ms / 1e3 + 2.0

    def _shifted(self, value: Query | Feedback) -> Query | Feedback:
        """Return a record with its time in the driver's; 0 = its own."""
        return value._replace(sent_us=value.sent_us - self._first_us + START_US if value.sent_us else 0)

    def _driver(self, application: Application) -> Driver:
        codec, own, names = self._codec, self._deployment, application.models
        operators: dict[str, Callable[[], Operator]] = {
            "selection": lambda: Selection(codec, own.selection),
            "joiner": lambda: Joiner(codec, own.joiner),
            "learner": lambda: Learner(codec, own.joiner.memory_us),
            **{worker_role(name): self._worker(name) for name in names},
        }
        topology = build(names, own.joiner.partitions, {name: self._models[name].partitions for name in names})
        services = {name: self._outputs.service(name) for name in names}
        driver = Driver(topology, operators, models=services)
        for name in names:
            driver.produce(topics.MODELS, 0, codec.encode(self._models[name]), name.encode())
        driver.produce(topics.APPLICATIONS, 0, codec.encode(application), application.name.encode())
        driver.run(0)
        return driver

    def _worker(self, name: str) -> Callable[[], Operator]:
        settings = WorkerSettings(self._deployment.joiner.partitions)
        return lambda: ModelWorker(self._codec, self._models[name], "replay", settings)

    def _note_left_out(self, driver: Driver, seen: dict[int, int], left_out: set[str]) -> None:
        """Note the queries that a model was asked whose answer is not recorded."""
        for record in driver.follow(topics.MODEL_PREDICTIONS, seen):
            batch = self._codec.decode(ModelPredictions, record.value)
            left_out.update(
                query_id
                for query_id in batch.query_ids
                if query_id in self._inputs and not self._outputs.knows(batch.model, self._inputs[query_id].input)
            )

    def _outcome(self, driver: Driver) -> Outcome:
        found = Outcome()
        for record in driver.read(topics.PREDICTIONS):
            note_prediction(found, self._codec.decode(Prediction, record.value))
        for record in driver.read(topics.OBSERVATIONS):
            note_observations(found, self._codec.decode(Observations, record.value))
        return found

    def _gather(self, trace: Recording) -> None:
        held = set(trace.topics())
        wanted = (topics.QUERIES, topics.FEEDBACK, topics.PREDICTIONS, topics.OBSERVATIONS, topics.MODEL_PREDICTIONS)
        told: list[tuple[Record, Feedback]] = []
        for record in trace.merged([topic for topic in wanted if topic in held]):
            try:
                self._take(record, told)
            except DecodeError:
                continue  # a dead letter then, and now
        for record, feedback in told:
            if feedback.query_id in self._inputs:
                self._play(record, feedback)

    def _take(self, record: Record, told: list[tuple[Record, Feedback]]) -> None:
        decode, value = self._codec.decode, record.value
        if record.topic == topics.QUERIES:
            query = decode(Query, value)
            if query.application == self.application.name and query.query_id not in self._inputs:
                self._inputs[query.query_id] = query
                self._play(record, query)
        elif record.topic == topics.FEEDBACK:
            told.append((record, decode(Feedback, value)))
        elif record.topic == topics.PREDICTIONS:
            prediction = decode(Prediction, value)
            asked = self._inputs.get(prediction.query_id)
            if asked is not None and prediction.application == self.application.name:
                self._outputs.learn(prediction, asked.input)
                note_prediction(self.recorded, prediction)
        elif record.topic == topics.OBSERVATIONS:
            own = tuple(one for one in decode(Observations, value).items if one.application == self.application.name)
            note_observations(self.recorded, Observations(own))
        else:
            self._outputs.learn_time(decode(ModelPredictions, value))

    def _play(self, record: Record, value: Query | Feedback) -> None:
        self._played.append(Played(record.timestamp_us, record.topic, record.partition, record.key, value))

    def _application(self, name: str | None) -> Application:
        found = {
            record.key: self._codec.decode(Application, record.value)
            for record in self._timeline.records
            if record.topic == topics.APPLICATIONS and record.value is not None
        }
        known = {application.name: application for application in found.values()}
        if name is None and len(known) == 1:
            return next(iter(known.values()))
        if name is None or name not in known:
            raise ChangeError(f"name one of the applications in the trace with --app: {', '.join(sorted(known))}")
        return known[name]

    def _known_models(self) -> dict[str, Model]:
        return {
            model.name: replace(model, shares={})
            for record in self._timeline.records
            if record.topic == topics.MODELS
            and record.value is not None
            and topics.MODEL_VERSION.encode() not in (record.key or b"")
            for model in (self._codec.decode(Model, record.value),)
        }
