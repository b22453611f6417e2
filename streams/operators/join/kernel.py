"""Join: prediction + feedback inside a window → one observation; at the window's end the default loss, if there is one.

Time is event time: a window runs from the prediction's timestamp. A prediction is complete when it is joined or its
window has ended. So the buffer is rebuilt from the committed offset. It holds record bytes, not objects: it must hold
a million predictions in less than 700 MB. Feedback may come first, twice, late or wrong. Each has one outcome:

    feedback                          outcome
    before its prediction             waits for it, `early_us` beyond what it takes to read the predictions of its time
    again, in the same bytes          skipped, counted as `duplicate_feedback`
    after other feedback was joined   skipped, counted as `duplicate_feedback`
    after the window                  dead letter, cause `late`
    for a query nobody predicted      dead letter, cause `unmatched`, after `early_us`
    on an answer nobody decided       skipped, counted as `nothing_to_learn`; such predictions do not wait
    on an id of two applications      dead letter, cause `ambiguous_id`; neither prediction waits any more
    of who may teach another one      dead letter, cause `other_application`; the prediction waits on
    without room to wait              dead letter, cause `over_limit`; after a restart, `late` or as if joined before
    label or loss of the wrong type   dead letter, cause `invalid_feedback`; the prediction waits on
    a label that is no class          dead letter, cause `unknown_label`; likewise
    by context and time               becomes feedback by id, or none: `keyed`
    that may be corrected             becomes feedback when its window is nearly over: `revised`
    that names a metric               becomes a measurement: `measured`

A window ends when its time is over and the partition's feedback has been read up to that time. It ends one window later
at the latest.

Outputs of shadows wait for their query's feedback, too, as far as there is room. They change no observation. For a
model that runs in several versions, the joiner reports the loss of each version.

The buffer is bounded in records and in bytes, and shared fairly (`shared_room`): predictions by application, early
feedback by partition, outputs of shadows by model. Only a holder over its share is turned away. Its prediction is
skipped and counted as `over_limit`; its feedback becomes a dead letter of that cause. While one topic is behind, as
after an outage, the kernel pauses the other in time, and nothing is turned away.

After a crash an observation may be made again: it was on its way when the joiner looked. The learner remembers ids for
`JoinerSettings.memory_us` and applies the first. At its start the joiner is told which observations there are since its
first incomplete prediction: predictions that have one do not wait again, though their feedback was committed and is not
read again. Feedback that is read again, and was joined, is skipped as a duplicate. A window that ended longer ago,
during an outage, teaches no default loss.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import may_be_decided, peek_texts
from schemas.records import Feedback, JoinStatus, KeyedFeedback, MetricFeedback, ModelPredictions, Observations
from streams.operators.configuration import Configuration
from streams.operators.contract import CLOCKS_US, NONE_UNREAD, Needs, Operator, ReadBack, Skip
from streams.operators.ids import SECOND_US, IdTimes, seconds
from streams.operators.join.buffer import EarlyFeedback, Ending, JoinBuffer
from streams.operators.join.keyed import KeyedFeedbackIndex
from streams.operators.join.measured import MeasuredQueries
from streams.operators.join.outcomes import AMBIGUOUS, LATE, TOGETHER, JoinOutcomes, Match
from streams.operators.join.revised import RevisedFeedback
from streams.operators.join.shadows import Shadows
from streams.operators.join.shared_buffer import USUAL_FEEDBACK_BYTES, SharedBuffer
from streams.operators.join.terms import ApplicationTerms
from streams.operators.late_outputs import is_late

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Effects, Record, Unread

SOURCE = itemgetter(0, 1)  # of a record: topic and partition
_SHADOWS = frozenset((topics.SHADOWS,))
_UNMATCHED = "no prediction with this query id was seen, or its window ended long ago"
# Windows ended in one call, at 15 us each: records, acknowledgements and selection, if it shares the process, get their
# turn in between.
_AT_ONCE = 128
# Observations that are remembered after an outage: 240 MB of ids (24 B each, where Skysail is compiled), 17 minutes of
# 10,000 a second. What was observed after these may be observed again.
_MOST_OBSERVED = 10_000_000
# How a query has got its observation, in `observed`.
_WAS_DEFAULT, _WAS_JOINED = 1, 2
_NEVER_US = 2**62
# How often windows that are held open are checked again.
_AGAIN_US = 1_000_000


@dataclass(frozen=True, slots=True)
class JoinerSettings:
    """Settings of the joiner.

    Attributes:
        partitions: of the topics on the circle of data.
        window_us: the longest window, which is read back at a start; also that of applications that are unknown.
        early_us: how long feedback waits for a prediction that has not been seen, and at least how long a prediction
            that was read late waits for feedback (or its window, if that is shorter).
        predictions: that may wait for feedback, of all applications.
        feedback: that may wait for its prediction.
        shadows: outputs of shadows and late ones that may wait, of a partition; beyond that the first are forgotten.
        large_bytes: how much all waiting records together may have beyond a usual record's size: predictions half of
            it, feedback and shadows a quarter each.
    """

    partitions: int = 4
    window_us: int = 600_000_000
    early_us: int = 60_000_000
    predictions: int = 3_000_000
    feedback: int = 400_000
    shadows: int = 100_000
    large_bytes: int = 64 << 20

    @property
    def memory_us(self) -> int:
        """How long the learner must remember ids to recognise an observation that is made again.

        A prediction may be read again a window after it was joined, after an outage as long as another window. Then it
        waits once more. The minute is for brokers whose clocks disagree.
        """
        return 2 * (self.window_us + self.early_us) + 60_000_000


class Joiner(Operator):
    """The kernel of the `joiner` role.

    Attributes:
        settings: its settings.
        configuration: applications and models.
        terms: on which applications wait.
        outcomes: how waiting ends.
        room: of predictions.
        observed: queries that may be read again although they have an observation.
        observed_us: when the last of these was written; none of their predictions is younger.
    """

    def __init__(self, codec: Codec, settings: JoinerSettings) -> None:
        self._codec = codec
        self.settings = settings
        self._read_back = ReadBack(settings.window_us, _SHADOWS, has_written=True)
        self.configuration = configuration = Configuration(codec)
        self.terms = ApplicationTerms(configuration, settings.window_us, settings.early_us, settings.memory_us)
        self.outcomes = JoinOutcomes(codec, configuration, self.terms, settings.partitions, settings.memory_us)
        self._longest_us = 2 * (settings.window_us + settings.early_us)  # that a query may wait, after an outage
        self._partitions: dict[int, JoinBuffer] = {}
        self.room = SharedBuffer(settings.predictions, settings.large_bytes // 2)
        self._early_room = SharedBuffer(settings.feedback, settings.large_bytes // 4, USUAL_FEEDBACK_BYTES)
        self.keyed = KeyedFeedbackIndex(codec, settings.large_bytes, settings.early_us, self._early_room)
        self.revised = RevisedFeedback(codec, self.terms, settings.early_us, self._early_room)
        known = codec, configuration, self.terms, self.outcomes
        self.measured = MeasuredQueries(*known, settings.early_us, self._early_room)
        self._forgotten = 0  # outputs of shadows for which there was no room, of partitions that are not ours any more
        self._unread: Unread = NONE_UNREAD
        self._left_unread: frozenset[str] = frozenset()  # topics, at the last look
        self.observed = IdTimes()
        self._observed_left = _MOST_OBSERVED  # that it still takes
        self.observed_us = 0
        self._observed_from_us = _NEVER_US  # since when all are known
        self._paused_us = 0  # when predictions were last left unread
        self._keyed_us: int | None = None  # when keyed feedback is to be looked at again
        self._again_us = 0  # when windows that are held open are to be looked at again

    def needs(self) -> Needs:
        """Read back one window: predictions that were completed before the start are remembered as closed.

        Outputs of shadows wait as predictions do, though their records are complete.
        """
        return Needs(self.next_deadline(), 0, self.paused, is_told_unread=True, read_back=self._read_back)

    @property
    def paused(self) -> frozenset[str]:
        """The topic that is ahead of the other, once many of its records wait for the other."""
        if self._early_room.is_pressed and any(p.predictions_lag.is_behind for p in self._partitions.values()):
            return frozenset((topics.FEEDBACK,))
        if self.room.is_pressed and any(p.feedback_lag.is_behind for p in self._partitions.values()):
            return frozenset((topics.PREDICTIONS,))
        return frozenset()

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take predictions, feedback and configuration, and at a start observations that were made before."""
        effects: Effects = []
        for _, run in groupby(records, key=SOURCE):
            self.take_run([*run], now_us, effects)
        self.note_pause(now_us)
        return effects

    def take_run(self, records: Sequence[Record], now_us: int, effects: Effects) -> None:
        """Take records of one partition; `note_pause` follows the last of them."""
        topic, number = SOURCE(records[0])
        if topic == topics.PREDICTIONS:
            if self.keyed.is_used:
                self.keyed.note(records, now_us)
            if self.measured.is_used:
                self.measured.note(self.partition(number), records, now_us, effects)
            self._on_predictions(number, records, now_us, effects)
        elif topic == topics.FEEDBACK:
            self._on_feedback(number, records, now_us, effects)
        elif topic == topics.OBSERVATIONS:
            self._on_observations(records)
        else:
            self._on_others(number, records, now_us, effects)

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """End the windows that are over, as many as one turn allows; the rest are due at once.

        A window is held open while feedback that was written in it may still come.
        """
        effects: Effects = []
        self._unread = unread
        paused = self._left_unread | self.paused
        for number, partition in self._partitions.items():
            for topic, lag in (
                (topics.PREDICTIONS, partition.predictions_lag),
                (topics.FEEDBACK, partition.feedback_lag),
            ):
                lag.look(unread.get((topic, number), 0), now_us, is_paused=topic in paused)
        self._left_unread = self.paused
        self.note_pause(now_us)
        self._settle(now_us, effects)
        left = _AT_ONCE
        for partition in self._partitions.values():
            expired_early = partition.early_wheel.due(now_us, left)
            ended = partition.wheel.due(self._ended_by(partition, now_us), left - len(expired_early))
            left -= len(expired_early) + len(ended)
            for query_id in expired_early:
                for record in partition.expired_early(query_id, now_us, self.settings.early_us, self._paused_us):
                    self.outcomes.refuse(record, "unmatched", _UNMATCHED, effects)
            for query_id in ended:
                if self.revised.keeps_open(partition.number, query_id):
                    partition.wheel.add(now_us + _AGAIN_US, query_id)
                else:
                    self.outcomes.expire(partition, query_id, now_us, effects)
            partition.shadows.expire(now_us, _AT_ONCE)
        self.terms.forget(now_us)
        if self.observed_us and all(p.newest_us > self.observed_us for p in self._partitions.values()):
            self._recall()
        return effects

    def _settle(self, now_us: int, effects: Effects) -> None:
        """Find the answers that keyed feedback is about, and write what is corrected no more."""
        ended_us = {number: self._ended_by(partition, now_us) for number, partition in self._partitions.items()}
        if self.keyed.remembers:
            lags = {number: partition.predictions_lag.complete_us for number, partition in self._partitions.items()}
            self.keyed.settle({number: (lags[number], ended_us[number]) for number in lags}, effects)
        self.revised.release(self._partitions, ended_us, now_us, effects)
        self.measured.release(ended_us, now_us, effects)
        due = (self.keyed.next_due(now_us), self.revised.next_due())
        self._keyed_us = min((us for us in due if us is not None), default=None)

    def next_deadline(self) -> int | None:
        """Return when the next window ends, rounded up to a second (us)."""
        expired_early = [p.early_wheel.next_due() for p in self._partitions.values()]
        ended = [self._next_end(p) for p in self._partitions.values()]
        forgotten = [p.shadows.next_due() for p in self._partitions.values()]
        due = (*expired_early, *ended, *forgotten, self._keyed_us, self.measured.next_due())
        return min((end for end in due if end is not None), default=None)

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Start empty; waiting predictions follow again from `starts`, closed ones from before it."""
        self._forget(starts)
        begun = {number: start for number, start in starts.items() if start is not None}
        if begun:
            self._recall()
        for number, start in begun.items():
            self._partitions[number] = self._begun(number, start)

    def _recall(self) -> None:
        """Begin to remember which queries have an observation."""
        self.observed, self._observed_left, self.observed_us = IdTimes(), _MOST_OBSERVED, 0
        self._observed_from_us = _NEVER_US

    def _on_observations(self, records: Sequence[Record]) -> None:
        """Remember which queries have an observation; one that cannot be read is nobody's lesson either."""
        put, find = self.observed.put, self.observed.find
        for record in records:
            self.observed_us = max(self.observed_us, record.timestamp_us + CLOCKS_US)
            self._observed_from_us = min(self._observed_from_us, record.timestamp_us)
            try:
                items = self._codec.decode(Observations, record.value).items[: self._observed_left]
            except DecodeError:
                continue
            self._observed_left -= len(items)
            for seen in items:
                how = _WAS_JOINED if seen.status is JoinStatus.JOINED else _WAS_DEFAULT
                put(seen.query_id, max(how, find(seen.query_id)), 0)  # what was learnt from feedback stays so

    def _forget(self, partitions: Iterable[int]) -> None:
        gone = [self._partitions.pop(number) for number in partitions if number in self._partitions]
        numbers = [partition.number for partition in gone]
        self.keyed.forget_partitions(numbers)
        self.revised.forget_partitions(numbers)
        self.measured.forget_partitions(numbers)
        self._forgotten += sum(partition.shadows.forgotten for partition in gone)
        if not self._partitions:
            self.room.clear()
            self._early_room.clear()
        else:
            for partition in gone:
                partition.release()

    def statistics(self) -> Mapping[str, float]:
        """Return how many were joined, expired and refused, and how many wait."""
        partitions = self._partitions.values()
        return {
            **self.outcomes.rendered(),
            **self.keyed.statistics(),
            **self.revised.statistics(),
            **self.measured.statistics(),
            "shadows_forgotten_total": float(self._forgotten + sum(p.shadows.forgotten for p in partitions)),
            "shadows_waiting": float(sum(len(p.shadows) for p in partitions)),
            "predictions_waiting": float(sum(len(p.predictions) for p in partitions)),
            "feedback_waiting": float(sum(len(p.early) for p in partitions)),
            "large_bytes{of=predictions}": float(self.room.used_large_bytes),
            "large_bytes{of=feedback}": float(self._early_room.used_large_bytes),
            "large_bytes{of=shadows}": float(sum(p.shadows.large_bytes for p in partitions)),
            "windows_held": float(sum(self._is_held(p) for p in partitions)),
        }

    def partition(self, number: int) -> JoinBuffer:
        """Return the memory of a partition; in tests of one kernel its records may come without an assignment."""
        found = self._partitions.get(number)
        if found is None:
            found = self._partitions[number] = self._begun(number, 0)
        return found

    def _begun(self, number: int, start: int) -> JoinBuffer:
        settings = self.settings
        shadows = SharedBuffer(settings.shadows, settings.large_bytes // 4 // settings.partitions)
        return JoinBuffer(number, start, self.room, self._early_room, Shadows(shadows))

    def _is_held(self, partition: JoinBuffer) -> bool:
        """Whether feedback that was written inside windows may still come."""
        return (topics.FEEDBACK, partition.number) in self._unread

    def _ended_by(self, partition: JoinBuffer, now_us: int) -> int:
        """Return the time at which windows must have been over to end now."""
        if not self._is_held(partition):
            return now_us
        self._again_us = now_us + _AGAIN_US
        return max(partition.feedback_lag.complete_us, now_us - self.settings.window_us)

    def _next_end(self, partition: JoinBuffer) -> int | None:
        due_us = partition.wheel.next_due()
        return max(due_us, self._again_us) if due_us is not None and self._is_held(partition) else due_us

    def note_pause(self, now_us: int) -> None:
        """Remember until when predictions were left unread."""
        if topics.PREDICTIONS in self.paused:
            self._paused_us = now_us

    def _on_others(self, number: int, records: Iterable[Record], now_us: int, effects: Effects) -> None:
        """Take outputs of shadows, and configuration."""
        for record in records:
            try:
                if record.topic == topics.SHADOWS:
                    batch, partition = self._codec.decode(ModelPredictions, record.value), self.partition(number)
                    is_closed = partial(partition.ended.knows, now_s=now_us // SECOND_US)
                    until_us = now_us + self._longest_us
                    partition.shadows.keep(batch, is_closed, until_us, record.timestamp_us, is_late=is_late(record))
                    effects.append(Skip((record.position,), ""))
                else:
                    self.terms.on_record(record, now_us)
                    self._follow()
            except DecodeError as error:
                self.outcomes.undecodable(record, error, effects)

    def _follow(self) -> None:
        """Say to the index of contexts which applications there are."""
        known = self.configuration.applications
        self.keyed.follow([(its.application, self.terms.of(name).window_us) for name, its in known.items()])
        self.measured.follow()

    def _on_predictions(self, number: int, records: Iterable[Record], now_us: int, effects: Effects) -> None:
        """Let predictions of one partition wait for feedback, or join them with feedback that came first."""
        partition, begun = self.partition(number), list[str]()
        self.take_predictions(partition, records, now_us, effects, begun)
        self.outcomes.match(self.end_predictions(partition, begun, now_us), partition, now_us, effects)

    def take_predictions(
        self, partition: JoinBuffer, records: Iterable[Record], now_us: int, effects: Effects, begun: list[str]
    ) -> None:
        """Let predictions wait for feedback; `end_predictions` follows.

        Args:
            partition: whose they are.
            records: the predictions.
            now_us: the time.
            effects: what comes of them is added here.
            begun: ids of those that wait from now on are added here.
        """
        for record in records:
            try:
                self._take_prediction(partition, record, now_us, effects, begun)
            except DecodeError as error:
                self.outcomes.undecodable(record, error, effects)
            partition.predictions_lag.position = record.offset + 1

    def _take_prediction(
        self, partition: JoinBuffer, record: Record, now_us: int, effects: Effects, begun: list[str]
    ) -> None:
        """Let a prediction wait for feedback, or end it at once.

        Raises:
            DecodeError: it is none.
        """
        query_id, application = peek_texts(record.value, 2)
        longest_us, window_us = self.settings.window_us, self.terms.of(application).window_us
        # After an outage its feedback is still unread, too.
        end_us = max(record.timestamp_us + window_us, now_us + min(window_us, self.settings.early_us))
        partition.newest_us = record.timestamp_us
        if record.offset < partition.start:
            until_us = record.timestamp_us + window_us + longest_us
            partition.close(self._ended_before(record, query_id, application), query_id, until_us, seconds(now_us))
            self._keep_again(query_id, partition, now_us, effects)
            return
        if query_id in partition.predictions or partition.ended.knows(query_id, now_us // SECOND_US):
            if not self.outcomes.disown(record, query_id, application, partition, effects):
                effects.append(Skip((record.position,), "duplicate_prediction"))
                return
            how, until_us = Ending.AMBIGUOUS, end_us + 2 * longest_us
        elif record.timestamp_us <= self.observed_us and (known := self.observed.find(query_id)):
            how, until_us = Ending.JOINED if known == _WAS_JOINED else Ending.OVER, end_us + 2 * longest_us
            self._end_again(record, query_id, partition, how, effects)
        elif self._is_undecided(record, query_id, application, partition, effects):
            how, until_us = Ending.UNDECIDED, end_us
        elif partition.wait(query_id, application, record.offset, record.value or b""):
            partition.wheel.add(end_us, query_id)
            begun.append(query_id)
            return
        else:
            self.outcomes.turn_away(record, query_id, application, partition, effects)
            how, until_us = Ending.REFUSED, end_us + window_us
        partition.close(how, query_id, until_us, seconds(now_us))

    def _ended_before(self, record: Record, query_id: str, application: str) -> Ending:
        """Return how a prediction's wait ended before this joiner began, by the observations as far back as known.

        A prediction without one was given up at its window's end: too early, if that joiner's clock was ahead.
        """
        if record.timestamp_us <= self.observed_us and self.observed.find(query_id) == _WAS_JOINED:
            return Ending.JOINED
        if record.timestamp_us < self._observed_from_us or self._observed_left <= 0:
            return Ending.BEFORE
        return Ending.OVER if may_be_decided(record.value or b"", query_id, application) else Ending.UNDECIDED

    def _is_undecided(
        self, record: Record, query_id: str, application: str, partition: JoinBuffer, effects: Effects
    ) -> bool:
        """Tell whether nobody has decided a prediction, and end it then: its first bytes say so of most."""
        if may_be_decided(record.value or b"", query_id, application):
            return False
        return self.outcomes.dropped(record, query_id, partition, effects)

    def end_predictions(
        self, partition: JoinBuffer, begun: Iterable[str], now_us: int
    ) -> list[tuple[str, tuple[Record, ...]]]:
        """Return the feedback that came before predictions that have begun to wait: it waits no longer."""
        partition.read_us, early = now_us, partition.early
        matched = [(query_id, partition.pop_early(query_id)) for query_id in begun if early and query_id in early]
        partition.tidy()
        return matched

    def _keep_again(self, query_id: str, partition: JoinBuffer, now_us: int, effects: Effects) -> None:
        """Take feedback anew that was read before its prediction, which was complete already."""
        for told in partition.pop_early(query_id):
            self.take_other_feedback(told, query_id, partition, now_us, effects)

    def _end_again(self, record: Record, query_id: str, partition: JoinBuffer, how: Ending, effects: Effects) -> None:
        """End a prediction that has an observation already, and the feedback that has waited for it."""
        effects.append(Skip((record.position,), "duplicate_prediction"))
        for told in partition.pop_early(query_id):
            self._on_feedback_afterwards(told, query_id, how, 0, effects)

    def _on_feedback(self, number: int, records: Iterable[Record], now_us: int, effects: Effects) -> None:
        """Join feedback of one partition with the predictions that wait for it."""
        partition, matches = self.partition(number), dict[str, Match]()
        self.take_feedback(partition, records, now_us, effects, matches)
        self.outcomes.join(matches, partition, now_us, effects)

    def take_feedback(
        self,
        partition: JoinBuffer,
        records: Iterable[Record],
        now_us: int,
        effects: Effects,
        matches: dict[str, Match],
    ) -> None:
        """Take feedback; what fits a prediction is joined as soon as enough of it is there, and the rest is left.

        Args:
            partition: whose it is.
            records: the feedback.
            now_us: the time.
            effects: what comes of it is added here.
            matches: what fits a prediction and is still to be joined, by query.
        """
        for record in records:
            partition.feedback_lag.position = record.offset + 1
            try:
                feedback = self._codec.decode(Feedback, record.value)
            except DecodeError as error:
                if not self._take_keyed_or_metric(record, partition, now_us, effects):
                    self.outcomes.undecodable(record, error, effects)
                continue
            query_id = feedback.query_id
            if query_id in matches:  # what comes first counts first
                self.outcomes.join(matches, partition, now_us, effects)
            stored = partition.predictions.get(query_id)
            if stored is None:
                self.take_other_feedback(record, query_id, partition, now_us, effects)
                continue
            matches[query_id] = Match(query_id, record, feedback, stored)
            if len(matches) == TOGETHER:
                self.outcomes.join(matches, partition, now_us, effects)

    def _take_keyed_or_metric(self, record: Record, partition: JoinBuffer, now_us: int, effects: Effects) -> bool:
        """Take feedback that names a context or a metric, or may be corrected; False if it is none of these."""
        with suppress(DecodeError):
            self.measured.take(record, self._codec.decode(MetricFeedback, record.value), partition, now_us, effects)
            return True
        try:
            told = self._codec.decode(KeyedFeedback, record.value)
        except DecodeError:
            return False
        if told.revises:
            self.revised.hold(record, told, partition, now_us, effects)
        else:
            self.keyed.take(record, told, effects)
        due = (self._keyed_us, self.keyed.next_due(now_us), self.revised.next_due())
        self._keyed_us = min((us for us in due if us is not None), default=None)
        return True

    def take_other_feedback(
        self, record: Record, query_id: str, partition: JoinBuffer, now_us: int, effects: Effects
    ) -> None:
        """Take feedback without a waiting prediction: its wait has ended, or it is still to come."""
        found = partition.ended.find(query_id, now_us)
        if (found is None or found[0] is Ending.BEFORE) and self._was_joined(record, query_id):
            effects.append(Skip((record.position,), "duplicate_feedback"))
            return
        if found is not None:
            self._on_feedback_afterwards(record, query_id, *found, effects)
            return
        # From now on, not from when it was written: its prediction may be read a moment later.
        kept = partition.keep(record, query_id, now_us + self.settings.early_us)
        if kept is EarlyFeedback.DUPLICATE:
            effects.append(Skip((record.position,), "duplicate_feedback"))
        elif kept is EarlyFeedback.NO_ROOM:
            self.outcomes.turn_feedback_away(record, query_id, effects)

    def _was_joined(self, record: Record, query_id: str) -> bool:
        """Tell whether a query had feedback before this joiner began: what is read again has taught already."""
        return record.timestamp_us <= self.observed_us and self.observed.find(query_id) == _WAS_JOINED

    def _on_feedback_afterwards(
        self, record: Record, query_id: str, how: Ending, until_us: int, effects: Effects
    ) -> None:
        """Take feedback on a prediction that waits no longer."""
        if how is Ending.BEFORE and record.timestamp_us > until_us - self.settings.window_us:
            how = Ending.OVER  # however the prediction's wait ended, this feedback comes after its window
        if how is Ending.OVER:
            self.outcomes.refuse(record, "late", LATE, effects)
        elif how is Ending.REFUSED:
            self.outcomes.refuse_unkept(record, query_id, effects)
        elif how is Ending.AMBIGUOUS:
            self.outcomes.refuse(record, "ambiguous_id", AMBIGUOUS, effects)
        else:
            reason = "nothing_to_learn" if how is Ending.UNDECIDED else "duplicate_feedback"
            effects.append(Skip((record.position,), reason))
