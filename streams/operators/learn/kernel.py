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
from schemas.records import Observation, Observations, new_tuple
from streams.operators.cold_start import states_of
from streams.operators.contract import (
    NONE_UNREAD,
    DeadLetter,
    FetchStates,
    Needs,
    Operator,
    Position,
    StateKey,
    WriteStates,
)
from streams.operators.ids import SeenIds
from streams.operators.label_sets import holds
from streams.operators.learn.fold import Folding
from streams.operators.learn.states import KnownStates
from streams.operators.statistics import Counters, Losses

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.contract import Effects, Record, Unread

    # With the observations in the record; None = it becomes a dead letter, which completes it.
    _Queued = tuple[Record, Sequence[Observation] | None]

_PARTITION = itemgetter(1)  # of a record
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


def _gather(names: dict[str, None], observations: Sequence[Observation]) -> None:
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
        _gather(names, observations or ())
    return names


@dataclass(slots=True)
class _Partition:
    """What the learner keeps of one partition of the log."""

    start: int  # first offset whose observation is not in the stored states
    stored: int | None  # what the store's offset will be once the writes asked for are done; None = nothing stored yet
    seen: SeenIds
    checked_us: int = 0  # when the store was last asked to confirm the offset
    queue: deque[_Queued] = field(default_factory=deque)
    queued: int = 0  # observations in it
    needed: dict[str, None] = field(default_factory=dict)  # states without which the queue cannot be folded, in order
    fetching: dict[str, None] = field(default_factory=dict)


