"""Combine: model outputs by query until all are there or the deadline comes, then one answer.

A late answer is worse than an inaccurate one (Clipper, NSDI'17 §5.2): at `deadline - margin` the answer is made from
what has arrived; with nothing usable it is the application's default output, marked so with a reason.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policies.combine import agrees, combine
from schemas import topics
from schemas.errors import SchemaError
from schemas.records import ModelOutput, Outcome, Prediction, Status, Tensor
from streams.operators.contract import Emit
from streams.operators.figures import Durations
from streams.operators.late import LateOutputs
from streams.operators.standins import RUNNING_MEAN, StandIns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policies.contract import Ballots
    from schemas.codec import Codec
    from schemas.records import Application, Decision, Input, ModelPredictions, Value
    from streams.operators.contract import Record
    from streams.operators.counters import Counters
    from streams.operators.latencies import Latencies

# Why no model's output could be used, by precedence: what the caller can mend comes first.
_REASONS = (
    (Outcome.INVALID, "invalid_input"),
    (Outcome.UNKNOWN_VERSION, "unknown_version"),
    (Outcome.FAILED, "model_failed"),
    (Outcome.EXPIRED, "expired_in_queue"),
    (Outcome.MISSING, "deadline"),
)
UNKNOWN = "(unknown)"  # what applications that are not deployed are counted under
_BUCKET_US = 1_000  # deadlines are kept by the millisecond: a broker's round trip is the finer limit


@dataclass(slots=True)
class Pending:
    """A query that waits for its models."""

    query_id: str
    application: Application | None
    application_name: str
    context: str | None
    record: Record
    input: Input | None  # until the models have been asked
    sent_us: int
    received_us: int
    deadline_us: int
    priority: int = 0
    features: tuple[float, ...] = ()
    version: str | None = None  # that the query names
    decision: Decision | None = None
    models: tuple[str, ...] = ()  # that were asked
    weights: tuple[float, ...] | Ballots = ()
    outputs: dict[str, ModelOutput] = field(default_factory=dict)
    answered: bool = False
    is_reduced: bool = False  # some of the decision's models were overloaded, and not asked


class Combiner:
    """Holds what is pending and answers it; one instance for all partitions of a selection process."""

    def __init__(self, codec: Codec, margin_us: int, counters: Counters) -> None:
        self._codec = codec
        self._margin_us = margin_us
        self._counters = counters
        self._pending: dict[int, dict[str, Pending]] = {}
        self._due: dict[int, list[Pending]] = {}
        self._buckets: list[int] = []
        self._stand_ins = StandIns()
        self._late = LateOutputs()
        self._durations = Durations("answer", "application")
        self.latencies: Latencies | None = None  # once somebody wants to know them

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))

    def holds(self, partition: int, query_id: str) -> bool:
        """Tell whether this query is waiting for its answer."""
        return query_id in self._pending.get(partition, ())

    def open(self, query: Pending) -> None:
        """Wait for the outputs of the query's chosen models, at most until its deadline less the margin."""
        self._pending.setdefault(query.record.partition, {})[query.query_id] = query
        bucket = (query.deadline_us - self._margin_us) // _BUCKET_US
        if bucket not in self._due:
            self._due[bucket] = []
            heapq.heappush(self._buckets, bucket)
        self._due[bucket].append(query)

    def on_outputs(
        self, partition: int, batch: ModelPredictions, outputs: Iterable[ModelOutput], now_us: int
    ) -> list[Emit]:
        """Take one worker batch, with its `outputs_of`; return the answers that it completes, and what is late."""
        waiting = self._pending.get(partition)
        if not waiting:
            self._counters["late_outputs_total", "model", batch.model] += len(batch.query_ids)
            return self._late.take(partition, batch, self._codec)
        if self.latencies is not None and batch.query_ids and (first := waiting.get(batch.query_ids[0])) is not None:
            self.latencies.add(batch.model, now_us - first.received_us, now_us)
        answers: list[Emit] = []
        late = 0
        for query_id, output in zip(batch.query_ids, outputs, strict=True):
            query = waiting.get(query_id)
            if query is None or batch.model not in query.models:
                late += 1  # answered, or asked of another model when it was read before a restart
                continue
            query.outputs[batch.model] = output
            if len(query.outputs) == len(query.models):
                answers.append(self.answer(query, now_us))
        if late:
            self._counters["late_outputs_total", "model", batch.model] += late
            answers += self._late.take(partition, batch, self._codec)
        return answers

    def next_deadline(self) -> int | None:
        """Return when the next waiting query has to be answered (us).

        Most are answered long before: without forgetting those here, each would still ring an alarm.
        """
        buckets = self._buckets
        while buckets:
            due = self._due[buckets[0]]
            while due and due[-1].answered:
                due.pop()
            if due:
                return buckets[0] * _BUCKET_US
            del self._due[heapq.heappop(buckets)]
        return None

    def on_timer(self, now_us: int) -> list[Emit]:
        """Answer every query whose time has come with what has arrived."""
        answers: list[Emit] = []
        while self._buckets and self._buckets[0] * _BUCKET_US <= now_us:
            due = self._due.pop(heapq.heappop(self._buckets))
            if self.latencies is not None:
                _count_misses(self.latencies, due, now_us)
            answers += [self.answer(query, now_us) for query in due if not query.answered]
        return answers

    def statistics(self) -> dict[str, float]:
        """Return how many queries wait, and how long the latest took from the client to here, by application."""
        return {"pending": float(len(self)), **self._durations.rendered()}

    def drop(self, partitions: Sequence[int]) -> None:
        """Forget the queries of these partitions: their new owner answers them."""
        self._late.drop(partitions)
        for partition in partitions:
            for query in self._pending.pop(partition, {}).values():
                query.answered = True

    def answer(self, query: Pending, now_us: int, reason: str | None = None) -> Emit:
        """Make the prediction of a query from what it has, or its default output for the given reason."""
        query.answered = True
        self._pending.get(query.record.partition, {}).pop(query.query_id, None)
        if reason is None and len(query.outputs) < len(query.models) > 1:
            missing = [model for model in query.models if model not in query.outputs]
            self._late.expect(query.record.partition, query.query_id, missing)
        prediction = _prediction(query, now_us, reason, self._stand_ins)
        try:
            value = self._codec.encode(prediction)
        except SchemaError:  # the scores of many classes of many models
            query.outputs.clear()
            prediction = _prediction(query, now_us, "oversized_outputs", self._stand_ins)
            value = self._codec.encode(prediction)
        name = query.application.name if query.application else UNKNOWN  # labels must be bounded, names need not be
        status, reason = prediction.status, prediction.reason
        word = "complete" if status is Status.COMPLETE else status.value  # `value` is computed: 0.2 us
        self._counters["answers_total", "application", name, "status", word, "reason", reason or ""] += 1
        self._durations.latest[name].append(now_us - query.sent_us)
        if now_us > query.deadline_us:
            self._counters["late_answers_total", "application", name, "status", word] += 1
        record = query.record
        return Emit(topics.PREDICTIONS, record.partition, record.key, value, (record.position,), record.headers)


