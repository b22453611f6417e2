"""Learn: observation → new policy state. The state is a deterministic fold over the log, exactly once.

The first observation with a query id inside the window is applied; its copies are skipped. States and offset are
written in one compare-and-set. So a write by a former owner is refused, and a
store that lost its last second rolls both back.
"""

from __future__ import annotations

from collections import ChainMap, Counter, deque
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from sys import maxsize
from typing import TYPE_CHECKING

from policies.errors import PolicyError
from schemas.errors import DecodeError
from schemas.records import Observation, Observations
from streams.operators.cold_start import states_of
from streams.operators.contract import (
    NONE_UNREAD,
    DeadLetter,
    FetchStates,
    Needs,
    Operator,
    Position,
    ReadBack,
    StateKey,
    WriteStates,
)
from streams.operators.ids import SeenIds
from streams.operators.learn.bounds import LessonCounts, Reach
from streams.operators.learn.fold import Folding
from streams.operators.learn.states import KnownStates
from streams.operators.promises import is_held
from streams.operators.statistics import Counters, Losses

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.contract import Effects, Record, Span, Unread

    # With the observations in the record; None = it becomes a dead letter, which completes it.
    _Queued = tuple[Record, Sequence[Observation] | None]

PARTITION = itemgetter(1)  # of a record
# How soon a store that came back with older data is noticed without new observations; one round trip a partition.
CONFIRM_US = 5_000_000
# Numbers in the states of one write, about a megabyte as they are stored: large states go in several steps.
WRITE_NUMBERS = 125_000


def _needed(seen: Observation) -> Sequence[str]:
    """Return the states of a context's observation; of no policy's only its own: it is a dead letter."""
    try:
        return states_of(seen)
    except PolicyError:
        return (seen.decision.state,)


def gather(names: dict[str, None], observations: Sequence[Observation]) -> None:
    """Add the states without which observations cannot be folded, in order; one of no policy is a dead letter."""
    for seen in observations:
        names[seen.decision.state] = None
        if seen.context is not None:
            for name in _needed(seen):
                names[name] = None


def _names(records: Iterable[_Queued]) -> dict[str, None]:
    """Return the states without which records cannot be folded, in order."""
    names: dict[str, None] = {}
    for _, observations in records:
        gather(names, observations or ())
    return names


@dataclass(slots=True)
class LearnerPartition:
    """What the learner keeps of one partition of the log."""

    start: int  # first offset whose observation is not in the stored states
    stored: int | None  # what the store's offset will be once the writes asked for are done; None = nothing stored yet
    seen: SeenIds
    counts: LessonCounts = field(default_factory=LessonCounts)
    checked_us: int = 0  # when the store was last asked to confirm the offset
    queue: deque[_Queued] = field(default_factory=deque)
    queued: int = 0  # observations in it
    needed: dict[str, None] = field(default_factory=dict)  # states without which the queue cannot be folded, in order
    fetching: dict[str, None] = field(default_factory=dict)

    def note_seen(self, record: Record, observations: Sequence[Observation]) -> None:
        """Remember the ids of a record that has been applied before, and count its lessons."""
        for seen in observations:
            self.counts.reach(seen, record.timestamp_us)
            self.seen.add(seen.query_id, record.timestamp_us)


