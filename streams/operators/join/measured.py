"""Metrics of applications, query by query: what an answer took and cost, and what is told about it by a metric's name.

    prediction        ─▶ latency and price, at once ─▶ a measurement beside the observations of its state
    metric feedback   ─▶ its query, held for a window ─▶ likewise
    end of the window ─▶ the metrics that were not told and have a value for that ─▶ likewise
    too many are held ─▶ those that have such a value are withdrawn: a measurement without values

Nobody learns from measurements; they judge candidates. Each metric of a query counts once, the first time: who judges
tells copies by query and metric. Where no application has metrics, nothing is held and nothing is read twice.

    metric feedback                        outcome
    before its prediction                  waits for `early_us`, then it is a dead letter: `unmatched`
    of a metric that was told before       skipped, counted as `duplicate_feedback`
    of a metric that there is not          dead letter, cause `unknown_metric`
    after the window                       dead letter, cause `late`
    of who may tell about another one      dead letter, cause `other_application`
    without room to wait                   dead letter, cause `over_limit`
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from policies.metrics import FEEDBACK, LATENCY, PRICE, loss_of, price_of
from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_texts
from schemas.records import Measurement, Measurements, MetricValue, Outcome, Prediction
from streams.operators.contract import Emit, Skip
from streams.operators.join.buffer import feedback_bytes
from streams.operators.join.held import HeldQueries, HeldQuery
from streams.operators.statistics import Counters
from streams.topology import is_held_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Decision, Metric, MetricFeedback
    from streams.operators.configuration import Configuration
    from streams.operators.contract import Effects, Record
    from streams.operators.join.buffer import JoinBuffer
    from streams.operators.join.outcomes import JoinOutcomes
    from streams.operators.join.shared_buffer import SharedBuffer
    from streams.operators.join.terms import ApplicationTerms

_AT_ONCE: Final = 128  # windows that end in one call; the rest is due at once
_MS_US: Final = 1_000.0
_NOT_DRAWN: Final = (Outcome.OVERLOADED, Outcome.UNKNOWN_VERSION)
_UNMATCHED: Final = "no answer with this query id was seen that its application's metrics could be told of"
_LATE: Final = "the window had ended, or the query is of an application without metrics that are told"
_NO_ROOM: Final = "no answer with this query id was seen yet, and there is no room to wait for it (joiner.early_mib)"


class MeasuredQueries:
    """Measures queries; empty where no application has metrics.

    Args:
        codec: of the deployment.
        configuration: applications and models.
        terms: the windows of applications.
        outcomes: of the joiner: it says where a state's records go, and counts what is refused.
        early_us: how long feedback waits for a prediction that has not been read.
        room: of feedback that waits, by partition.

    Attributes:
        is_used: whether any application has metrics: only then predictions are shown to it.
    """

    def __init__(
        self,
        codec: Codec,
        configuration: Configuration,
        terms: ApplicationTerms,
        outcomes: JoinOutcomes,
        early_us: int,
        room: SharedBuffer,
    ) -> None:
        self._codec = codec
        self._configuration = configuration
        self._terms = terms
        self._outcomes = outcomes
        self._early_us = early_us
        self._room = room
        self._metrics: dict[str, tuple[Metric, ...]] = {}  # by application that has some
        self._held = HeldQueries()
        self._early: dict[tuple[int, str], list[tuple[Record, MetricFeedback]]] = {}
        self._early_due: list[tuple[int, int, str]] = []  # a heap: until when feedback waits
        self._counters = Counters()
        self.is_used = False

    def follow(self) -> None:
        """Take the applications as they are deployed now."""
        known = self._configuration.applications
        self._metrics = {name: one.application.metrics for name, one in known.items() if one.application.metrics}
        self.is_used = bool(self._metrics)

    def note(self, partition: JoinBuffer, records: Iterable[Record], now_us: int, effects: Effects) -> None:
        """Measure predictions before they are joined; what is no prediction is the joiner's to refuse."""
        made: list[Measurement] = []
        for record in records:
            try:
                metrics = self._metrics.get(peek_texts(record.value, 2)[1], ())
                prediction = self._codec.decode(Prediction, record.value) if metrics else None
            except DecodeError:
                continue
            if prediction is None or prediction.decision is None:
                continue
            about = self._about(prediction, prediction.decision)
            if record.offset >= partition.start and (values := _measured(metrics, prediction)):
                made.append(about._replace(values=values))
            if any(metric.of == FEEDBACK for metric in metrics):
                self._hold(partition.number, about, len(record.value or b""), now_us, effects)
        made += self._forget(now_us)
        self._emit(made, effects)

    def take(self, record: Record, told: MetricFeedback, partition: JoinBuffer, now_us: int, effects: Effects) -> None:
        """Take metric feedback: of a query that is held, or that is still to come."""
        place = partition.number, told.query_id
        held = self._held.get(place)
        if held is not None:
            self._tell(record, told, held, effects)
        elif told.query_id in partition.predictions or partition.ended.find(told.query_id, now_us) is not None:
            self._outcomes.refuse(record, "late", _LATE, effects)
        elif not self._room.take(record.partition, feedback_bytes(record)):
            self._counters["over_limit_total", "of", "metrics"] += 1
            self._outcomes.refuse(record, "over_limit", _NO_ROOM, effects)
        else:
            self._early.setdefault(place, []).append((record, told))
            heapq.heappush(self._early_due, (now_us + self._early_us, *place))

    def release(self, ended_us: Mapping[int, int], now_us: int, effects: Effects) -> None:
        """End the windows that are over, and the waits of feedback that nobody asked.

        Args:
            ended_us: by partition: windows that were over by then have ended.
            now_us: the time.
            effects: what comes of it is added here.
        """
        made: list[Measurement] = []
        for _ in range(_AT_ONCE):
            held = self._held.ended(ended_us, now_us)
            if held is None:
                break
            if values := self._absent(held):
                made.append(held.about._replace(values=values, measured_us=held.end_us, final_us=held.end_us))
        self._emit(made, effects)
        while self._early_due and self._early_due[0][0] <= now_us:
            _, number, query_id = heapq.heappop(self._early_due)
            for record, _ in self._pop_early(number, query_id):
                self._outcomes.refuse(record, "unmatched", _UNMATCHED, effects)

    def next_due(self) -> int | None:
        """Return when to look again; None where nothing is held."""
        dues = self._held.next_due(), self._early_due[0][0] if self._early_due else None
        return min((due for due in dues if due is not None), default=None)

    def forget_partitions(self, numbers: Iterable[int]) -> None:
        """Drop what is held of partitions that are another's now: it reads it again."""
        gone = {*numbers}
        for number, query_id in [place for place in self._early if place[0] in gone]:
            self._pop_early(number, query_id)
        self._held.forget_partitions(gone)
        self._early_due = [one for one in self._early_due if one[1] not in gone]
        heapq.heapify(self._early_due)

    def statistics(self) -> Mapping[str, float]:
        """Return how much was measured and is held; nothing where no application has metrics."""
        counted = self._counters.rendered()
        return {**counted, "metrics_waiting": float(len(self._held))} if self.is_used or counted else {}

    def _about(self, prediction: Prediction, decision: Decision) -> Measurement:
        who = prediction.query_id, prediction.application, prediction.context
        answered_us = prediction.answered_us
        versions, drawn = self._versions(prediction), (prediction.drawn, prediction.episode)
        return Measurement(*who, decision, (), versions, answered_us, answered_us, *drawn)

    def _versions(self, prediction: Prediction) -> tuple[str, ...]:
        """Return the versions that were drawn, as the joiner has it of losses; none for who is held out."""
        if prediction.decision is None or is_held_out(prediction.decision.state):
            return ()
        models, deployed = self._configuration.models, self._configuration.applications[prediction.application]
        return tuple(
            [
                topics.model_version(output.model, output.version)
                for output in prediction.outputs
                if output.version
                and output.outcome not in _NOT_DRAWN
                and output.model not in deployed.application.versions
                and output.model in models
                and models[output.model].shares
            ]
        )

    def _hold(self, number: int, about: Measurement, size: int, now_us: int, effects: Effects) -> None:
        place = number, about.query_id
        if self._held.get(place) is not None:
            return
        window_us = self._terms.of(about.application).window_us
        end_us = max(about.predicted_us + window_us, now_us + min(window_us, self._early_us))
        held = HeldQuery(about, end_us, [], size)
        self._held.hold(place, held)
        for record, told in self._pop_early(*place):
            self._tell(record, told, held, effects)

    def _forget(self, now_us: int) -> Iterator[Measurement]:
        """Forget what is too much. It is withdrawn where silence would have had a value, as nobody writes that."""
        for held in self._held.surplus():
            self._counters["metrics_forgotten_total",] += 1
            if any(metric.absent is not None for metric in self._metrics.get(held.about.application, ())):
                yield held.about._replace(measured_us=now_us, final_us=held.end_us)

    def _tell(self, record: Record, told: MetricFeedback, held: HeldQuery, effects: Effects) -> None:
        """Measure what was told about a query that is held."""
        application = held.about.application
        found = [metric for metric in self._metrics.get(application, ()) if metric.name == told.metric]
        if told.application not in ("", application):
            message = f"who told it may tell about application {told.application!r:.80} alone"
            self._outcomes.refuse(record, "other_application", message, effects)
        elif not found or found[0].of != FEEDBACK:
            message = f"application {application} has no metric {told.metric!r:.80} that is told: see its `metrics`"
            self._outcomes.refuse(record, "unknown_metric", message, effects)
        elif told.metric in held.told:
            effects.append(Skip((record.position,), "duplicate_feedback"))
        else:
            held.told.append(told.metric)
            value = _value(found[0], told.value)
            told_us, final_us = told.sent_us or record.timestamp_us, _final_us(found[0], held)
            seen = held.about._replace(values=(value,), measured_us=told_us, final_us=final_us)
            self._emit([seen], effects, record)

    def _absent(self, held: HeldQuery) -> tuple[MetricValue, ...]:
        """Return the values of metrics of which nothing was told."""
        metrics = self._metrics.get(held.about.application, ())
        return tuple([_value(m, m.absent) for m in metrics if m.absent is not None and m.name not in held.told])

    def _pop_early(self, number: int, query_id: str) -> Sequence[tuple[Record, MetricFeedback]]:
        found = self._early.pop((number, query_id), [])
        for record, _ in found:
            self._room.give_back(number, feedback_bytes(record))
        return found

    def _emit(self, made: Iterable[Measurement], effects: Effects, told: Record | None = None) -> None:
        """Write measurements, those of one state in one record."""
        by_state: dict[str, list[Measurement]] = {}
        for one in made:
            by_state.setdefault(one.decision.state, []).append(one)
            for value in one.values:
                self._counters["measured_total", "application", one.application, "metric", value.metric] += 1
        for state, its in by_state.items():
            partition, key = self._outcomes.route(state)
            completes = () if told is None else (told.position,)
            written = self._codec.encode(Measurements(tuple(its)))
            effects.append(Emit(topics.OBSERVATIONS, partition, key, written, completes))


def _measured(metrics: Sequence[Metric], prediction: Prediction) -> tuple[MetricValue, ...]:
    """Return what needs no feedback."""
    found = []
    for metric in metrics:
        if metric.of == LATENCY:
            took_us = prediction.answered_us - prediction.sent_us
            found.append(_value(metric, max(0.0, took_us / _MS_US)))
        elif metric.of == PRICE and prediction.decision is not None:
            arms = prediction.decision.arms
            found.append(_value(metric, price_of(metric, prediction.outputs, prediction.steps, arms)))
    return tuple(found)


def _final_us(metric: Metric, held: HeldQuery) -> int:
    """Return from when on a value may be compared: where silence has one, too, when that is known."""
    return 0 if metric.absent is None else held.end_us


def _value(metric: Metric, value: float) -> MetricValue:
    return MetricValue(metric.name, value, loss_of(metric, value))
