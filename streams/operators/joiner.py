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

What a shadow of a model has answered waits for its query's feedback, too, as far as there is room. It changes no
observation: where a model runs in several versions, the joiner's reports say what each of them costs.

There is a bound on what waits. At it, that topic is left unread until something has been joined or its window has
ended; nothing is given up for it.

After a crash an observation may be made again, or a default loss after the feedback had been joined: the learner
remembers ids for `JoinerSettings.memory_us` and applies the first. A window that ended longer ago than that, during an
outage, teaches no default loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_id, peek_texts
from schemas.records import ModelPredictions
from streams.operators import shadows
from streams.operators.applications import Configuration
from streams.operators.closing import Closing, Told
from streams.operators.contract import Operator, Skip
from streams.operators.ids import SECOND_US, seconds
from streams.operators.late import is_late
from streams.operators.waiting import Waiting, packed
from streams.operators.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Effects, Record

_SOURCE = itemgetter(0, 1)  # of a record: topic, partition
_new = tuple.__new__  # half the cost of a named tuple's constructor
_UNMATCHED = "no prediction with this query id was seen, or its window ended long ago"
# Windows ended in one call, at 15 us each: records and acknowledgements get their turn in between.
_AT_ONCE = 2_000


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


class Joiner(Operator):
    """The kernel of the `joiner` role."""

    def __init__(self, codec: Codec, settings: JoinerSettings) -> None:
        self._codec = codec
        self._settings = settings
        configuration = Configuration(codec)
        self._windows = Windows(configuration, settings.window_us, settings.early_us, settings.memory_us)
        self._closing = Closing(codec, configuration, self._windows, settings.partitions, settings.memory_us)
        self._partitions: dict[int, Waiting] = {}
        self._forgotten = 0  # queries with outputs of shadows, for which there was no room
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
        if sum(len(p.predictions) for p in self._partitions.values()) >= self._settings.predictions:
            found.add(topics.PREDICTIONS)
        if sum(len(p.early) for p in self._partitions.values()) >= self._settings.feedback:
            found.add(topics.FEEDBACK)
        return frozenset(found)

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take predictions, feedback and configuration."""
        effects: Effects = []
        for (topic, number), run in groupby(records, key=_SOURCE):
            if topic == topics.PREDICTIONS:
                self._on_predictions(number, run, now_us, effects)
            elif topic == topics.FEEDBACK:
                self._on_feedback(number, run, now_us, effects)
            else:
                self._on_others(number, run, now_us, effects)
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
                for record in partition.given_up(query_id, now_us, self._settings.early_us, self._paused_us):
                    self._closing.refuse(record, "unmatched", _UNMATCHED, effects)
            for query_id in ended:
                self._closing.expire(number, partition, query_id, now_us, effects)
        self._windows.forget(now_us)
        return effects

    def next_deadline(self) -> int | None:
        """Return when the next window ends, rounded up to a second (us)."""
        ends = (wheel.next_due() for p in self._partitions.values() for wheel in (p.wheel, p.early_wheel))
        return min((end for end in ends if end is not None), default=None)

    def on_assigned(self, starts: Mapping[int, int]) -> None:
        """Start empty; what waits follows again from `starts`, what is closed from before."""
        for number, start in starts.items():
            self._partitions[number] = Waiting(start)

    def on_revoked(self, partitions: Sequence[int]) -> None:
        """Forget these partitions."""
        for number in partitions:
            self._partitions.pop(number, None)

    def statistics(self) -> Mapping[str, float]:
        """Return how many were joined, expired and refused, and how many wait."""
        return {
            **self._closing.rendered(),
            "shadows_forgotten_total": float(self._forgotten),
            "shadows_waiting": float(sum(len(p.shadows) for p in self._partitions.values())),
            "predictions_waiting": float(sum(len(p.predictions) for p in self._partitions.values())),
            "feedback_waiting": float(sum(len(p.early) for p in self._partitions.values())),
        }

    def _partition(self, number: int) -> Waiting:
        """Return what a partition remembers; its records may come without an assignment in tests of one kernel."""
        found = self._partitions.get(number)
        if found is None:
            found = self._partitions[number] = Waiting(0)
        return found

    def _note_pause(self, now_us: int) -> None:
        if topics.PREDICTIONS in self.paused:
            self._paused_us = now_us

    def _on_others(self, number: int, records: Iterable[Record], now_us: int, effects: Effects) -> None:
        """Take what shadows answered, and configuration."""
        for record in records:
            try:
                if record.topic == topics.SHADOWS:
                    batch, partition = self._codec.decode(ModelPredictions, record.value), self._partition(number)
                    kept, bound = partition.shadows, self._settings.shadows
                    is_closed = partial(partition.is_closed, now_us=now_us)
                    self._forgotten += shadows.keep(kept, batch, is_closed, bound, is_late=is_late(record))
                    effects.append(Skip((record.position,), ""))
                else:
                    self._windows.on_record(record, now_us)
            except DecodeError as error:
                self._closing.undecodable(record, error, effects)

    def _on_predictions(self, number: int, records: Iterable[Record], now_us: int, effects: Effects) -> None:
        """Let predictions of one partition wait for feedback, or join them with what has come before them."""
        partition = self._partition(number)
        waiting, early, start = partition.predictions, partition.early, partition.start
        joined, expired, ends = partition.joined.find, partition.expired.find, partition.wheel.add
        now_s, oldest_s, newest_us = now_us // SECOND_US, seconds(now_us), partition.newest_us
        matched: list[tuple[str, tuple[Record, ...]]] = []
        known, window_us, soonest_us = None, 0, 0
        for record in records:
            _, _, offset, stamp_us, _, value, _ = record
            try:
                query_id, application = peek_texts(value, 2)
            except DecodeError as error:
                self._closing.undecodable(record, error, effects)
                continue
            if application != known:
                known, window_us = application, self._windows.of(application).window_us
                # After an outage its feedback is still to be read, too.
                soonest_us = now_us + min(window_us, self._settings.early_us)
            newest_us, end_us = stamp_us, max(stamp_us + window_us, soonest_us)
            if offset < start:
                partition.join(query_id, end_us, oldest_s)
            elif query_id in waiting or joined(query_id) > now_s or expired(query_id) > now_s:
                effects.append(Skip((record.position,), "duplicate_prediction"))
            else:
                assert value is not None
                waiting[query_id] = packed(offset, value)
                ends(end_us, query_id)
                if query_id in early:
                    matched.append((query_id, early.pop(query_id)))
        partition.read_us, partition.newest_us = now_us, newest_us
        partition.tidy()
        self._closing.match(matched, partition, now_us, effects)

    def _on_feedback(self, number: int, records: Iterable[Record], now_us: int, effects: Effects) -> None:
        """Join feedback of one partition with the predictions that wait for it."""
        partition = self._partition(number)
        waiting = partition.predictions
        told: dict[str, Told] = {}
        for record in records:
            try:
                query_id = peek_id(record.value)
            except DecodeError as error:
                self._closing.undecodable(record, error, effects)
                continue
            if query_id in told:  # what comes first counts first
                self._closing.join([*told.values()], partition, now_us, effects)
                told.clear()
            stored = waiting.get(query_id)
            if stored is not None:
                told[query_id] = _new(Told, (query_id, record, stored))
            elif partition.is_joined(query_id, now_us):
                effects.append(Skip((record.position,), "duplicate_feedback"))
            elif partition.is_closed(query_id, now_us):
                self._closing.refuse(record, "late", "the window had ended before this feedback came", effects)
            # From now on, not from when it was written: its prediction may be read a moment later.
            elif not partition.keep(record, query_id, now_us + self._settings.early_us):
                effects.append(Skip((record.position,), "duplicate_feedback"))
        self._closing.join([*told.values()], partition, now_us, effects)
