"""A trace as it was: read once in order of time; decisions, observations and states must come out bit-equal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_texts
from schemas.records import JoinStatus, ModelPredictions, Observations, Prediction, Query
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.promotion.copies import Copies
from streams.replay.configurations import Timeline
from streams.replay.coverage import Coverage, SecondLook
from streams.replay.decisions import Decisions
from streams.replay.held_records import ENTRY_BYTES, HeldRecords
from streams.replay.joins import Joins, RecordedObservation, joined_by
from streams.replay.missing_answers import MissingAnswers
from streams.replay.missing_observations import MissingObservations
from streams.replay.report import PREDICTIONS, QUERIES, ReplayReport
from streams.replay.rows import Rows
from streams.replay.run_again import RunAgain
from streams.replay.states import StateHistory
from streams.replay.steps import WISHED, StepChecks
from streams.replay.terms import terms_of
from streams.runtime.process.gc_schedule import gc_less_often

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Observation, PolicyState
    from streams.operators.contract import Record, StateKey
    from streams.replay.recording import Recording
    from streams.replay.run_again import Running

_CONFIGURATION: Final = (topics.APPLICATIONS, topics.MODELS)
# At the same time the one that is named first leads.
READ: Final = (
    topics.QUERIES,
    topics.FEEDBACK,
    topics.SHADOWS,
    topics.MODEL_PREDICTIONS,
    topics.PREDICTIONS,
    topics.OBSERVATIONS,
)
# Queries wait for their predictions, predictions and feedback for their observations: as long as a window.
_QUERY_BYTES, _JOIN_BYTES = 256 << 20, 256 << 20
# What could not be looked up yet, as clocks disagree, is looked up again after so many records.
_AGAIN: Final = 20_000
# How far clocks may be apart: as far as a query may be ahead.
CLOCKS_US: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class RecordedDeployment:
    """What a replay must know of the deployment beside its records.

    Attributes:
        selection: settings of the role.
        joiner: settings of the role.
        initial: policy states from before the trace.
        begun: partitions of `observations` that the trace has from the beginning; None = as their first records say.
        clocks_us: how far the clocks of those who wrote may have been apart.
        running: models that are at hand, by name and version: they answer again.
        copies_bytes: that the control role's ids of observations may take.
        again_bytes: that may wait for what clocks that disagree bring later; beyond it the oldest are let go of.
    """

    selection: SelectionSettings = field(default_factory=SelectionSettings)
    joiner: JoinerSettings = field(default_factory=JoinerSettings)
    initial: Mapping[StateKey, PolicyState] = field(default_factory=dict)
    begun: frozenset[int] | None = None
    clocks_us: int = CLOCKS_US
    running: Running = field(default_factory=dict)
    copies_bytes: int = 32 << 20
    again_bytes: int = 64 << 20


class AsItWas:
    """One replay.

    Args:
        trace: that is replayed.
        deployment: that it was recorded from.
        codec: of its records.
    """

    def __init__(self, trace: Recording, deployment: RecordedDeployment, codec: Codec) -> None:
        self._codec = codec
        self._trace = trace
        held = set(trace.topics())
        changes = (r for topic in _CONFIGURATION if topic in held for r in trace.records(topic))
        timeline = Timeline(changes, deployment.clocks_us)
        self.report = ReplayReport()
        partitions = deployment.joiner.partitions
        begun = deployment.begun
        if begun is None:
            begun = _begun(trace, partitions) if topics.OBSERVATIONS in held else frozenset(range(partitions))
        self._history = StateHistory(partitions, deployment.joiner.memory_us, begun, deployment.initial)
        self._decisions = Decisions(codec, deployment.selection, timeline, self._history, self.report)
        self._joins = Joins(codec, deployment.joiner, timeline, self.report, self._side_outputs)
        wished = [record for topic in WISHED if topic in held for record in trace.records(topic)]
        copies = Copies(deployment.joiner.memory_us, deployment.copies_bytes)
        self._steps = StepChecks(codec, wished, copies, begun, self.report)
        terms = terms_of(timeline.records, codec, deployment.joiner.window_us)
        self._coverage = Coverage()
        self._answers = MissingAnswers(codec, deployment.selection.remembered, terms, self._coverage, self.report)
        self._lessons = MissingObservations(
            codec, deployment.joiner, terms, deployment.clocks_us, self._coverage, self.report
        )
        models = [record for record in timeline.records if record.topic == topics.MODELS]
        is_cached = deployment.selection.cache_bytes > 0
        self._rows = Rows(codec, models, self._coverage, self.report, is_cached=is_cached)
        self._is_run_again = bool(deployment.running)
        self._run_again = RunAgain(codec, deployment.running, self.report)
        self._queries: HeldRecords[Record] = HeldRecords(_QUERY_BYTES)
        self._predictions: HeldRecords[Record] = HeldRecords(_JOIN_BYTES // 2)
        self._feedback: HeldRecords[Record] = HeldRecords(_JOIN_BYTES // 4)
        self._beside: HeldRecords[Record] = HeldRecords(_JOIN_BYTES // 4)
        self._clocks_us = deployment.clocks_us
        self._again: list[Record] = []
        self._again_bytes, self._again_bound = 0, deployment.again_bytes
        self._topics = tuple(topic for topic in READ if topic in held)

    def run(self, tell: Callable[[ReplayReport], None] = lambda _: None) -> ReplayReport:
        """Replay all of it.

        Args:
            tell: is called now and then with what has been found so far.
        """
        take: Mapping[str, Callable[[Record], bool]] = {
            topics.QUERIES: self._on_query,
            topics.FEEDBACK: self._on_feedback,
            topics.SHADOWS: self._on_shadows,
            topics.MODEL_PREDICTIONS: self._on_rows,
            topics.PREDICTIONS: self._on_prediction,
            topics.OBSERVATIONS: self._on_observations,
        }
        report = self.report
        for count, record in enumerate(self._trace.merged(self._topics), 1):
            report.records[record.topic] += 1
            report.from_us = report.from_us or record.timestamp_us
            report.until_us = max(report.until_us, record.timestamp_us)
            self._coverage.note(record)
            try:
                if not take[record.topic](record):
                    self._wait(record)
            except DecodeError:
                report.undecodable[record.topic] += 1
            if count % _AGAIN == 0:
                self._retry()
                tell(report)
        self._end()
        return report

    def _retry(self) -> None:
        self._rows.again(self.report.until_us - self._clocks_us)
        self._joins.again(self.report.until_us - self._clocks_us)
        again, self._again = self._again, []
        self._again = [record for record in again if not self._looked_up(record)]
        self._again_bytes = sum(map(_bytes_of, self._again))

    def _wait(self, record: Record) -> None:
        """Look a record up later; beyond the bound the older half is looked up once more, and given up."""
        self._again.append(record)
        self._again_bytes += _bytes_of(record)
        if self._again_bytes <= self._again_bound:
            return
        self._retry()
        half = 0 if self._again_bytes <= self._again_bound // 2 else -(-len(self._again) // 2)
        given_up, self._again = self._again[:half], self._again[half:]
        self._again_bytes = sum(map(_bytes_of, self._again))
        for each in given_up:
            self._give_up(each, is_early=True)

    def _looked_up(self, record: Record) -> bool:
        if record.topic == topics.PREDICTIONS:
            prediction = self._codec.decode(Prediction, record.value)
            return self._check(record, prediction, self._query(prediction))
        return self._join(record, self._codec.decode(Observations, record.value).items)

    def _end(self) -> None:
        self._retry()
        self._rows.again()
        self._decisions.flush()
        self._joins.flush()
        self._joins.again()
        self._steps.end()
        self._run_again.flush()
        for record in self._again:
            self._give_up(record)
        look = SecondLook(self._trace, self._codec)
        self._answers.end(look)
        self._lessons.end(look)
        self.report.states = self._history.states

    def _give_up(self, record: Record, *, is_early: bool = False) -> None:
        """Count what could not be looked up to the end, or `is_early`, as long as there was room."""
        may_miss = not is_early
        if record.topic == topics.PREDICTIONS:
            prediction = self._codec.decode(Prediction, record.value)
            if self._query(prediction) is not None:
                self.report.unchecked["state_missing"] += 1
            elif may_miss and self._is_whole(topics.QUERIES, self._queries):
                self.report.miss(QUERIES, prediction.query_id, "the query of its answer")
            else:
                self.report.unchecked["query_missing"] += 1
            return
        for seen in self._codec.decode(Observations, record.value).items:
            if self._seen(record.partition, seen, record.timestamp_us) is None:
                if self._predicted(seen) is not None:
                    self.report.unchecked["feedback_missing"] += 1
                elif may_miss and self._is_whole(topics.PREDICTIONS, self._predictions):
                    self.report.miss(PREDICTIONS, seen.query_id, "the answer that was observed")
                else:
                    self.report.unchecked["prediction_missing"] += 1

    def _is_whole(self, topic: str, held: HeldRecords[Record]) -> bool:
        """Tell whether the trace has all of a topic, and all of it was held."""
        coverage = self._coverage
        return topic in self._topics and coverage.has_begun(topic) and topic not in coverage.torn and not held.let_go

    def _on_query(self, record: Record) -> bool:
        (query_id,) = peek_texts(record.value, 1)
        self._queries.add(query_id, record, len(record.value or b""))
        self._answers.asked(record, self._predictions.get(query_id))
        return True

    def _on_feedback(self, record: Record) -> bool:
        (query_id,) = peek_texts(record.value, 1)
        if not query_id:  # by key: what it was about was written again, with the id
            return True
        self._lessons.told(record, query_id, is_first=not self._feedback.get(query_id))
        self._feedback.add(query_id, record, len(record.value or b""))
        return True

    def _on_rows(self, record: Record) -> bool:
        self._rows.take(record)
        return True

    def _on_shadows(self, record: Record) -> bool:
        ids = self._codec.decode(ModelPredictions, record.value).query_ids
        for query_id in ids:  # one record for all of them
            self._beside.add(query_id, record, len(record.value or b"") // len(ids))
        return True

    def _on_prediction(self, record: Record) -> bool:
        prediction = self._codec.decode(Prediction, record.value)
        query_id = prediction.query_id
        self._lessons.predicted(record, prediction, is_first=not self._predictions.get(query_id))
        self._predictions.add(query_id, record, len(record.value or b""))
        query = self._query(prediction)
        self._answers.answered(record, prediction, query)
        self._rows.check(record.partition, prediction, query)
        if self._is_run_again:
            self._run_again.take(prediction, query)
        return self._check(record, prediction, query)

    def _check(self, record: Record, prediction: Prediction, query: Record | None) -> bool:
        """Have a prediction checked; False if its query or its state is still to come."""
        if query is None:
            return False
        names_version = self._names_version(prediction, query)
        return self._decisions.take(record, prediction, query, names_version)

    def _names_version(self, prediction: Prediction, query: Record) -> bool:
        return prediction.decision is None and self._codec.decode(Query, query.value).version is not None

    def _query(self, prediction: Prediction) -> Record | None:
        """Return the query of a prediction; of several with its id that of its application, token and time."""
        found = [
            record
            for record in self._queries.get(prediction.query_id)
            if peek_texts(record.value, 2)[1] == prediction.application
        ]
        if len(found) > 1:
            found.sort(key=lambda record: self._is_of(record, prediction), reverse=True)
        return found[0] if found else None

    def _is_of(self, record: Record, prediction: Prediction) -> bool:
        query = self._codec.decode(Query, record.value)
        sent_us = query.sent_us or record.timestamp_us
        return (query.reply_token, sent_us) == (prediction.reply_token, prediction.sent_us)

    def _on_observations(self, record: Record) -> bool:
        items = self._codec.decode(Observations, record.value).items
        for seen in items:
            self._history.fold(record.partition, record.timestamp_us, seen)
            self._lessons.observed(seen.query_id)
        self._steps.take(record, items)
        return self._join(record, items)

    def _join(self, record: Record, items: Sequence[Observation]) -> bool:
        """Have the observations of a record checked; False if what they were made from is still to come."""
        found = [self._seen(record.partition, seen, record.timestamp_us) for seen in items]
        if not all(found):
            return False
        for one in found:
            assert one is not None
            self._joins.take(one)
            self._lessons.made(one, record.timestamp_us)
        return True

    def _seen(self, partition: int, seen: Observation, written_us: int) -> RecordedObservation | None:
        prediction = self._predicted(seen)
        if prediction is None:
            return None
        feedback = joined_by(seen, self._feedback.get(seen.query_id))
        if feedback is None and seen.status is JoinStatus.JOINED:
            return None
        beside = tuple(record for record in self._beside.get(seen.query_id) if record.timestamp_us <= written_us)
        return RecordedObservation(seen, partition, prediction, feedback, beside, written_us)

    def _side_outputs(self, seen: RecordedObservation) -> tuple[tuple[Record, ...], bool]:
        """Return the outputs beside a query's answer, by any clock, and whether the trace has all of its time."""
        coverage, topic = self._coverage, topics.SHADOWS
        is_there = topic in self._topics and self.report.records[topic] and topic not in coverage.torn
        is_whole = is_there and not self._beside.let_go and seen.prediction.timestamp_us > coverage.from_us(topic)
        return self._beside.get(seen.observation.query_id), bool(is_whole)

    def _predicted(self, seen: Observation) -> Record | None:
        """Return the prediction that an observation was made from: one query may have been answered twice."""
        found = self._predictions.get(seen.query_id)
        for record in found:
            prediction = self._codec.decode(Prediction, record.value) if len(found) > 1 else None
            if prediction is None or (prediction.answered_us, prediction.decision) == (
                seen.predicted_us,
                seen.decision,
            ):
                return record
        return None


def _bytes_of(record: Record) -> int:
    return len(record.value or b"") + ENTRY_BYTES


def _begun(trace: Recording, partitions: int) -> frozenset[int]:
    """Return the partitions of the log that the trace has from the first record on, or that were empty."""
    first: dict[int, int] = {}
    for number in range(partitions):
        record = next(iter(trace.records(topics.OBSERVATIONS, number)), None)
        first[number] = 0 if record is None else record.offset
    return frozenset(number for number, offset in first.items() if offset == 0)


def replay(
    trace: Recording,
    deployment: RecordedDeployment,
    codec: Codec,
    tell: Callable[[ReplayReport], None] = lambda _: None,
) -> ReplayReport:
    """Replay a trace as it was.

    What is held is many and has no cycles: looking for them as often as usual took a fifth of the time.
    """
    with gc_less_often():
        return AsItWas(trace, deployment, codec).run(tell)
