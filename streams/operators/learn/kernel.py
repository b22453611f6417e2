"""Learn: observation → new policy state. The state is a deterministic fold over the log, exactly once.

The first observation with a query id inside the window is applied; its copies are skipped. States and offset are
written in one compare-and-set. So a write by a former owner is refused, and a
store that lost its last second rolls both back.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
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
from streams.operators.learn.fold import Folding
from streams.operators.statistics import Counters, Losses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.contract import Effects, Record, Unread

_PARTITION = itemgetter(1)  # of a record
# How soon a store that came back with older data is noticed without new observations; one round trip a partition.
CONFIRM_US = 5_000_000
# Numbers in the states of one write, about a megabyte as they are stored: large states go in several steps.
WRITE_NUMBERS = 125_000


def _needed(seen: Observation) -> tuple[str, ...]:
    """Return the states without which an observation cannot be folded; one of no policy becomes a dead letter."""
    try:
        return states_of(seen)
    except PolicyError:
        return (seen.decision.state,)


@dataclass(slots=True)
class _Partition:
    """What the learner keeps of one partition of the log."""

    start: int  # first offset whose observation is not in the stored states
    stored: int | None  # what the store's offset will be once the writes asked for are done; None = nothing stored yet
    seen: SeenIds
    checked_us: int = 0  # when the store was last asked to confirm the offset
    states: OrderedDict[str, PolicyState | None] = field(default_factory=OrderedDict)
    # With the observations in each record; None = it becomes a dead letter, which completes it.
    queue: deque[tuple[Record, Sequence[Observation] | None]] = field(default_factory=deque)
    queued: int = 0  # observations in it
    needed: set[str] = field(default_factory=set)  # states without which the queue cannot be folded
    fetching: set[str] = field(default_factory=set)


class Learner(Operator):
    """The kernel of the `learner` role: the only writer of its partitions' states.

    Args:
        codec: decodes observations.
        window_us: how long a query id is remembered; the joiner's `memory_us`.
        capacity: policy states cached, shared by its partitions.
    """

    def __init__(self, codec: Codec, window_us: int = 1_380_000_000, capacity: int = 100_000) -> None:
        self._codec = codec
        self._window_us = window_us
        self._capacity = capacity
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
        return effects

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Take states that were missing; observations that waited for them are folded."""
        effects: Effects = []
        for key, state in states.items():
            partition = self._partitions.get(key.partition)
            if partition is not None and key.name in partition.fetching:
                partition.fetching.discard(key.name)
                partition.states[key.name] = state
        for number in {key.partition for key in states}:
            if number in self._partitions:
                self._advance(number, effects)
        return effects

    def on_assigned(self, starts: Mapping[int, int]) -> None:
        """Start from what the store holds; ids of one window follow from before `starts`."""
        for number, start in starts.items():
            self._partitions[number] = _Partition(start, start or None, SeenIds(self._window_us))

    def on_revoked(self, partitions: Sequence[int]) -> None:
        """Forget these partitions, and what was folded on a state that the store does not have."""
        for number in partitions:
            self._partitions.pop(number, None)

    def statistics(self) -> Mapping[str, float]:
        """Return how many observations were applied and skipped, and what they cost, by application."""
        applied = {("applied_total", "application", name): count for name, count in self._applied.items()}
        return {
            **Counters(applied).rendered(),
            **self._counters.rendered(),
            **self._losses.rendered(),
            "states_cached": float(sum(len(p.states) for p in self._partitions.values())),
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
            for seen in observations:
                needed.add(seen.decision.state)
                if seen.context is not None:
                    needed.update(_needed(seen))
        return len(queue) > before

    def _advance(self, number: int, effects: Effects) -> None:
        """Fold the queue and ask for one write, or ask for missing states first."""
        partition = self._partitions[number]
        if partition.fetching or not partition.queue:
            return
        # Not `needed - states.keys()`: that goes through all keys, which with 100,000 of them takes 2 to 8 ms a time.
        missing = {name for name in partition.needed if name not in partition.states}
        if missing:
            partition.fetching |= missing
            effects.append(FetchStates(tuple(StateKey(number, name) for name in sorted(missing))))
            return
        effects += self._folded(number, partition, effects)
        self._trim()

    def _folded(self, number: int, partition: _Partition, effects: Effects) -> list[WriteStates]:
        """Fold the queue; records with impossible observations become dead letters, writes complete the others."""
        folding, completes, applied, is_first = Folding(partition.states), [], [], partition.seen.add
        writes: list[WriteStates] = []
        for record, observations in partition.queue:
            if observations is None:
                continue
            faults = []
            for seen in observations:
                if not is_first(seen.query_id, record.timestamp_us):
                    self._counters["duplicate_observations_total", "application", seen.application] += 1
                    continue
                try:
                    folding.take(seen)
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
                folding, completes = Folding(partition.states), []
        if (end := partition.queue[-1][0].offset + 1) != partition.stored:
            writes.append(_write(number, partition, end, folding, completes))
        self._applied.update([seen.application for seen in applied])
        self._losses.add(applied)
        partition.queue.clear()
        partition.queued = 0
        partition.needed.clear()
        return writes

    def _trim(self) -> None:
        """Drop the least recently used states of the fullest partition; a later fetch sees every earlier write."""
        while (excess := sum(len(each.states) for each in self._partitions.values()) - self._capacity) > 0:
            largest = max((each.states for each in self._partitions.values()), key=len)
            for _ in range(min(excess, len(largest))):
                largest.popitem(last=False)


def _write(number: int, partition: _Partition, offset: int, folding: Folding, completes: list[Position]) -> WriteStates:
    """Return the write of the states folded so far; `offset` is the next one to apply."""
    folding.settle()
    write = WriteStates(number, partition.stored, offset, folding.changed, tuple(completes))
    partition.stored = offset
    return write
