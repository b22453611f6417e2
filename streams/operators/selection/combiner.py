"""Combine: the outputs of a query's models until all are there or the deadline comes, then one answer.

A late answer is worse than an inaccurate one (Clipper, NSDI'17 §5.2). At `deadline - margin` the answer is made from
what has arrived. If nothing is usable, the answer is the application's default output, with a reason.
"""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import filterfalse
from operator import attrgetter
from typing import TYPE_CHECKING

from schemas import topics
from schemas.errors import SchemaError
from schemas.records import Outcome, Status, outputs_of
from streams.operators.configuration import RUNNING_MEAN
from streams.operators.contract import Emit
from streams.operators.late_outputs import LateOutputs
from streams.operators.promises import promised
from streams.operators.selection.answer import Substitutes, missing_of, not_ranked, predicted, ranked, too_many
from streams.operators.selection.latencies import Latencies
from streams.operators.selection.pending import Origin
from streams.operators.statistics import Durations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import LabelSet, Model, ModelOutput, ModelPredictions, NumberInterval, Prediction
    from streams.operators.selection.pending import Pending
    from streams.operators.selection.state_view import Arms
    from streams.operators.statistics import Counters

UNKNOWN = "(unknown)"  # the label of applications that are not deployed
_FAILED = frozenset((Outcome.INVALID, Outcome.FAILED))  # INVALID: by the client's input; FAILED: by the model
_ANSWERED = attrgetter("answered")
_MESSAGE = 1_000  # characters: an answer has room for them
_NOWHERE = Origin((), None, ())
_BUCKET_US = 1_000  # deadlines are kept by the millisecond: a broker's round trip is the finer limit