class Learner(Operator):
    """The kernel of the `learner` role: the only writer of its partitions' states.

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
        self._window_us = window_us
        self._states = KnownStates(capacity, capacity_bytes)
        self._counters = Counters()
        self._applied: Counter[str] = Counter()  # by application
        self._losses = Losses()
        self._partitions: dict[int, _Partition] = {}

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Confirm the offsets of idle partitions: a store that lost its last writes is noticed without a new record."""
        effects: Effects = []
        for number, partition in self._partitions.items():
            if partition.stored is not None and partition.checked_us + CONFIRM_US <= now_us:
                partition.checked_us = now_us
                effects.append(WriteStates(number, partition.stored, partition.stored, {}, ()))
        return effects

    def next_deadline(self) -> int | None:
        """Return when the next offset is to be confirmed (us)."""
        checked = (p.checked_us for p in self._partitions.values() if p.stored is not None)
        return min((time_us + CONFIRM_US for time_us in checked), default=None)

    @property
    def held(self) -> int:
        """Observations that wait for their states: one record may hold many."""
        return sum(partition.queued for partition in self._partitions.values())

    def needs(self) -> Needs:
        """Read back the window of ids and a minute for brokers whose clocks disagree."""
        return Needs(self.next_deadline(), self.held, read_back_us=self._window_us + 60_000_000)

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take observations, in order within each partition."""
        effects: Effects = []
        touched: dict[int, None] = {}
        for number, run in groupby(records, key=_PARTITION):
            partition = self._partitions.get(number)
            if partition is not None and self._queued(partition, run, effects):
                touched[number] = None
        for number in touched:
            self._partitions[number].checked_us = now_us
            self._advance(number, effects)
        self._trim()
        return effects

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Take states that were missing; observations that waited for them are folded."""
        effects: Effects = []
        for key, state in states.items():
            partition = self._partitions.get(key.partition)
            if partition is not None and key.name in partition.fetching:
                del partition.fetching[key.name]
                self._states.put(key.partition, {key.name: state})
        for number in {key.partition for key in states}:
            partition = self._partitions.get(number)
            if partition is not None:
                if is_read := not partition.fetching:  # some may have been dropped again meanwhile
                    partition.needed = _names(partition.queue)
                self._advance(number, effects, is_read=is_read)
        self._trim()
        return effects

    def on_assigned(self, starts: Mapping[int, int]) -> None:
        """Start from what the store holds; ids of one window follow from before `starts`."""
        for number, start in starts.items():
            self._states.forget(number)
            self._partitions[number] = _Partition(start, start or None, SeenIds(self._window_us))

    def on_revoked(self, partitions: Sequence[int]) -> None:
        """Forget these partitions, and what was folded on a state that the store does not have."""
        for number in partitions:
            self._states.forget(number)
            self._partitions.pop(number, None)

    def statistics(self) -> Mapping[str, float]:
        """Return how many observations were applied and skipped, and what they cost, by application."""
        applied = {("applied_total", "application", name): count for name, count in self._applied.items()}
        return {
            **Counters(applied).rendered(),
            **self._counters.rendered(),
            **self._losses.rendered(),
            "states_cached": float(len(self._states)),
            "states_bytes": float(self._states.size),
            "observations_waiting": float(self.held),
        }

    def _queued(self, partition: _Partition, records: Iterable[Record], effects: Effects) -> bool:
        """Queue a run of one partition's records; tell whether any is to be folded."""
        queue, needed, decode, start = partition.queue, partition.needed, self._codec.decode, partition.start
        before = len(queue)
        for record in records:
            try:
                observations = decode(Observations, record.value).items
            except DecodeError as error:
                self._counters["undecodable_total", "topic", record.topic] += 1
                if record.offset >= start:
                    effects.append(DeadLetter(record, error.cause, str(error)))
                    queue.append((record, None))  # the stored offset passes it, too: it is not read again
                continue
            if record.offset < start:
                for seen in observations:
                    partition.seen.add(seen.query_id, record.timestamp_us)
                continue
            queue.append((record, observations))
            partition.queued += len(observations)
            _gather(needed, observations)
        return len(queue) > before

    def _advance(self, number: int, effects: Effects, *, is_read: bool = False) -> None:
        """Fold the queue and ask for one write, or ask for missing states first.

        The rest of a queue is waited for if there is room: one write takes less time than many. If all that was asked
        for is read, and some had to be dropped meanwhile, its first records are folded all the same.
        """
        partition = self._partitions[number]
        if not partition.queue:
            return
        if not partition.fetching:
            states = self._states.known(number, partition.needed)
            if len(states) == len(partition.needed):
                self._fold(number, partition, partition.queue, states, effects)
                partition.queue.clear()
                partition.needed.clear()
                partition.queued = 0
                return
            partition.fetching = dict.fromkeys([name for name in partition.needed if name not in states])
            # In the order of the queue: what has been read can be folded, and makes room, before the rest is read.
            effects.append(FetchStates(tuple(StateKey(number, name) for name in partition.fetching)))
        if is_read or self._states.is_large:
            self._fold_head(number, partition, effects)

    def _fold_head(self, number: int, partition: _Partition, effects: Effects) -> None:
        """Fold the first records of the queue, as far as their states are there."""
        states: dict[str, PolicyState | None] = {}
        head: list[_Queued] = []
        for queued in partition.queue:
            names = _names([queued])
            found = self._states.known(number, names)
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
        partition: _Partition,
        records: Sequence[_Queued],
        states: dict[str, PolicyState | None],
        effects: Effects,
    ) -> None:
        """Fold records on the states that they need; remember what comes of it, and ask for it to be written."""
        writes = self._folded(number, partition, records, states, effects)
        for write in writes:
            self._states.put(number, write.states)
        effects += writes

    def _folded(
        self,
        number: int,
        partition: _Partition,
        records: Sequence[_Queued],
        states: dict[str, PolicyState | None],
        effects: Effects,
    ) -> list[WriteStates]:
        """Fold records; those with impossible observations become dead letters, writes complete the others."""
        folding, is_first = Folding(states, self._window_us), partition.seen.add
        completes: list[Position] = []
        applied: list[Observation] = []
        writes: list[WriteStates] = []
        for record, observations in records:
            if observations is None:
                continue
            faults = []
            for seen in observations:
                if not is_first(seen.query_id, record.timestamp_us):
                    self._counters["duplicate_observations_total", "application", seen.application] += 1
                    continue
                try:
                    folding.take(seen, record.timestamp_us)
                except PolicyError as error:
                    faults.append(f"{seen.query_id}: {error}")
                else:
                    applied.append(seen)
            if faults:
                effects.append(DeadLetter(record, "impossible_decision", "; ".join(faults)))
            else:
                completes.append(new_tuple(Position, record[:3]))
            if folding.numbers >= WRITE_NUMBERS:
                writes.append(_write(number, partition, record.offset + 1, folding, completes))
                folding, completes = Folding(states, self._window_us), []
        if (end := records[-1][0].offset + 1) != partition.stored:
            writes.append(_write(number, partition, end, folding, completes))
        self._applied.update([seen.application for seen in applied])
        self._judge(applied)
        self._losses.add(applied)
        return writes

    def _judge(self, applied: Iterable[Observation]) -> None:
        """Count the sets of labels that held the true one, and those that missed it."""
        for seen in applied:
            if seen.label_set is not None and seen.label is not None:
                outcome = "held" if holds(seen.label_set, seen.label) else "missed"
                self._counters["label_sets_judged_total", "application", seen.application, "outcome", outcome] += 1

    def _trim(self) -> None:
        """Keep the bounds, but for what queues wait for.

        If that alone takes too many bytes, only what is folded next stays: what the first record of each queue needs.
        """
        self._states.trim(self._waited_for)

    def _waited_for(self) -> Container[str]:
        waiting = [partition for partition in self._partitions.values() if partition.queue]
        if not self._states.is_large:
            return ChainMap(*(partition.needed for partition in waiting))
        return ChainMap(*(_names([partition.queue[0]]) for partition in waiting))


def _write(number: int, partition: _Partition, offset: int, folding: Folding, completes: list[Position]) -> WriteStates:
    """Return the write of the states folded so far; `offset` is the next one to apply."""
    folding.settle()
    write = WriteStates(number, partition.stored, offset, folding.changed, tuple(completes))
    partition.stored = offset
    return write