class Learner(Operator):
    """The kernel of the `learner` role: the only writer of its partitions' states.

    Attributes:
        window_us: as above.
        states: that are known.
        counters: of what was not applied.
        applied: observations, by application.
        losses: what they cost.
        partitions: that are its own.

    Args:
        codec: decodes observations.
        window_us: how long a query id is remembered; the joiner's `memory_us`.
        capacity: policy states cached, shared by its partitions.
        capacity_bytes: that they may take, estimated.
    """

    def __init__(
        self, codec: Codec, window_us: int = 1_380_000_000, capacity: int = 100_000, capacity_bytes: int = maxsize
    ) -> None:
        self._codec = codec
        self.window_us = window_us
        self._read_back = ReadBack(window_us + 60_000_000)
        self.states = KnownStates(capacity, capacity_bytes)
        self.counters = Counters()
        self.applied: Counter[str] = Counter()  # by application
        self.losses = Losses()
        self.partitions: dict[int, LearnerPartition] = {}

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Confirm the offsets of idle partitions: a store that lost its last writes is noticed without a new record."""
        effects: Effects = []
        for number, partition in self.partitions.items():
            if partition.stored is not None and partition.checked_us + CONFIRM_US <= now_us:
                partition.checked_us = now_us
                effects.append(WriteStates(number, partition.stored, partition.stored, {}, ()))
        return effects

    def next_deadline(self) -> int | None:
        """Return when the next offset is to be confirmed (us)."""
        checked = (p.checked_us for p in self.partitions.values() if p.stored is not None)
        return min((time_us + CONFIRM_US for time_us in checked), default=None)

    @property
    def held(self) -> int:
        """Observations that wait for their states: one record may hold many."""
        return sum(partition.queued for partition in self.partitions.values())

    def needs(self) -> Needs:
        """Read back the window of ids and a minute for brokers whose clocks disagree."""
        return Needs(self.next_deadline(), self.held, read_back=self._read_back)

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take observations, in order within each partition."""
        effects: Effects = []
        touched: dict[int, None] = {}
        for number, run in groupby(records, key=PARTITION):
            if self.enqueue(number, run, effects):
                touched[number] = None
        for number in touched:
            self.advance(number, now_us, effects)
        self.trim()
        return effects

    def advance(self, number: int, now_us: int, effects: Effects) -> None:
        """Fold what is queued, or ask for the states that it needs."""
        self.partitions[number].checked_us = now_us
        self._advance(number, effects)

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Take states that were missing; observations that waited for them are folded."""
        effects: Effects = []
        for key, state in states.items():
            partition = self.partitions.get(key.partition)
            if partition is not None and key.name in partition.fetching:
                del partition.fetching[key.name]
                self.states.put(key.partition, {key.name: state})
        for number in {key.partition for key in states}:
            partition = self.partitions.get(number)
            if partition is not None:
                if is_read := not partition.fetching:  # some may have been dropped again meanwhile
                    partition.needed = _names(partition.queue)
                self._advance(number, effects, is_read=is_read)
        self.trim()
        return effects

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Start from what the store holds; ids of one window follow from before `starts`.

        What was folded on a state that the store does not have is forgotten.
        """
        for number, start in starts.items():
            self.states.forget(number)
            if start is None:
                self.partitions.pop(number, None)
            else:
                self.partitions[number] = LearnerPartition(start, start or None, SeenIds(self.window_us))

    def statistics(self) -> Mapping[str, float]:
        """Return how many observations were applied and skipped, and what they cost, by application."""
        applied = {("applied_total", "application", name): count for name, count in self.applied.items()}
        return {
            **Counters(applied).rendered(),
            **self.counters.rendered(),
            **self.losses.rendered(),
            "states_cached": float(len(self.states)),
            "states_bytes": float(self.states.size),
            "observations_waiting": float(self.held),
        }

    def enqueue(self, number: int, records: Iterable[Record], effects: Effects) -> bool:
        """Queue a run of one partition's records; tell whether any is to be folded."""
        partition = self.partitions.get(number)
        if partition is None:
            return False
        before = len(partition.queue)
        for record in records:
            is_new = record.offset >= partition.start
            try:
                observations = self._codec.decode(Observations, record.value).items
            except DecodeError as error:
                self.note_undecodable(record, error, effects if is_new else [])
                if is_new:
                    partition.queue.append((record, None))  # the stored offset passes it, too: it is not read again
                continue
            if not is_new:
                partition.note_seen(record, observations)
                continue
            partition.queue.append((record, observations))
            partition.queued += len(observations)
            gather(partition.needed, observations)
        return len(partition.queue) > before

    def note_undecodable(self, record: Record, error: DecodeError, effects: Effects) -> None:
        """Count a record that holds no observations, and write it as a dead letter."""
        self.counters["undecodable_total", "topic", record.topic] += 1
        effects.append(DeadLetter(record, error.cause, str(error)))

    def _advance(self, number: int, effects: Effects, *, is_read: bool = False) -> None:
        """Fold the queue and ask for one write, or ask for missing states first.

        The rest of a queue is waited for if there is room: one write takes less time than many. If all that was asked
        for is read, and some had to be dropped meanwhile, its first records are folded all the same.
        """
        partition = self.partitions[number]
        if not partition.queue:
            return
        if not partition.fetching:
            states = self.states.known(number, partition.needed)
            if len(states) == len(partition.needed):
                self._fold(number, partition, partition.queue, states, effects)
                partition.queue.clear()
                partition.needed.clear()
                partition.queued = 0
                return
            partition.fetching = dict.fromkeys([name for name in partition.needed if name not in states])
            # In the order of the queue: what has been read can be folded, and makes room, before the rest is read.
            effects.append(FetchStates(tuple(StateKey(number, name) for name in partition.fetching)))
        if is_read or self.states.is_large:
            self._fold_head(number, partition, effects)

    def _fold_head(self, number: int, partition: LearnerPartition, effects: Effects) -> None:
        """Fold the first records of the queue, as far as their states are there."""
        states: dict[str, PolicyState | None] = {}
        head: list[_Queued] = []
        for queued in partition.queue:
            names = _names([queued])
            found = self.states.known(number, names)
            if len(found) < len(names):
                break
            states |= found
            head.append(queued)
        if head:
            self._fold(number, partition, head, states, effects)
        for _, observations in head:
            partition.queue.popleft()
            partition.queued -= len(observations or ())

    def _fold(
        self,
        number: int,
        partition: LearnerPartition,
        records: Sequence[_Queued],
        states: dict[str, PolicyState | None],
        effects: Effects,
    ) -> None:
        """Fold records on the states that they need."""
        run = FoldRun(self, number, partition, states)
        for record, observations in records:
            if observations is not None:
                run.take(record, observations, effects)
        run.end(records[-1][0].offset + 1, effects)

    def put(self, number: int, writes: Sequence[WriteStates], effects: Effects) -> None:
        """Remember what has come of a run, and ask for it to be written."""
        for write in writes:
            self.states.put(number, write.states)
        effects += writes

    def count(self, applied: Sequence[Observation]) -> None:
        """Count observations that were applied, and what they cost."""
        self.applied.update([seen.application for seen in applied])
        self._judge(applied)
        self.losses.add(applied)

    def _judge(self, applied: Iterable[Observation]) -> None:
        """Count the sets of labels and the intervals that held the truth, and those that missed it."""
        for seen in applied:
            if (seen.label_set is not None or seen.interval is not None) and (held := is_held(seen)) is not None:
                name = "label_sets_judged_total" if seen.interval is None else "intervals_judged_total"
                outcome = "held" if held else "missed"
                self.counters[name, "application", seen.application, "outcome", outcome] += 1

    def trim(self) -> None:
        """Keep the bounds, but for what queues wait for.

        If that alone takes too many bytes, only what is folded next stays: what the first record of each queue needs.
        """
        self.states.trim(self._waited_for)

    def _waited_for(self) -> Container[str]:
        waiting = [partition for partition in self.partitions.values() if partition.queue]
        if not self.states.is_large:
            return ChainMap(*(partition.needed for partition in waiting))
        return ChainMap(*(_names([partition.queue[0]]) for partition in waiting))