def outputs_of(batch: ModelPredictions) -> Iterator[ModelOutput]:
    """Split a worker batch into one output a row, without numpy scalars in them."""
    answers = batch.answers
    labels: Sequence[Value] = answers.numpy().tolist() if isinstance(answers, Tensor) else answers
    scores = batch.scores.numpy() if batch.scores is not None else None
    for row, (outcome, label) in enumerate(zip(batch.outcomes, labels, strict=True)):
        if outcome is not Outcome.OK:
            yield ModelOutput(batch.model, batch.version, outcome, None)
        else:
            yield ModelOutput(
                batch.model, batch.version, outcome, label, Tensor.of(scores[row]) if scores is not None else None
            )


def _count_misses(latencies: Latencies, due: Iterable[Pending], now_us: int) -> None:
    for query in due:
        for model in () if query.answered else query.models:
            if model not in query.outputs:
                latencies.miss(model, now_us - query.received_us, now_us)


def _prediction(query: Pending, now_us: int, reason: str | None, stand_ins: StandIns) -> Prediction:
    """Make the answer; that of one model which was asked alone and answered, as most are, takes the short way."""
    if reason is None and len(query.models) == 1 and not query.is_reduced:
        only = query.outputs.get(query.models[0])
        if only is not None and only.outcome is Outcome.OK:
            return _answered(query, now_us, Status.COMPLETE, None, only.answer, 1.0, (only,))
    outputs = _asked(query)
    usable = {arm: output for arm, output in outputs.items() if output.outcome is Outcome.OK}
    application = query.application
    answer: Value | None
    if usable and reason is None and application is not None:
        if application.missing == RUNNING_MEAN:
            stand_ins.learn(application.name, usable)
            outputs = stand_ins.fill(application.name, outputs)
        answer, confidence = _combined(query.weights, outputs, usable, application.combine)
        status = Status.COMPLETE if len(usable) == len(outputs) else Status.PARTIAL
        reason = None if status is Status.COMPLETE else _why(outputs, query)
        if confidence < application.confidence_floor:
            answer, status, reason = application.default_output, Status.DEFAULT, "low_confidence"
    else:
        answer = application.default_output if application else None
        confidence, status, reason = 0.0, Status.DEFAULT, reason or _why(outputs, query)
    return _answered(query, now_us, status, reason, answer, confidence, tuple(outputs.values()))


def _answered(
    query: Pending,
    now_us: int,
    status: Status,
    reason: str | None,
    answer: Value | None,
    confidence: float,
    outputs: tuple[ModelOutput, ...],
) -> Prediction:
    return Prediction(
        query.query_id,
        query.application_name,
        query.context,
        query.decision,
        status,
        reason,
        answer,
        confidence,
        outputs,
        query.sent_us,
        query.received_us,
        query.deadline_us,
        now_us,
    )


def _asked(query: Pending) -> dict[int, ModelOutput]:
    """Return the output of every asked arm, MISSING where nothing arrived."""
    decision = query.decision
    if decision is None:
        return {}
    found: dict[int, ModelOutput] = {}
    for arm in decision.chosen:
        name = decision.arms[arm]
        found[arm] = query.outputs.get(name) or ModelOutput(name, "", Outcome.MISSING, None)
    return found


def _combined(
    weights: Sequence[float] | Ballots, asked: Mapping[int, ModelOutput], usable: Mapping[int, ModelOutput], how: str
) -> tuple[Value, float]:
    """Combine by weight; a model that did not answer counts against the confidence, whatever stands in for it."""
    votes = weights({arm: output.answer for arm, output in asked.items()}) if callable(weights) else weights
    answers = {arm: output.answer for arm, output in asked.items() if output.answer is not None}
    answer, agreeing = combine({arm: votes[arm] for arm in answers}, answers, how)
    total = sum(votes[arm] for arm in asked)
    if len(answers) == len(usable):
        return answer, agreeing * sum(votes[arm] for arm in answers) / total
    return answer, sum(votes[arm] for arm in usable if agrees(answers[arm], answer)) / total


def _why(outputs: Mapping[int, ModelOutput], query: Pending) -> str:
    outcomes = {output.outcome for output in outputs.values()}
    reason = next((reason for outcome, reason in _REASONS if outcome in outcomes), "deadline")
    return "overloaded" if reason == "deadline" and query.is_reduced else reason