class Combiner:
    """Holds pending queries and answers them; one instance for all partitions of a selection process.

    Attributes:
        fetch: has queries that wait elsewhere wait here from now on, by partition and row id, as far as they do; None =
            none does.
    """

    def __init__(
        self, codec: Codec, counters: Counters, classes: Mapping[str, tuple[str, ...]], models: Mapping[str, Model]
    ) -> None:
        self._codec = codec
        self._models = models
        self._classes = classes
        self._counters = counters
        self._pending: dict[int, dict[str, Pending]] = {}
        self._due: dict[int, list[Pending]] = {}
        self._buckets: list[int] = []
        self._substitutes = Substitutes()
        self._late = LateOutputs()
        self._durations = Durations("answer", "application")
        self.latencies: Latencies | None = None  # once a policy uses them
        self.ready: list[Pending] = []  # queries with which their askers go on
        self.fetch: Callable[[Iterable[tuple[int, str]]], None] | None = None
        self.answers: Counter[str] = Counter()  # not by default, by application: counted until somebody takes them

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))

    @property
    def waiting(self) -> Mapping[int, Mapping[str, Pending]]:
        """Queries that wait, by partition and row id."""
        return self._pending

    def watch_latencies(self) -> Latencies:
        """Return how long models take to answer, which is watched from now on."""
        if self.latencies is None:
            self.latencies = Latencies()
        return self.latencies

    def open(self, queries: Sequence[Pending]) -> None:
        """Wait for the outputs of the queries' chosen models, at most for as long as each says."""
        for query in queries:
            self.name(query)
            self._hold(query)

    def take_over(self, queries: Sequence[Pending]) -> None:
        """Wait for queries that are asked already, under the row ids that they have; see `open`."""
        for query in queries:
            self._pending.setdefault(query.partition, {})[query.row_id] = query
            self._hold(query)

    def _hold(self, query: Pending) -> None:
        bucket = query.until_us // _BUCKET_US
        if bucket not in self._due:
            self._due[bucket] = []
            heapq.heappush(self._buckets, bucket)
        self._due[bucket].append(query)

    def name(self, query: Pending) -> None:
        """Choose the id under which the models of a query are asked: one that no other query in hand has."""
        waiting = self._pending.setdefault(query.partition, {})
        if waiting.get(query.row_id) is query:  # it has been named
            return
        self._fetch(query)
        while waiting.setdefault(query.row_id, query) is not query:  # usually another application's
            query.rename()
            self._fetch(query)

    def _fetch(self, query: Pending) -> None:
        """Have whoever waits elsewhere under a query's row id wait here."""
        if self.fetch is not None:
            self.fetch(((query.partition, query.row_id),))

    def find(self, partition: int, row_id: str) -> Pending | None:
        """Return the query that waits under this id; None if none does."""
        return self._pending.get(partition, {}).get(row_id)

    def doubled(self, partition: int, batch: ModelPredictions) -> frozenset[str]:
        """Return the rows of a batch, just taken, that are no answers while the same question is still on its way."""
        waiting, model = self._pending.get(partition, {}), batch.model
        outcomes = zip(batch.query_ids, batch.outcomes, strict=True)
        without = [row_id for row_id, outcome in outcomes if outcome is not Outcome.OK]
        asked = [query for row_id in without if (query := waiting.get(row_id)) is not None]
        return frozenset([query.row_id for query in asked if _waits_for_copy(query, model)])

    def on_outputs(
        self, partition: int, batch: ModelPredictions, now_us: int, outputs: Sequence[ModelOutput] | None = None
    ) -> list[Emit]:
        """Take one worker batch; return the answers that it completes, and what is late.

        Args:
            partition: of the queries.
            batch: that a worker answered.
            now_us: the time.
            outputs: the batch's `outputs_of`, if they have been made.
        """
        if self.fetch is not None:
            self.fetch([(partition, row_id) for row_id in batch.query_ids])
        waiting, model = self._pending.get(partition), batch.model
        if not waiting:  # outputs that no query awaits are not made
            self._counters["late_outputs_total", "model", model] += len(batch.query_ids)
            return self._come_late(partition, batch)
        self._note(waiting, batch, now_us)
        answers: list[Emit] = []
        late = 0
        again = {name for name, step in zip(batch.query_ids, batch.steps, strict=False) if step}
        for query_id, output, waited_us in zip(
            batch.query_ids, outputs or outputs_of(batch), batch.waited_us, strict=True
        ):
            query = waiting.get(query_id)
            if query is None or model not in query.models:
                late += 1  # answered, or asked of another model when it was read before a restart
                continue
            if output.outcome in _FAILED:
                self._counters[_failed(query.application_name, model, output.outcome)] += 1
            if query.application is not None and query.application.timings:
                kept = output.timed(waited_us, batch.predict_us, batch.batch_rows)
            else:
                kept = output
            self._keep(query, kept, is_again=query_id in again)
            if query.follow_up is None and len(query.outputs) == len(query.models):
                answers.append(self.answer(query, now_us))
        if late:
            self._counters["late_outputs_total", "model", model] += late
            answers += self._come_late(partition, batch)
        return answers

    def aim(self, objectives_us: Mapping[str, int]) -> None:
        """Take the objectives of applications."""
        self._durations.aim(objectives_us)

    def count(self, application: str, durations_us: Sequence[int], now_us: int, *, by_default: bool = False) -> None:
        """Count answers of an application that were given together."""
        if durations_us:
            self._durations.add(application, durations_us, now_us)
            self.answers[application] += 0 if by_default else len(durations_us)

    def _keep(self, query: Pending, output: ModelOutput, *, is_again: bool) -> None:
        """Keep a model's output; who asks more goes on with a query when it has what it asked."""
        if query.take(output, is_again=is_again) and (follow_up := query.follow_up) is not None:
            if is_again and output.model in follow_up.copies:
                labels = ("application", query.application_name, "model", output.model, "outcome", "won")
                self._counters["hedges_total", *labels] += 1
            if query.is_due:
                self.ready.append(query)

    def _note(self, waiting: Mapping[str, Pending], batch: ModelPredictions, now_us: int) -> None:
        """Note how long a batch took since its first query was read, and the model's messages."""
        if self.latencies is not None and batch.query_ids and (first := waiting.get(batch.query_ids[0])) is not None:
            self.latencies.add(batch.model, now_us - first.asked_us(batch.model), now_us)
        if batch.messages:
            _take_messages(waiting, batch)

    def next_deadline(self) -> int | None:
        """Return when the next waiting query has to be answered (us).

        Most are answered long before. Their deadlines are dropped here, or each would still set a timer.
        """
        buckets = self._buckets
        while buckets:
            due = self._due[buckets[0]]
            if due[-1].answered:
                due[:] = filterfalse(_ANSWERED, due)
            if due:
                return buckets[0] * _BUCKET_US
            del self._due[heapq.heappop(buckets)]
        return None

    def on_timer(self, now_us: int) -> list[Emit]:
        """Answer every due query with the outputs that have arrived."""
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
                query.answered, query.follow_up = True, None
                query.leave()

    def answer(self, query: Pending, now_us: int, reason: str | None = None) -> Emit:
        """Make the prediction of a query from its outputs, or its default output for the given reason."""
        missing = [] if reason is not None else missing_of(query)
        if missing:
            known = query.application
            mean_of = known.name if known is not None and known.missing == RUNNING_MEAN else None
            self._late.expect(query.partition, query.query_id, missing, mean_of, query.row_id)
        prediction = self._predicted(query, now_us, reason)
        try:
            value = self._codec.encode(prediction)
        except SchemaError:  # the scores of many classes of many models
            query.outputs.clear()
            if query.follow_up is not None:
                query.follow_up.clear()
            prediction = self._predicted(query, now_us, "oversized_outputs")
            value = self._codec.encode(prediction)
        name = query.application.name if query.application else UNKNOWN  # labels must be bounded, names need not be
        status, reason = prediction.status, prediction.reason
        self._counters["answers_total", "application", name, "status", status.value, "reason", reason or ""] += 1
        self._durations.add(name, (now_us - query.sent_us,), now_us)
        self.answers[name] += status is not Status.DEFAULT
        if prediction.label_set is not None:
            self._count(name, prediction.label_set)
        elif prediction.interval is not None:
            self._count_interval(name, prediction.interval)
        if query.follow_up is not None:  # each may refer to the other
            query.follow_up.clear()
            query.follow_up = None
        return self._emit(query, value, status, now_us)

    def _predicted(self, query: Pending, now_us: int, reason: str | None) -> Prediction:
        """Make the prediction of a query, with its set of labels or its interval if it has one."""
        if (follow_up := query.follow_up) is not None and follow_up.asker is not None:
            made = follow_up.asker.answer(query, now_us, reason)
            if made is not None:
                return made
        prediction = predicted(query, now_us, reason, self._substitutes, self._classes, self._models)
        if query.arms is None or query.arms.aim is None:
            return prediction
        return promised(prediction, query.weights, query.arms.aim, self._classes)

    def _count(self, application: str, made: LabelSet) -> None:
        """Count a set of labels, and the labels in it."""
        kind = "all" if made.is_all else "some"
        self._counters["label_sets_total", "application", application, "kind", kind] += 1
        self._counters["label_set_sizes_total", "application", application] += 0 if made.is_all else len(made.labels)

    def _count_interval(self, application: str, made: NumberInterval) -> None:
        """Count an interval, and how wide it is."""
        is_all = made.low is None or made.high is None
        self._counters["intervals_total", "application", application, "kind", "all" if is_all else "some"] += 1
        if made.low is not None and made.high is not None:
            width = made.high - made.low
            self._counters["interval_widths_total", "application", application] += width  # type: ignore[assignment]  # a fraction

    def let_go(self, partition: int, row_id: str) -> None:
        """Wait no more for the output of a row of a graph."""
        asked = self._pending.get(partition, {}).pop(row_id, None)
        if asked is not None:
            asked.answered, asked.input = True, None

    def rank(self, query: Pending, arms: Arms, now_us: int) -> Emit:
        """Answer a query with the best of its candidates; by default where its policy cannot rank them."""
        prediction = ranked(query, arms, now_us)
        if prediction is None:
            query.message = query.message or not_ranked(query, arms)
            return self.answer(query, now_us, "not_ranked")
        try:
            value = self._codec.encode(prediction)
        except SchemaError:  # the ids and features of many candidates
            query.decision, query.message = None, too_many(query)
            return self.answer(query, now_us, "not_ranked")
        name = query.application_name
        self._counters["answers_total", "application", name, "status", "complete", "reason", ""] += 1
        self._durations.add(name, (now_us - query.sent_us,), now_us)
        self.answers[name] += 1
        return self._emit(query, value, Status.COMPLETE, now_us)

    def _come_late(self, partition: int, batch: ModelPredictions) -> list[Emit]:
        """Send outputs that come after their answers to the joiner; they count for substitutes, too."""
        late = self._late.take(partition, batch)
        if late is None:
            return []
        if any(late.applications):
            for application, output in zip(late.applications, outputs_of(late.batch), strict=True):
                if application is not None:
                    self._substitutes.learn(application, (output,))
        return [late.emit(partition, self._codec)]

    def _emit(self, query: Pending, value: bytes, status: Status, now_us: int) -> Emit:
        """Write the answer; the query is no longer pending."""
        query.answered = True
        waiting = self._pending.get(query.partition, {})
        if waiting.get(query.row_id) is query:  # else another's that has the same id: this one has not been opened
            del waiting[query.row_id]
        if query.quota is not None:
            query.quota.places -= query.places
        if now_us > query.deadline_us:
            name = query.application.name if query.application else UNKNOWN
            self._counters["late_answers_total", "application", name, "status", status.value] += 1
        completes, key, headers = query.origin
        query.input = query.lookups = None  # whoever still looks at it later needs nothing of a client's
        query.origin = _NOWHERE
        return Emit(topics.PREDICTIONS, query.partition, key, value, completes, headers)


def _waits_for_copy(query: Pending, model: str) -> bool:
    """Tell whether a model was asked the same twice, and has not answered."""
    return query.follow_up is not None and model in query.follow_up.copies and model not in query.outputs


def _failed(application: str, model: str, outcome: Outcome) -> tuple[str, ...]:
    """Return the counter of a deployed application's questions to a model that ended so."""
    return ("failed_outputs_total", "application", application, "model", model, "outcome", outcome.value)


def _take_messages(waiting: Mapping[str, Pending], batch: ModelPredictions) -> None:
    """Note the model's messages about rows that it could not answer; of several models all that differ."""
    for query_id, message in zip(batch.query_ids, batch.messages, strict=False):
        query = waiting.get(query_id) if message else None
        if query is not None and batch.model in query.models and message not in query.message:
            query.message = "; ".join(filter(None, (query.message, message)))[:_MESSAGE]


def _count_misses(latencies: Latencies, due: Iterable[Pending], now_us: int) -> None:
    for query in due:
        for model in () if query.answered else query.models:
            if model not in query.outputs:
                latencies.miss(model, now_us - query.asked_us(model), now_us)