class FoldRun:
    """Folds records of one partition, in order; those with impossible observations become dead letters.

    Args:
        learner: whose they are.
        number: of the partition.
        partition: what is kept of it.
        states: that they need, by name.

    Attributes:
        folding: the states that are to be written next.
        completes: the records that are complete once they are.
        spans: more of them.
    """

    __slots__ = (
        "_applied",
        "_faults",
        "_learner",
        "_number",
        "_partition",
        "_states",
        "_writes",
        "completes",
        "folding",
        "spans",
    )

    def __init__(
        self, learner: Learner, number: int, partition: LearnerPartition, states: dict[str, PolicyState | None]
    ) -> None:
        self._learner = learner
        self._number = number
        self._partition = partition
        self._states = states
        self._faults: list[str] = []  # of the record that is taken
        self._applied: list[Observation] = []
        self._writes: list[WriteStates] = []
        self.folding = Folding(states, learner.window_us)
        self.completes: list[Position] = []
        self.spans: list[Span] = []

    def take(self, record: Record, observations: Sequence[Observation], effects: Effects) -> None:
        """Fold a record's observations."""
        for seen in observations:
            reach = self._partition.counts.reach(seen, record.timestamp_us)
            if self._partition.seen.add(seen.query_id, record.timestamp_us):
                self.fold(seen, record.timestamp_us, reach)
            else:
                self._learner.counters["duplicate_observations_total", "application", seen.application] += 1
        self.end_record(record, effects)

    def fold(self, seen: Observation, timestamp_us: int, reach: Reach = Reach.ALL) -> None:
        """Fold one that is the first of its id; its record's timestamp tells when, and `reach` what it teaches."""
        try:
            self.folding.take(seen, timestamp_us, reach)
        except PolicyError as error:
            self._faults.append(f"{seen.query_id}: {error}")
            return
        if reach is not Reach.ALL:
            self._learner.counters["bounded_lessons_total", "application", seen.application, "by", reach.value] += 1
        if reach is not Reach.NOTHING:
            self._applied.append(seen)

    def end_record(self, record: Record, effects: Effects) -> None:
        """Say what has become of a record, whose observations have been taken."""
        if self._faults:
            effects.append(DeadLetter(record, "impossible_decision", "; ".join(self._faults)))
            self._faults = []
        else:
            self.completes.append(record.position)
        if self.folding.numbers >= WRITE_NUMBERS:
            self.write(record.offset + 1)

    def write(self, offset: int) -> None:
        """Have the states written that were folded so far; `offset` is the next one to apply."""
        self.folding.settle()
        stored, changed = self._partition.stored, self.folding.changed
        complete = tuple(self.completes), tuple(self.spans)
        self._writes.append(WriteStates(self._number, stored, offset, changed, *complete))
        self._partition.stored = offset
        self.folding = Folding(self._states, self._learner.window_us)
        self.completes, self.spans = [], []

    def flush(self) -> None:
        """Count what was applied so far."""
        self._learner.count(self._applied)
        self._applied.clear()

    def end(self, offset: int, effects: Effects) -> None:
        """Have the rest written; `offset` is the one behind the last record."""
        if offset != self._partition.stored:
            self.write(offset)
        self.flush()
        self._learner.put(self._number, self._writes, effects)
