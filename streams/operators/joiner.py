"""Join: prediction + feedback inside a window → one observation; at the window's end the default loss, if there is one.

Time is event time: a window runs from the prediction's timestamp. A prediction is complete when it is joined or its
window has ended, so what waits is rebuilt from the committed offset. What waits is kept as record bytes, not objects: a
million pending predictions are an aim (< 700 MB). Feedback may come first, twice, late or wrong; each has one outcome:

    feedback                          outcome
    before its prediction             waits for it, `early_us` beyond what it takes to read the predictions of its time
    again, in the same bytes          skipped, counted as `duplicate_feedback`
    after other feedback was joined   skipped, counted as `duplicate_feedback`
    after the window                  dead letter, cause `late`
    for a query nobody predicted      dead letter, cause `unmatched`, after `early_us`
    label or loss of the wrong type   dead letter, cause `invalid_feedback`; the prediction waits on

What a shadow of a model has answered waits for its query's feedback, too, as far as there is room, and is read again
after a restart. It changes no observation: where a model runs in several versions, the joiner's reports say what each
of them costs. Outputs of an ensemble that came after its answer wait there as well, and count as if they had not.

There is a bound on what waits. At it, that topic is left unread until something has been joined or its window has
ended; nothing is given up for it.

After a crash an observation may be made again, or a default loss after the feedback had been joined: the learner
remembers ids for `JoinerSettings.memory_us` and applies the first. A window that ended longer ago than that, during an
outage, teaches no default loss.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from policies.errors import LossError
from schemas import topics
from schemas.errors import DecodeError, SchemaError
from schemas.framing import peek_id, peek_texts
from schemas.records import Feedback, ModelPredictions, Outcome, Prediction
from streams.operators.applications import Configuration, Deployed
from streams.operators.combiner import outputs_of
from streams.operators.contract import DeadLetter, Emit, Operator, Position, Record, Skip
from streams.operators.counters import Counters, render
from streams.operators.late import completed
from streams.operators.observing import NO_ANSWER_LOSS, default_observation, observation, output_loss
from streams.operators.wheel import SecondsWheel
from streams.topology import state_partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import ModelOutput, Observation
    from streams.operators.contract import Effects

_OFFSET_BYTES = 8
_SECOND_US = 1_000_000
# Windows ended in one call, at 15 us each: records and acknowledgements get their turn in between.
_AT_ONCE = 2_000
# Different feedback for one query that waits for its prediction; one more counts as a duplicate.
_SAME_QUERY = 16


@dataclass(frozen=True, slots=True)
class JoinerSettings:
    """What the joiner needs to know.

    Attributes:
        partitions: of the topics on the circle of data.
        window_us: the longest window, which is read back at a start; also that of applications that are unknown.
        early_us: how long feedback waits for a prediction that has not been seen, and at least how long a prediction
            that was read late waits for feedback (or its window, if that is shorter).
        predictions: waiting for feedback, at which no more are read.
        feedback: queries with feedback waiting for the prediction, at which no more is read.
        shadows: queries of a partition with outputs of shadows that wait; beyond that the first are forgotten.
    """

    partitions: int = 4
    window_us: int = 600_000_000
    early_us: int = 60_000_000
    predictions: int = 2_000_000
    feedback: int = 1_000_000
    shadows: int = 50_000

    @property
    def memory_us(self) -> int:
        """How long the learner must remember ids to know an observation that is made again.

        A prediction may be read again a window after it was joined, after an outage as long as another window, and then
        waits once more. The minute is for brokers whose clocks disagree.
        """
        return 2 * (self.window_us + self.early_us) + 60_000_000


@dataclass(slots=True)
class _Partition:
    """What one partition remembers, all by query id."""

    start: int  # first offset of `predictions` that is not complete
    waiting: dict[str, bytes] = field(default_factory=dict)  # offset (8 bytes, big-endian) + the prediction's bytes
    early: dict[str, tuple[Record, ...]] = field(default_factory=dict)  # feedback before its prediction
    shadows: dict[str, tuple[ModelOutput, ...]] = field(default_factory=dict)  # outputs that are in no answer
    closed: dict[str, bool] = field(default_factory=dict)  # True = joined, False = the window ended without feedback
    wheel: SecondsWheel = field(default_factory=SecondsWheel)  # when a window, or the memory of one, ends
    early_wheel: SecondsWheel = field(default_factory=SecondsWheel)  # when early feedback has waited long enough
    read_us: int = 0  # when a prediction was read last
    newest_us: int = 0  # the timestamp it had


class Joiner(Operator):
    """The kernel of the `joiner` role."""

    def __init__(self, codec: Codec, settings: JoinerSettings) -> None:
        self._codec = codec
        self._settings = settings
        self._counters = Counters()
        self._losses: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self._configuration = Configuration(codec)
        self._removed: dict[str, tuple[Deployed, int]] = {}  # applications, and until when their last windows run
        self._partitions: dict[int, _Partition] = {}
        self._paused_us = 0  # when predictions were last left unread

    @property
    def read_back_us(self) -> int:
        """One window: predictions that were completed before the start are remembered as closed."""
        return self._settings.window_us

    @property
    def also_read_back(self) -> frozenset[str]:
        """What shadows answered waits as predictions do, though its records are complete."""
        return frozenset((topics.SHADOWS,))

    @property
    def paused(self) -> frozenset[str]:
        """The topics of which as much waits as may."""
        found = set()
        if sum(len(p.waiting) for p in self._partitions.values()) >= self._settings.predictions:
            found.add(topics.PREDICTIONS)
        if sum(len(p.early) for p in self._partitions.values()) >= self._settings.feedback:
            found.add(topics.FEEDBACK)
        return frozenset(found)

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take predictions, feedback and configuration."""
        effects: Effects = []
        for record in records:
            try:
                if record.topic == topics.PREDICTIONS:
                    self._on_prediction(record, now_us, effects)
                elif record.topic == topics.FEEDBACK:
                    self._on_feedback(record, now_us, effects)
                elif record.topic == topics.SHADOWS:
                    self._on_shadows(record, effects)
                else:
                    self._configure(record, now_us)
            except DecodeError as error:
                self._counters["undecodable_total", "topic", record.topic] += 1
                effects.append(DeadLetter(record, error.cause, str(error)))
        self._note_pause(now_us)
        return effects

    def on_timer(self, now_us: int) -> Effects:
        """End the windows that are over, as many as one turn allows; what is left is due at once."""
        effects: Effects = []
        self._note_pause(now_us)
        left = _AT_ONCE
        for number, partition in self._partitions.items():
            given_up = partition.early_wheel.due(now_us, left)
            ended = partition.wheel.due(now_us, left - len(given_up))
            left -= len(given_up) + len(ended)
            for query_id in given_up:
                self._give_up(partition, query_id, now_us, effects)
            for query_id in ended:
                self._expire(number, partition, query_id, now_us, effects)
        if self._removed:
            self._removed = {name: kept for name, kept in self._removed.items() if kept[1] > now_us}
        return effects

    def next_deadline(self) -> int | None:
        """Return when the next window ends, rounded up to a second (us)."""
        ends = (wheel.next_due() for p in self._partitions.values() for wheel in (p.wheel, p.early_wheel))
        return min((end for end in ends if end is not None), default=None)

    def on_assigned(self, starts: Mapping[int, int]) -> None:
        """Start empty; what waits follows again from `starts`, what is closed from before."""
        for number, start in starts.items():
            self._partitions[number] = _Partition(start)

    def on_revoked(self, partitions: Sequence[int]) -> None:
        """Forget these partitions."""
        for number in partitions:
            self._partitions.pop(number, None)

    def statistics(self) -> Mapping[str, float]:
        """Return how many were joined, expired and refused, and how many wait."""
        return {
            **self._counters.rendered(),
            **{render(key): loss for key, loss in self._losses.items()},
            "predictions_waiting": float(sum(len(p.waiting) for p in self._partitions.values())),
            "shadows_waiting": float(sum(len(p.shadows) for p in self._partitions.values())),
            "feedback_waiting": float(sum(len(p.early) for p in self._partitions.values())),
        }

    def _start(self, number: int) -> _Partition:
        """Take up a partition whose records come without an assignment, as in tests of one kernel."""
        partition = self._partitions[number] = _Partition(0)
        return partition

    def _note_pause(self, now_us: int) -> None:
        if topics.PREDICTIONS in self.paused:
            self._paused_us = now_us

    def _configure(self, record: Record, now_us: int) -> None:
        """Take configuration; what a removed application said holds until its last window has ended."""
        name = (record.key or b"").decode(errors="replace")
        before = self._configuration.applications.get(name) if record.topic == topics.APPLICATIONS else None
        self._configuration.on_record(record)
        if before is not None and record.value is None:
            last_us = int(before.application.window_s * _SECOND_US) + self._settings.early_us
            self._removed[name] = before, now_us + min(last_us, self._settings.memory_us)

    def _deployed(self, application: str) -> Deployed | None:
        """Return what is known of an application, removed ones with windows included."""
        found = self._configuration.applications.get(application)
        return found or self._removed.get(application, (None, 0))[0]

    def _on_prediction(self, record: Record, now_us: int, effects: Effects) -> None:
        partition = self._partitions.get(record.partition) or self._start(record.partition)
        query_id, application = peek_texts(record.value, 2)
        partition.read_us, partition.newest_us = now_us, record.timestamp_us
        window_us = self._window_us(application)
        # After an outage its feedback is still to be read, too.
        end_us = max(record.timestamp_us + window_us, now_us + min(window_us, self._settings.early_us))
        if record.offset < partition.start:
            partition.closed[query_id] = True
            partition.shadows.pop(query_id, None)
            partition.wheel.add(end_us, query_id)
            return
        if query_id in partition.waiting or query_id in partition.closed:
            effects.append(Skip((record.position,), "duplicate_prediction"))
            return
        assert record.value is not None
        partition.waiting[query_id] = record.offset.to_bytes(_OFFSET_BYTES, "big") + record.value
        partition.wheel.add(end_us, query_id)
        for early in partition.early.pop(query_id, ()):
            self._match(early, partition, query_id, effects)

    def _match(self, record: Record, partition: _Partition, query_id: str, effects: Effects) -> None:
        """Join feedback with a prediction that was waited for, unless other feedback has been joined before."""
        if query_id in partition.waiting:
            self._join(record, partition, query_id, effects)
        else:
            effects.append(Skip((record.position,), "duplicate_feedback"))

    def _on_feedback(self, record: Record, now_us: int, effects: Effects) -> None:
        partition = self._partitions.get(record.partition) or self._start(record.partition)
        query_id = peek_id(record.value)
        if query_id in partition.waiting:
            self._join(record, partition, query_id, effects)
        elif partition.closed.get(query_id):
            effects.append(Skip((record.position,), "duplicate_feedback"))
        elif query_id in partition.closed:
            self._refuse(record, "late", "the window had ended before this feedback came", effects)
        else:
            self._await(record, partition, query_id, now_us, effects)

    def _on_shadows(self, record: Record, effects: Effects) -> None:
        """Keep what shadows answered, one output a version, for when the query's feedback comes."""
        batch = self._codec.decode(ModelPredictions, record.value)
        partition = self._partitions.get(record.partition) or self._start(record.partition)
        kept = partition.shadows
        for query_id, output in zip(batch.query_ids, outputs_of(batch), strict=True):
            if query_id in partition.closed or output.outcome in (Outcome.INVALID, Outcome.EXPIRED):
                continue  # it says nothing about the version
            others = (o for o in kept.get(query_id, ()) if (o.model, o.version) != (output.model, output.version))
            kept[query_id] = (*others, output)
        for query_id in [*islice(kept, max(0, len(kept) - self._settings.shadows))]:
            self._counters["shadows_forgotten_total",] += 1
            del kept[query_id]
        effects.append(Skip((record.position,), ""))

    def _score(self, prediction: Prediction, feedback: Feedback, kind: str, shadows: tuple[ModelOutput, ...]) -> None:
        """Count what each version of a model cost, where there are several."""
        configuration = self._configuration
        for output in (*prediction.outputs, *shadows):
            model = configuration.models.get(output.model)
            if model is None or not model.shares:
                continue
            try:
                loss = output_loss(output, prediction, feedback, kind, configuration.classes)
            except LossError:  # a shadow's: what answered has been checked
                loss = NO_ANSWER_LOSS
            if loss is not None:
                label = "application", prediction.application, "model", output.model, "version", output.version
                self._counters["version_joined_total", *label] += 1
                self._losses["version_loss_total", *label] += loss

    def _await(self, record: Record, partition: _Partition, query_id: str, now_us: int, effects: Effects) -> None:
        """Keep feedback until its prediction comes; whether it is right cannot be told before."""
        early = partition.early.get(query_id, ())
        if len(early) == _SAME_QUERY or any(known.value == record.value for known in early):
            effects.append(Skip((record.position,), "duplicate_feedback"))
            return
        partition.early[query_id] = (*early, record)
        if not early:  # from now on, not from when it was written: its prediction may be read a moment later
            partition.early_wheel.add(now_us + self._settings.early_us, query_id)

    def _join(self, feedback_record: Record, partition: _Partition, query_id: str, effects: Effects) -> None:
        """Make the observation of a waiting prediction; wrong feedback leaves it waiting."""
        stored = partition.waiting[query_id]
        completes = (_position(stored, feedback_record.partition), feedback_record.position)
        try:
            feedback = self._codec.decode(Feedback, feedback_record.value)
            prediction = self._codec.decode(Prediction, stored[_OFFSET_BYTES:])
            come = partition.shadows.get(query_id, ())
            if come:
                prediction, come = completed(prediction, come, self._configuration.models)
            deployed = self._deployed(prediction.application)
            kind = deployed.application.loss if deployed else "zero_one"
            seen = observation(prediction, feedback, kind, self._configuration.classes, feedback_record.timestamp_us)
            effect = self._emit(seen, completes) if seen else Skip(completes, "nothing_to_learn")
        except (LossError, DecodeError, SchemaError) as error:
            self._refuse(feedback_record, "invalid_feedback", str(error), effects)
            return
        del partition.waiting[query_id]
        partition.closed[query_id] = True
        partition.shadows.pop(query_id, None)
        if self._configuration.has_shares:
            self._score(prediction, feedback, kind, come)
        if seen is not None:
            self._counters["joined_total", "application", prediction.application] += 1
        effects.append(effect)

    def _give_up(self, partition: _Partition, query_id: str, now_us: int, effects: Effects) -> None:
        """End feedback's wait for a prediction, unless the predictions of its time are still to be read."""
        if query_id not in partition.early:
            return
        began_us = now_us - self._settings.early_us
        is_reading = max(partition.read_us, self._paused_us) > began_us
        if is_reading and partition.newest_us < began_us:
            partition.early_wheel.add(now_us + self._settings.early_us, query_id)
            return
        for record in partition.early.pop(query_id):
            self._refuse(
                record, "unmatched", "no prediction with this query id was seen, or its window ended long ago", effects
            )

    def _expire(self, number: int, partition: _Partition, query_id: str, now_us: int, effects: Effects) -> None:
        """End what ran out for this id: a window, or the memory of a closed query."""
        stored = partition.waiting.pop(query_id, None)
        partition.shadows.pop(query_id, None)
        if stored is None:
            partition.closed.pop(query_id, None)
            return
        partition.closed[query_id] = False
        position = _position(stored, number)
        try:
            effects.append(self._unjoined(partition, position, stored[_OFFSET_BYTES:], now_us))
        except (DecodeError, SchemaError) as error:  # seen only here: until now its first fields were enough
            self._counters["undecodable_total", "topic", topics.PREDICTIONS] += 1
            record = Record(*position, timestamp_us=0, key=None, value=stored[_OFFSET_BYTES:])
            effects.append(DeadLetter(record, error.cause if isinstance(error, DecodeError) else "invalid", str(error)))

    def _unjoined(self, partition: _Partition, position: Position, value: bytes, now_us: int) -> Emit | Skip:
        """Say what the end of a window teaches."""
        prediction = self._codec.decode(Prediction, value)
        window_us = self._window_us(prediction.application)
        # Late feedback is told from unknown for one more window.
        partition.wheel.add(max(prediction.answered_us + 2 * window_us, now_us + window_us), prediction.query_id)
        seen = default_observation(prediction, self._default_loss(prediction), prediction.answered_us + window_us)
        if prediction.decision is not None:
            self._counters["unjoined_total", "application", prediction.application] += 1
        if seen is None:
            return Skip((position,), "no_feedback")
        if prediction.answered_us + self._settings.memory_us < now_us:
            return Skip((position,), "window_long_over")  # the learner may have applied and forgotten its feedback
        return self._emit(seen, (position,))

    def _emit(self, seen: Observation, completes: tuple[Position, ...]) -> Emit:
        partition, key = _route(seen.decision.state, self._settings.partitions)
        return Emit(topics.OBSERVATIONS, partition, key, self._codec.encode(seen), completes)

    def _refuse(self, record: Record, cause: str, message: str, effects: Effects) -> None:
        self._counters["refused_feedback_total", "cause", cause] += 1
        effects.append(DeadLetter(record, cause, message))

    def _window_us(self, application: str) -> int:
        deployed = self._deployed(application)
        longest_us = self._settings.window_us
        return min(int(deployed.application.window_s * _SECOND_US), longest_us) if deployed else longest_us

    def _default_loss(self, prediction: Prediction) -> float | None:
        deployed = self._deployed(prediction.application)
        return deployed.application.default_loss if deployed else None


@lru_cache(maxsize=65_536)
def _route(state: str, partitions: int) -> tuple[int, bytes]:
    """Return partition and key of a state's observations."""
    return state_partition(state, partitions), state.encode()


def _position(stored: bytes, partition: int) -> Position:
    return Position(topics.PREDICTIONS, partition, int.from_bytes(stored[:_OFFSET_BYTES], "big"))
