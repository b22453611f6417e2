"""Feedback that may be corrected: it is held until the window of its query is nearly over, and the last record counts.

    told: 1 ─▶ held ─▶ told: 0 ─▶ held in its place ─▶ two seconds before the window's end ─▶ Feedback(0) ─▶ feedback

What counts is written to `feedback` like any other, so the joiner, replay and evaluation read one record, and the query
is learnt about once. A record that tells nothing takes back what was told before. Nothing can be taken back once it has
been learnt: policies fold observations one after the other, and no fold can be undone.

    feedback that may be corrected         outcome
    the first on a query                   held
    a later one                            held in its place; the one before is skipped, counted as `replaced`
    that tells nothing, as the last one    skipped, counted as `withdrawn`
    on a query that nobody has predicted   becomes feedback after `early_us`, and `unmatched`
    of who may teach another application   held beside it; becomes feedback, and `other_application`
    after the window                       becomes feedback, and `duplicate_feedback` or `late`
    without room to be held                dead letter, cause `over_limit`
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Prediction
from schemas.told import by_id
from streams.operators.contract import DeadLetter, Emit, Skip
from streams.operators.join.buffer import feedback_bytes, value_of
from streams.operators.statistics import Counters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.codec import Codec
    from schemas.records import KeyedFeedback
    from streams.operators.contract import Effects, Record
    from streams.operators.join.buffer import JoinBuffer
    from streams.operators.join.shared_buffer import SharedBuffer
    from streams.operators.join.terms import ApplicationTerms

# So long before the window's end, or a quarter of a window that is shorter, feedback is written.
_BEFORE_US: Final = 2_000_000
_AGAIN_US: Final = 1_000_000  # how often it is looked for a prediction that has not been read
_AT_ONCE: Final = 1_000  # looked at in one call; the rest is due at once
# A window stays open for feedback that has been written, at most so long.
_OPEN_US: Final = 10_000_000
_NO_ROOM: Final = "too much feedback is held that may be corrected: make the window shorter, or `replaces` false"


class _HeldFeedback(NamedTuple):
    record: Record
    told: KeyedFeedback
    since_us: int  # when the first record about the query was read


class RevisedFeedback:
    """Holds the last feedback on each query, by partition and id; empty where nobody corrects any.

    Who may teach one application replaces nothing that was told by who may teach another one.

    Args:
        codec: of the deployment.
        terms: the windows of applications.
        early_us: how long feedback waits for a prediction that has not been read.
        room: of feedback that is held, by partition.
    """

    def __init__(self, codec: Codec, terms: ApplicationTerms, early_us: int, room: SharedBuffer) -> None:
        self._codec = codec
        self._terms = terms
        self._early_us = early_us
        self._room = room
        self._held: dict[tuple[int, str], dict[str, _HeldFeedback]] = {}  # then by whose feedback it may be
        self._due: list[tuple[int, int, str]] = []  # a heap: when to look, and at which
        self._written: dict[tuple[int, str], int] = {}  # until when their windows stay open, in order
        self._counters = Counters()

    def hold(self, record: Record, told: KeyedFeedback, partition: JoinBuffer, now_us: int, effects: Effects) -> None:
        """Hold feedback in the place of what was told before."""
        place = (record.partition, told.context)
        its = self._held.setdefault(place, {})
        before, is_first = its.get(told.application), not its
        if before is not None:
            self._room.give_back(record.partition, feedback_bytes(before.record))
        if not self._room.take(record.partition, feedback_bytes(record)):
            self._counters["over_limit_total", "of", "revised"] += 1
            effects.append(DeadLetter(record, "over_limit", _NO_ROOM))
            if before is None:
                if is_first:
                    del self._held[place]
                return
            record, told = before.record, before.told  # what was told before counts
            self._room.take(record.partition, feedback_bytes(record))
        elif before is not None:
            effects.append(Skip((before.record.position,), "replaced"))
        since_us = now_us if before is None else before.since_us
        held = its[told.application] = _HeldFeedback(record, told, since_us)
        if is_first:
            heapq.heappush(self._due, (self._due_us(held, partition, now_us), *place))

    def release(
        self, partitions: Mapping[int, JoinBuffer], read_us: Mapping[int, int], now_us: int, effects: Effects
    ) -> None:
        """Write the feedback on queries whose windows are nearly over.

        Args:
            partitions: memories of the joiner.
            read_us: by partition: feedback that was written until then has been read. What is unread may correct.
            now_us: the time.
            effects: what comes of it is added here.
        """
        for _ in range(_AT_ONCE):
            if not self._due or self._due[0][0] > now_us:
                break
            _, number, query_id = heapq.heappop(self._due)
            its, partition = self._held.get((number, query_id)), partitions.get(number)
            if its is None or partition is None:
                continue
            due_us = self._due_us(next(iter(its.values())), partition, now_us)
            if due_us > read_us[number]:
                again_us = due_us if due_us > now_us else now_us + _AGAIN_US
                heapq.heappush(self._due, (again_us, number, query_id))
                continue
            self._write(number, query_id, now_us, effects)
        while self._written and self._written[first := next(iter(self._written))] <= now_us:
            del self._written[first]

    def _write(self, number: int, query_id: str, now_us: int, effects: Effects) -> None:
        """Write what is held on a query, the last record first: that counts where several may."""
        self._written.pop((number, query_id), None)
        held = self._held.pop((number, query_id)).values()
        for one in sorted(held, key=lambda one: one.record.offset, reverse=True):
            self._room.give_back(number, feedback_bytes(one.record))
            outcome = self._outcome(one)
            effects.append(outcome)
            if isinstance(outcome, Emit):
                self._written[number, query_id] = now_us + _OPEN_US

    def keeps_open(self, number: int, query_id: str) -> bool:
        """Tell whether a window must not end yet: feedback on it is held, or on its way."""
        place = (number, query_id)
        return place in self._held or place in self._written

    def forget_partitions(self, numbers: Iterable[int]) -> None:
        """Drop what is held of partitions that are another's now: it reads it again."""
        gone = {*numbers}
        for place in [place for place in self._held if place[0] in gone]:
            for one in self._held.pop(place).values():
                self._room.give_back(place[0], feedback_bytes(one.record))
        self._written = {place: until_us for place, until_us in self._written.items() if place[0] not in gone}
        self._due = [due for due in self._due if due[1] not in gone]
        heapq.heapify(self._due)

    def next_due(self) -> int | None:
        """Return when to look again; None where nothing is held."""
        return self._due[0][0] if self._due else None

    def statistics(self) -> Mapping[str, float]:
        """Return how much is held; nothing where nobody corrects any."""
        counted, count = self._counters.rendered(), sum(map(len, self._held.values()))
        return {**counted, "revised_held": float(count)} if count or counted else {}

    def _outcome(self, held: _HeldFeedback) -> Emit | Skip:
        record, told = held.record, held.told
        if told.label is None and told.loss is None and not told.places:
            self._counters["revised_total", "outcome", "withdrawn"] += 1
            return Skip((record.position,), "withdrawn")
        self._counters["revised_total", "outcome", "told"] += 1
        made = self._codec.encode(by_id(told, told.context, told.sent_us or record.timestamp_us))
        return Emit(topics.FEEDBACK, record.partition, record.key, made, (record.position,))

    def _due_us(self, held: _HeldFeedback, partition: JoinBuffer, now_us: int) -> int:
        """Return when to write what is held, or to look again; not later than now where its query waits no longer."""
        query_id = held.told.context
        stored = partition.predictions.get(query_id)
        if stored is None:
            if partition.ended.find(query_id, now_us) is not None:
                return now_us
            return min(now_us + _AGAIN_US, held.since_us + self._early_us)
        try:
            answered = self._codec.decode(Prediction, value_of(stored))
        except DecodeError:  # the joiner says so where it ends
            return now_us
        window_us = self._terms.of(answered.application).window_us  # of the query's, whatever the mapping names
        return answered.answered_us + window_us - min(_BEFORE_US, window_us // 4)
