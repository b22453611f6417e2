"""Learn: observation → new policy state. The state is a deterministic fold over the log, exactly once.

An observation is applied if it is the first with its query id inside the window. States and offset are written in one
compare-and-set, so a zombie's write is refused and a store that lost its last second rolls both back together.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

from policies import registry
from policies.contract import is_judging, is_situated
from policies.errors import PolicyError
from schemas.errors import DecodeError
from schemas.records import Observation, PolicyState
from streams.operators.contract import DeadLetter, FetchStates, Operator, StateKey, WriteStates
from streams.operators.counters import Counters
from streams.operators.figures import Losses
from streams.operators.starts import started, states_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Effects, Position, Record


# How soon a store that came back with older data is noticed while nothing is learnt; one round trip a partition.
CONFIRM_US = 5_000_000


def apply(state: PolicyState | None, seen: Observation) -> PolicyState:
    """Fold one observation into a state.

    A state of another policy (or parameters) starts anew; of other arms, it is re-mapped by name. Nothing but the
    observation decides, so the log alone gives the state.

    Raises:
        PolicyError: the decision names a policy that does not exist, or does not fit its arms.
    """
    decision = seen.decision
    _check(seen)
    policy = registry.parse(decision.policy)
    count = len(decision.arms)
    if state is None or state.policy != decision.policy:
        state = PolicyState(decision.policy, decision.arms, 0, policy.init(count))
    elif state.arms != decision.arms:
        values = policy.extend(state.values, state.arms, decision.arms)
        state = PolicyState(decision.policy, decision.arms, state.version, values)
    try:
        if is_situated(policy):
            values = policy.observe(
                state.values, count, decision.chosen, decision.propensities, seen.losses, decision.features
            )
        elif seen.answers is not None and is_judging(policy):
            values = policy.observe(
                state.values, count, decision.chosen, decision.propensities, seen.losses, seen.answers
            )
        else:
            values = policy.observe(state.values, count, decision.chosen, decision.propensities, seen.losses)
    except IndexError as error:
        raise PolicyError(f"the stored state has {len(state.values)} values, which do not fit {count} arms") from error
    if not all(map(isfinite, values)):
        raise PolicyError(f"{decision.policy} leaves the finite numbers on these losses; make its parameters smaller")
    return PolicyState(decision.policy, decision.arms, state.version + 1, values)


def taught(states: Mapping[str, PolicyState | None], seen: Observation) -> dict[str, PolicyState]:
    """Return the states that an observation changes, by name, as they are after it.

    Raises:
        PolicyError: as `apply`.
    """
    own, *others = states_of(seen)
    before = states.get(own)
    if not others:
        return {own: apply(before, seen)}
    common = states.get(others[0])
    return {own: apply(before or started(common, seen.decision.policy), seen), others[0]: apply(common, seen)}


def _check(seen: Observation) -> None:
    """Refuse a decision whose parts do not fit each other."""
    decision = seen.decision
    count = len(decision.arms)
    if count == 0 or len(decision.propensities) != count or len(seen.losses) != count:
        raise PolicyError(f"{count} arms, {len(decision.propensities)} propensities, {len(seen.losses)} losses")
    if decision.chosen and not 0 <= min(decision.chosen) <= max(decision.chosen) < count:
        raise PolicyError(f"chosen arms {decision.chosen} of {count}")
    if not all(map(_is_share, decision.propensities)) or not all(map(_is_share, seen.losses)):
        raise PolicyError("propensities and losses lie in [0, 1]")
    if seen.answers is not None and len(seen.answers) != count:
        raise PolicyError(f"{count} arms, {len(seen.answers)} answers")


def _is_share(value: float | None) -> bool:
    return value is None or 0.0 <= value <= 1.0


def _needed(seen: Observation) -> tuple[str, ...]:
    """Return the states without which an observation cannot be folded; one of no policy becomes a dead letter."""
    try:
        return states_of(seen)
    except PolicyError:
        return (seen.decision.state,)


class SeenIds:
    """Query ids with an observation in the last window of event time.

    A copy counts like the first: the set depends on the last window of the log alone, not on where reading began.
    """

    __slots__ = ("_ids", "_newest_us", "_order", "_window_us")

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._ids: dict[str, int] = {}  # when it was seen last
        self._order: deque[tuple[int, str]] = deque()
        self._newest_us = 0

    def add(self, query_id: str, time_us: int) -> bool:
        """Remember an id; tell whether it is the first inside the window."""
        self._newest_us = max(self._newest_us, time_us)
        while self._order and self._order[0][0] < self._newest_us - self._window_us:
            seen_us, gone = self._order.popleft()
            if self._ids.get(gone) == seen_us:
                del self._ids[gone]
        is_first = query_id not in self._ids
        self._ids[query_id] = self._newest_us
        self._order.append((self._newest_us, query_id))
        return is_first


def fold(log: Iterable[tuple[int, Observation]], window_us: int) -> dict[str, PolicyState]:
    """Fold one partition's log offline; the states equal the learner's bit for bit.

    Args:
        log: every observation of the partition in order, with its record's timestamp (us).
        window_us: the learner's window of query ids.
    """
    seen_ids = SeenIds(window_us)
    states: dict[str, PolicyState] = {}
    for timestamp_us, seen in log:
        if seen_ids.add(seen.query_id, timestamp_us):
            states.update(taught(states, seen))
    return states


@dataclass(slots=True)
class _Partition:
    """What the learner keeps of one partition of the log."""

    start: int  # first offset whose observation is not in the stored states
    stored: int | None  # what the store's offset will be once the writes asked for are done; None = nothing stored yet
    seen: SeenIds
    checked_us: int = 0  # when the store was last asked to confirm the offset
    states: OrderedDict[str, PolicyState | None] = field(default_factory=OrderedDict)
    queue: deque[tuple[Record, Observation]] = field(default_factory=deque)
    fetching: set[str] = field(default_factory=set)


class Learner(Operator):
    """The kernel of the `learner` role: the only writer of its partitions' states.

    Args:
        codec: decodes observations.
        window_us: how long a query id is remembered; the joiner's `memory_us`.
        capacity: policy states cached per partition.
    """

    def __init__(self, codec: Codec, window_us: int = 1_380_000_000, capacity: int = 50_000) -> None:
        self._codec = codec
        self._window_us = window_us
        self._capacity = capacity
        self._counters = Counters()
        self._losses = Losses()
        self._partitions: dict[int, _Partition] = {}

    def on_timer(self, now_us: int) -> Effects:
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
    def read_back_us(self) -> int:
        """The window of ids and a minute for brokers whose clocks disagree."""
        return self._window_us + 60_000_000

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take observations, in order within each partition."""
        effects: Effects = []
        touched: dict[int, None] = {}
        for record in records:
            partition = self._partitions.get(record.partition)
            if partition is None:
                continue
            try:
                seen = self._codec.decode(Observation, record.value)
            except DecodeError as error:
                self._counters["undecodable_total", "topic", record.topic] += 1
                if record.offset >= partition.start:
                    effects.append(DeadLetter(record, error.cause, str(error)))
                continue
            if record.offset < partition.start:
                partition.seen.add(seen.query_id, record.timestamp_us)
                continue
            partition.queue.append((record, seen))
            touched[record.partition] = None
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
        """Forget these partitions."""
        for number in partitions:
            self._partitions.pop(number, None)

    def on_refused(self, partition: int, stored: int | None) -> None:
        """Drop what was folded on a state that the store does not have; records count again from `on_assigned`."""
        self._counters["refused_writes_total",] += 1
        self._partitions.pop(partition, None)

    def statistics(self) -> Mapping[str, float]:
        """Return how many observations were applied and skipped, and what they cost, by application."""
        return {
            **self._counters.rendered(),
            **self._losses.rendered(),
            "states_cached": float(sum(len(p.states) for p in self._partitions.values())),
            "observations_waiting": float(sum(len(p.queue) for p in self._partitions.values())),
        }

    def _advance(self, number: int, effects: Effects) -> None:
        """Fold what is queued and ask for one write, or ask for the states that are missing first."""
        partition = self._partitions[number]
        if partition.fetching or not partition.queue:
            return
        names = {seen.decision.state for _, seen in partition.queue}
        names.update(name for _, seen in partition.queue if seen.context is not None for name in _needed(seen))
        missing = names - partition.states.keys()
        if missing:
            partition.fetching |= missing
            effects.append(FetchStates(tuple(StateKey(number, name) for name in sorted(missing))))
            return
        effects.append(self._folded(number, partition, effects))
        self._trim(partition)

    def _folded(self, number: int, partition: _Partition, effects: Effects) -> WriteStates:
        changed: dict[str, PolicyState] = {}
        completes: list[Position] = []
        offset = partition.start
        for record, seen in partition.queue:
            offset = record.offset + 1
            if self._learn(partition, record, seen, changed, effects):
                completes.append(record.position)
        partition.queue.clear()
        write = WriteStates(number, partition.stored, offset, changed, tuple(completes))
        partition.stored = offset
        return write

    def _learn(
        self,
        partition: _Partition,
        record: Record,
        seen: Observation,
        changed: dict[str, PolicyState],
        effects: Effects,
    ) -> bool:
        """Fold one observation; tell whether the write completes it (an impossible one becomes a dead letter)."""
        if not partition.seen.add(seen.query_id, record.timestamp_us):
            self._counters["duplicate_observations_total", "application", seen.application] += 1
            return True
        name, states = seen.decision.state, partition.states
        try:
            if seen.context is None:  # one state to teach, as `taught` would say for a microsecond more
                states[name] = changed[name] = apply(states[name], seen)
                states.move_to_end(name)
            else:
                for other, state in taught(states, seen).items():
                    states[other] = changed[other] = state
                    states.move_to_end(other)
        except PolicyError as error:
            effects.append(DeadLetter(record, "impossible_decision", str(error)))
            return False
        self._counters["applied_total", "application", seen.application] += 1
        self._losses.add(seen)
        return True

    def _trim(self, partition: _Partition) -> None:
        """Forget the states used longest ago; a later fetch sees every write that was asked for before it."""
        while len(partition.states) > self._capacity:
            partition.states.popitem(last=False)
