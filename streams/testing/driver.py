"""A broker-free driver: the same operators, in virtual time, with scripted faults. Public, for your own tests too.

    driver = Driver(topology.build(["svc"]), {"selection": lambda: Selection(codec, settings), ...})
    driver.produce("queries", 0, value)
    driver.run(seconds=1)                       # virtual: returns at once
    driver.read("predictions")                  # what came out

Everything follows from the topology: topics and partitions, what each role reads, follows and writes, its group, and
whether the store decides its start. An operator that writes elsewhere, or uses the store undeclared, fails.

A fault is a value with a time (`faults`). `models` scripts the answers and service times of the models that real
workers run, and `leg` says how long records are on their way. Everything is deterministic: the same script gives the
same records.

A replay of millions of records asks for less: `Pace` says how often roles poll, and whether anything is kept for them
to be started again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from sys import maxsize
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, assert_never, cast

from streams.operators.contract import (
    DeadLetter,
    Emit,
    EmitBatch,
    FetchFeatures,
    FetchStates,
    Load,
    LogMessage,
    Phase,
    Predict,
    Record,
    Skip,
    Unload,
    WriteStates,
)
from streams.runtime.kafka.fast.whole_batches import emits_of
from streams.runtime.offsets import OffsetTracker
from streams.runtime.role.dead_letters import DeadLetters
from streams.testing.events import Events
from streams.testing.faults import Crash, FaultyLogs, FaultyStore, StoreDown, StoreLoss
from streams.testing.models import Services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streams.operators.contract import Effects, Operator, Position, Span, Unread
    from streams.testing.events import Happen
    from streams.testing.faults import Fault
    from streams.testing.models import Lookup, ModelBehaviour, ToldOutcome
    from streams.testing.packing import Packing
    from streams.topology import Node, Topology

START_US = 1_700_000_000_000_000
COMMIT_US = 500_000  # as the runtime does
# How long a record is on its way until it lies in its topic, where its reader sees it (us): by topic, and when it was
# sent. As in Kafka, its topic says which of both times it is dated with.
Leg: TypeAlias = "Callable[[str, int], int]"


@dataclass(frozen=True, slots=True)
class Pace:
    """How a driver runs.

    Attributes:
        start_us: the time at the start.
        polls_us: how often roles poll, by name (us). A record waits for the next poll of its reader, counted from the
            start, and those of one poll come together. 0, and roles not named: a record is delivered when it is there.
        keeps: whether records are kept and offsets committed. If not, a record is let go of once all have read it, no
            role can be started again, and nothing can go wrong; who wants records `hears` them.
    """

    start_us: int = START_US
    polls_us: Mapping[str, int] = field(default_factory=dict)
    keeps: bool = True


@dataclass(slots=True)
class _DrivenRole:
    """A role that runs: its place in the topology, how to make its operator, and where that one stands."""

    node: Node
    make: Callable[[], Operator]
    operator: Operator = field(init=False)
    tracker: OffsetTracker = field(init=False)
    positions: dict[tuple[str, int], int] = field(init=False, default_factory=dict)
    unread: set[tuple[str, int]] = field(init=False, default_factory=set)  # where there may be something to deliver
    states_at: dict[int, int | None] = field(init=False, default_factory=dict)  # the offsets that its states stand for
    starts: int = field(init=False, default=0)
    is_blocked: bool = field(init=False, default=False)  # by a model that predicts
    is_caught_up: bool = field(init=False, default=False)  # and has been told so
    due_us: int | None = field(init=False, default=None)  # its timer, as it was after its operator's last call
    every_us: int = 0  # between polls
    poll_us: int = field(init=False, default=0)  # its next poll, if there is anything to deliver

    @property
    def main(self) -> str:
        """The topic whose partitions the operator learns of."""
        return self.node.consumes[0]


class Driver:
    """Runs roles over in-memory logs until nothing is left to do at the current virtual time, then lets time pass."""

    def __init__(
        self,
        topology: Topology,
        operators: Mapping[str, Callable[[], Operator]],
        faults: Iterable[Fault] = (),
        models: Mapping[str, ModelBehaviour] | None = None,
        *,
        pace: Pace | None = None,
        hears: Mapping[str, Callable[[Record], None]] | None = None,
        features: Lookup | None = None,
        packing: Mapping[str, Packing] = MappingProxyType({}),
        leg: Leg | None = None,
    ) -> None:
        """Start every role that has an operator; the others do not run.

        Args:
            topology: of the deployment under test.
            operators: how to make each role's operator, by name: `selection`, `joiner`, `learner`, `worker.<model>`.
            faults: what goes wrong, and when.
            models: how the models behave that operators ask, by name.
            pace: how it runs; None = as tests want it.
            hears: is called with each record of a topic when it is written, by topic.
            features: how the store of features answers; None = it does not.
            packing: what roles are given in whole batches, by name: those whose operators take them.
            leg: how long records are on their way; None = no time at all.

        Raises:
            LookupError: the topology has no such role.
            ValueError: topics whose records must meet differ in their partition counts; or something goes wrong where
                nothing is kept.
        """
        self._pace = pace = pace or Pace()
        self.now_us = pace.start_us
        self.skipped: dict[str, int] = defaultdict(int)
        self._faults = list(faults)
        if self._faults and not pace.keeps:
            raise ValueError("a driver that keeps nothing has no faults: no role could be started again")
        self.store = FaultyStore(is_lossy=any(isinstance(fault, StoreLoss) for fault in self._faults))
        self._topology = _checked(topology, operators)
        self._roles = [_made(node, operators, pace) for node in topology.nodes if node.role in operators]
        self._committed: dict[str, dict[tuple[str, int], int]] = {role.node.group: {} for role in self._roles}
        self._logs = FaultyLogs(self._places(topology.topics), self._faults, self._appended, hears or {})
        self._readers: dict[tuple[str, int], list[_DrivenRole]] = defaultdict(list)
        self._packing = packing
        self._asked: list[tuple[_DrivenRole, FetchStates | WriteStates]] = []
        self._leg, self._events = leg, Events()
        self._services = Services(dict(models or {}), features, self._will_tell)
        self._next_commit_us = pace.start_us + COMMIT_US
        self._wakes_us = 0  # before it nothing happens
        for role in self._roles:
            for place in self._places((*role.node.consumes, *role.node.follows)):
                self._readers[place].append(role)
            self._start(role)

    def produce(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        """Append a record as a client would."""
        self._send(Emit(topic, partition, key, value or b"", headers=headers), value)

    def read(self, topic: str) -> list[Record]:
        """Return every record of a topic, partition by partition."""
        return self._logs.of(topic)

    def follow(self, topic: str, seen: dict[int, int]) -> list[Record]:
        """Return what a topic has got since the last call with the same `seen`, which holds the offsets so far."""
        found: list[Record] = []
        for partition in range(self._topology.topics[topic].partitions):
            new = self._logs[topic, partition][seen.get(partition, 0) :]
            seen[partition] = seen.get(partition, 0) + len(new)
            found += new
        return found

    def committed(self, role: str, topic: str, partition: int) -> int:
        """Return the committed next offset of a role's group."""
        return self._committed[self._role(role).node.group].get((topic, partition), 0)

    def operator(self, role: str) -> Operator:
        """Return the operator that a role runs now (another one after a crash)."""
        return self._role(role).operator

    def run(self, seconds: float) -> None:
        """Let virtual time pass: every timer fires at its time, every record is delivered when it is visible."""
        self.run_until(self.now_us + int(seconds * 1e6))

    def run_until(self, end_us: int) -> None:
        """Let virtual time pass up to a time (us); one that has passed changes nothing."""
        end_us = max(end_us, self.now_us)
        while self._wakes_us <= end_us:
            self.now_us = max(self.now_us, self._wakes_us)
            self._settle()
            self._wakes_us = self._next_event_us()
        self.now_us = end_us

    def _role(self, name: str) -> _DrivenRole:
        return next(role for role in self._roles if role.node.role == name)

    def _places(self, names: Iterable[str]) -> list[tuple[str, int]]:
        return [(name, p) for name in names for p in range(self._topology.topics[name].partitions)]

    def _start(self, role: _DrivenRole) -> None:
        """Start a role, perhaps again. Answers to what it asked before its end are dropped."""
        if role.starts and not self._pace.keeps:
            raise RuntimeError(f"{role.node.role} cannot be started again: what it would read has not been kept")
        self._asked = [asked for asked in self._asked if asked[0] is not role]
        role.starts, role.is_blocked, role.is_caught_up = role.starts + 1, False, False
        role.operator, role.tracker = role.make(), OffsetTracker()
        committed = self._committed[role.node.group]
        role.positions = {place: committed.get(place, 0) for place in self._places(role.node.consumes)}
        for assigned in role.positions:
            role.tracker.assign(assigned, role.positions[assigned], committed.get(assigned))
        role.positions |= dict.fromkeys(self._places(role.node.follows), 0)
        role.unread = set(role.positions)
        starts = {p: role.positions[main, p] for main, p in self._places([role.main])}
        if role.node.states == "writes":
            starts = {p: self.store.offsets.get(p, 0) for p in starts}
        self._begin(role, starts)

    def _begin(self, role: _DrivenRole, starts: Mapping[int, int]) -> None:
        """Position the main topic before `starts` by what the operator wants to read back."""
        if role.node.states == "writes":
            role.states_at |= {number: start or None for number, start in starts.items()}
        role.operator.on_partitions(starts)
        for partition, start in starts.items():
            role.positions[role.main, partition] = self._back(role, role.main, partition, start)
            role.tracker.assign((role.main, partition), start)
        for topic, partition in self._places(sorted(role.operator.needs().read_back.topics)):
            start = role.positions[topic, partition]
            role.positions[topic, partition] = self._back(role, topic, partition, start)
        role.unread = set(role.positions)
        role.due_us = role.operator.needs().deadline_us

    def _back(self, role: _DrivenRole, topic: str, partition: int, start: int) -> int:
        """Return where a window before `start` begins."""
        log, window_us = self._logs[topic, partition], role.operator.needs().read_back.us
        oldest_us = (log[start - 1].timestamp_us if start else 0) - window_us
        while start and window_us and log[start - 1].timestamp_us >= oldest_us:
            start -= 1
        return start

    def _settle(self) -> None:
        """Deliver and perform until nothing more happens at this instant."""
        busy = True
        while busy:
            if self._faults:
                self._strike()
            has_come = self._leg is not None and self._happen(self._land)
            polling = [role for role in self._roles if role.unread and not role.is_blocked]
            delivered = [self._deliver(role) for role in polling if role.poll_us <= self.now_us]
            busy = (
                has_come
                or any(delivered)
                or self._catch_up()
                or self._fire()
                or self._happen(self._tell)
                or self._ask_store()
                or self._logs.release(self.now_us)
            )
            if self.now_us >= self._next_commit_us:
                self._commit()

    def _deliver(self, role: _DrivenRole) -> bool:
        followed: list[Record] = []
        consumed: list[Record] = []
        unread, positions, follows = role.unread, role.positions, role.node.follows
        for assigned in [place for place in positions if place in unread] if len(unread) > 1 else [*unread]:
            position = positions[assigned]
            ready = self._logs.readable(assigned, position, self.now_us)
            positions[assigned] = position + len(ready)
            if position + len(ready) == self._logs.end(assigned):
                unread.discard(assigned)
            if assigned[0] in follows:
                followed += ready
                continue
            consumed += ready
            if ready and self._pace.keeps:
                role.tracker.delivered(assigned, [record.offset for record in ready])
        if not (followed or consumed):
            return False
        packing = self._packing.get(role.node.role)
        if packing is not None:
            consumed = cast("list[Record]", packing(consumed))
        self._perform(role, role.operator.on_records(followed + consumed, self.now_us))
        return True

    def _catch_up(self) -> bool:
        """Tell roles that they have been given all that they follow, once each start."""
        told = False
        for role in self._roles:
            if not (
                role.is_caught_up or role.is_blocked or any(place[0] in role.node.follows for place in role.unread)
            ):
                role.is_caught_up = told = True
                self._perform(role, role.operator.on_phase(Phase.CAUGHT_UP, self.now_us))
        return told

    def _fire(self) -> bool:
        fired = False
        now_us = self.now_us
        for role in self._roles:
            if (due := role.due_us) is not None and due <= now_us and not role.is_blocked:
                self._perform(role, role.operator.on_timer(self.now_us, self._unread(role)))
                fired = True
        return fired

    def _happen(self, what: Happen) -> bool:
        """Let the next event happen, if its time has come and it is one of these; one at a time."""
        about = self._events.take(self.now_us, what)
        if about is None:
            return False
        what(self.now_us, about)
        return True

    def _will_tell(self, at_us: int, outcome: ToldOutcome) -> None:
        self._events.add(at_us, self._tell, outcome)

    def _tell(self, now_us: int, outcome: ToldOutcome) -> None:
        """Tell what a model has done; a role whose vital model hangs is started again."""
        role = self._role(outcome.role)
        if role.starts != outcome.start:
            return
        if outcome.tell is None:
            self._start(role)
            return
        role.is_blocked = role.is_blocked and not outcome.is_over
        self._perform(role, outcome.tell(role.operator, now_us))

    def _send(self, emit: Emit, value: bytes | None) -> None:
        """Write a record, or let it be on its way for a while."""
        on_way_us = 0 if self._leg is None else self._leg(emit.topic, self.now_us)
        if not on_way_us:
            self._logs.append(emit, value, self.now_us)
            return
        self._events.add(self.now_us + on_way_us, self._land, (emit, value, self.now_us))
        self._wakes_us = min(self._wakes_us, self.now_us + on_way_us)

    def _land(self, now_us: int, sent: tuple[Emit, bytes | None, int]) -> None:
        emit, value, sent_us = sent
        is_dated_here = self._topology.topics[emit.topic].timestamps == "LogAppendTime"
        self._logs.append(emit, value, now_us, now_us if is_dated_here else sent_us)

    def _unread(self, role: _DrivenRole) -> Unread:
        """Return how many records of consumed partitions are still to be delivered."""
        consumed = {place: at for place, at in role.positions.items() if place[0] in role.node.consumes}
        counts = {place: self._logs.end(place) - position for place, position in consumed.items()}
        return {place: count for place, count in counts.items() if count > 0}

    def _perform(self, role: _DrivenRole, effects: Effects) -> None:
        """Do what an operator asks after a call, and note when its timer is due."""
        role.due_us = role.operator.needs().deadline_us
        for effect in effects:
            match effect:
                case Emit() | EmitBatch():
                    self._emit(role, effect)
                case DeadLetter(record):
                    self._send(DeadLetters(role.node.group).emit(effect), record.value)
                    self._complete(role, (record.position,))
                case Skip(completes, reason, spans):
                    self.skipped[reason] += 1
                    self._complete(role, completes, spans)
                case FetchStates() | WriteStates():
                    assert role.node.states, f"{role.node.role} is not said to use the store"
                    self._asked.append((role, effect))
                case Predict() | Load() | FetchFeatures():
                    if self._services.take(effect, role.node.role, role.starts, self.now_us):
                        role.is_blocked = True
                case Unload() | LogMessage():
                    pass  # a copy that is let go of costs nothing here, and nobody reads a log
                case _:
                    assert_never(effect)

    def _emit(self, role: _DrivenRole, effect: Emit | EmitBatch) -> None:
        assert effect.topic in role.node.produces, f"{role.node.role} is not said to write {effect.topic}"
        for emit in [effect] if isinstance(effect, Emit) else emits_of(effect):
            self._send(emit, emit.value)
            self._complete(role, emit.completes)

    def _complete(self, role: _DrivenRole, positions: Iterable[Position], spans: Sequence[Span] = ()) -> None:
        if self._pace.keeps:
            role.tracker.complete(positions)
            role.tracker.complete_spans(spans)

    def _ask_store(self) -> bool:
        """Do what was asked of the store, in order; what waits while it is down is done when it is back."""
        if self._store_is_down() or not self._asked:
            return False
        asked, self._asked = self._asked, []
        refused: set[int] = set()
        for role, effect in asked:
            if isinstance(effect, FetchStates):
                self._read(role, effect, refused)
            elif effect.partition not in refused and not self._write(role, effect):
                refused.add(effect.partition)
        return True

    def _read(self, role: _DrivenRole, fetch: FetchStates, refused: set[int]) -> None:
        """Read states; a partition that they do not belong to any more starts over."""
        found = self.store.find(fetch.keys)
        wrong = {n for n, offset in found.offsets.items() if role.states_at.get(n, offset) != offset} - refused
        known = {key: state for key, state in found.states.items() if key.partition not in wrong | refused}
        for number in wrong:
            self._start_over(role, number)
        refused |= wrong
        if known:
            self._perform(role, role.operator.on_states(known, self.now_us))

    def _write(self, role: _DrivenRole, write: WriteStates) -> bool:
        """Write states; a refused partition starts over from what is stored."""
        if self.store.write(write, self.now_us):
            role.states_at[write.partition] = write.offset
            self._complete(role, write.completes, write.spans)
            return True
        self._start_over(role, write.partition)
        return False

    def _start_over(self, role: _DrivenRole, number: int) -> None:
        stored = self.store.offsets.get(number)
        role.operator.on_partitions({number: None})
        self._begin(role, {number: stored or 0})

    def _appended(self, place: tuple[str, int]) -> None:
        """Note who has something to read, and when; the time may have to be gone on with earlier."""
        now_us = self.now_us
        for role in self._readers[place]:
            if not role.unread and role.every_us:
                role.poll_us = now_us + -(now_us - self._pace.start_us) % role.every_us
            role.unread.add(place)
            if role.poll_us < self._wakes_us:
                self._wakes_us = max(role.poll_us, now_us)

    def _commit(self) -> None:
        self._next_commit_us = self.now_us + COMMIT_US
        if not self._pace.keeps:
            self._let_go()
            return
        for role in self._roles:
            ready = role.tracker.committable()
            self._committed[role.node.group].update(ready)
            role.tracker.committed(ready)

    def _let_go(self) -> None:
        """Drop the records that all have read."""
        for place in self._places(self._topology.topics):
            read = [role.positions[place] for role in self._readers[place]]
            self._logs.drop(place, min(read, default=maxsize))

    def _strike(self) -> None:
        """Let the faults happen whose time has come; each happens once."""
        for fault in list(self._faults):
            if isinstance(fault, Crash) and self._pace.start_us + fault.at_us <= self.now_us:
                self._faults.remove(fault)
                self._start(self._role(fault.role))
            elif isinstance(fault, StoreLoss) and self._pace.start_us + fault.at_us <= self.now_us:
                self._faults.remove(fault)
                self.store.lose(self.now_us - fault.lost_us)

    def _store_is_down(self) -> bool:
        passed_us = self.now_us - self._pace.start_us
        return any(isinstance(f, StoreDown) and f.from_us <= passed_us < f.to_us for f in self._faults)

    def _next_event_us(self) -> int:
        """Return when something happens next (us)."""
        now_us, found = self.now_us, self._next_commit_us
        for role in self._roles:
            if not role.is_blocked:
                due_us = role.due_us
                if due_us is not None and now_us < due_us < found:
                    found = due_us
                if role.unread and now_us < role.poll_us < found:
                    found = role.poll_us
        event_us = self._events.next_us
        if event_us is not None and now_us < event_us < found:
            found = event_us
        return min([time_us for time_us in self._faulty_us() if time_us > now_us] + [found])

    def _faulty_us(self) -> Iterator[int]:
        """Yield when faults begin or end, or show."""
        yield from self._logs.next_us(self.now_us)
        for fault in self._faults:
            if isinstance(fault, Crash | StoreLoss):
                yield self._pace.start_us + fault.at_us
            elif isinstance(fault, StoreDown):
                yield self._pace.start_us + fault.to_us


def _made(node: Node, operators: Mapping[str, Callable[[], Operator]], pace: Pace) -> _DrivenRole:
    return _DrivenRole(node, operators[node.role], every_us=pace.polls_us.get(node.role, 0))


def _checked(topology: Topology, operators: Iterable[str]) -> Topology:
    unknown = set(operators) - {node.role for node in topology.nodes}
    if unknown:
        known = ", ".join(node.role for node in topology.nodes)
        raise LookupError(f"the topology has no role {', '.join(sorted(unknown))}; it has {known}")
    for group in topology.copartitioned:
        counts = {name: topology.topics[name].partitions for name in group}
        if len(set(counts.values())) > 1:
            raise ValueError(f"records of these topics meet by partition, so their counts must be equal: {counts}")
    return topology
