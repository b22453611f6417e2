"""A broker in memory at the runtime's seams: consumers, a producer, followers, with scripted faults."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from streams.operators.contract import (
    NONE_UNREAD,
    Emit,
    EmitBatch,
    GroupNeeds,
    Needs,
    Operator,
    Phase,
    ReadBack,
    Record,
)
from streams.runtime.errors import (
    LogSetBackError,
    RecordRefusedError,
    RecordTooLargeError,
    StoreUnavailableError,
    UnknownPartitionError,
)
from streams.runtime.kafka.fast.whole_batches import emits_of
from streams.runtime.ports import Posted, Vitals
from streams.runtime.role.definition import Ports
from streams.runtime.stores.base import MemoryStore
from tests.virtual import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from schemas.records import PolicyState, Report, Tensor
    from streams.operators.contract import (
        Batch,
        Effects,
        Load,
        Predict,
        StateKey,
        Unload,
        Unread,
        WriteStates,
    )
    from streams.runtime.ports import ExecutorEvents, Rebalanced, TopicPartition
    from streams.runtime.stores.base import StatesRead, WriteResult
    from streams.testing.broker import FakeBroker
    from streams.testing.packing import Packing

ROUND_TRIP_S = 0.001
# What roles write here, and are given again at their start.
WRITTEN = ("out", "written")


class FakeTransport:
    """A producer; `faults` are raised by the next sends, one each (None = that one works).

    Attributes:
        missing: topics that do not exist.
        limit: a larger value does not fit.
        refused: (topic, value) of records that are never taken.
        up: cleared, sends get no answer until it is set again.
        batches: (topic, partition, number of records) of each acknowledged batch.
        posts: whether it takes what nobody waits for; else each lane waits in a task.
    """

    posts = True

    def __init__(self, broker: FakeBroker) -> None:
        self._posting: set[asyncio.Task[None]] = set()
        self.broker = broker
        self.faults: deque[Exception | None] = deque()
        self.missing: set[str] = set()
        self.limit = 1_000_000
        self.refused: set[tuple[str, bytes]] = set()
        self.batch_records = 1_000
        self.batches: list[tuple[str, int, int]] = []
        self.up = asyncio.Event()
        self.up.set()

    async def send(self, topic: str, partition: int, emits: Sequence[Emit]) -> int:
        """Acknowledge one batch after a round trip; see `ports.Transport`."""
        await asyncio.sleep(ROUND_TRIP_S)
        await self.up.wait()
        fault = self.faults.popleft() if self.faults else None
        if fault is not None:
            raise fault
        if topic in self.missing:
            raise UnknownPartitionError(topic)
        if len(emits[0].value) > self.limit:
            raise RecordTooLargeError(topic)
        if (topic, emits[0].value) in self.refused:
            raise RecordRefusedError(f"{topic} is compacted")
        fitting = [*takewhile(lambda emit: (topic, emit.value) not in self.refused, emits[: self.batch_records])]
        for emit in fitting:
            self.broker.put(topic, partition, emit.value, key=emit.key)
        self.batches.append((topic, partition, len(fitting)))
        return len(fitting)

    def post(self, offers: Sequence[Sequence[Emit] | EmitBatch]) -> list[Posted | None]:
        """Send each offer in a task; see `ports.Transport`."""
        return [self._posted(offer) for offer in offers] if self.posts else [None] * len(offers)

    def _posted(self, offer: Sequence[Emit] | EmitBatch) -> Posted | None:
        if isinstance(offer, EmitBatch):
            answer = asyncio.ensure_future(self.send_batch(offer))
            count = 1
        else:
            fitting = offer[: self.batch_records]
            if len(fitting[0].value) > self.limit:
                return None
            answer, count = asyncio.ensure_future(self._all(fitting)), len(fitting)
        self._posting.add(answer)
        answer.add_done_callback(self._posting.discard)
        return Posted(count, answer)

    async def _all(self, emits: Sequence[Emit]) -> None:
        """Send these or none, as a broker takes a batch or refuses it."""
        topic, partition = emits[0][:2]
        if any((topic, emit.value) in self.refused or len(emit.value) > self.limit for emit in emits):
            await asyncio.sleep(ROUND_TRIP_S)
            raise RecordRefusedError(f"{topic} does not take one of them")
        await self.send(topic, partition, emits)

    async def send_batch(self, batch: EmitBatch) -> None:
        """Acknowledge a finished batch as a whole, or refuse it as a whole; see `ports.Transport`."""
        emits = emits_of(batch)
        if len(batch.data) > self.limit:
            raise RecordTooLargeError(batch.topic)
        for emit in emits:
            if (batch.topic, emit.value) in self.refused:
                raise RecordRefusedError(f"{batch.topic} is compacted")
        await self.send(batch.topic, batch.partition, emits)


class FakeConsumer:
    """The only member of a group."""

    def __init__(self, broker: FakeBroker, partitions: Iterable[TopicPartition]) -> None:
        self.broker = broker
        self.partitions = tuple(partitions)
        self.positions: dict[TopicPartition, int] = {}
        self.polls: list[frozenset[str] | None] = []
        self.seeks: list[tuple[TopicPartition, int]] = []
        self.generation = 0
        self.stopped = False
        self.refuse_commits = False
        self.fault: Exception | None = None
        self.hang_s = 0.0
        self.most: int | None = None  # records of a partition that one poll brings; None = all
        self.subscribed: frozenset[str] = frozenset()
        self.rejoins = 0
        self.packing: Packing | None = None  # which records come in whole batches
        self._passed: dict[TopicPartition, int] = {}
        self._rebalanced: Rebalanced | None = None

    async def start(self, rebalanced: Rebalanced) -> None:
        """Join; everything is assigned at once."""
        self._rebalanced = rebalanced
        await self._assign()

    def subscribe(self, topics: frozenset[str]) -> None:
        """Note which topics are wanted."""
        self.subscribed = topics

    def rejoin(self) -> None:
        """Count it."""
        self.rejoins += 1

    async def rebalance(self) -> None:
        """Take everything away and give it back, as an eager rebalance does."""
        assert self._rebalanced is not None
        self.generation += 1
        self.positions.clear()
        await self._rebalanced.on_revoked(self.partitions)
        await self._assign()

    async def poll(self, timeout_ms: int, only: frozenset[str] | None = None) -> list[Record | Batch]:
        """Return everything there is after the positions; in batches only what comes for the first time."""
        self.polls.append(only)
        if back := self.broker.set_back(self.positions):
            self.positions |= back
            raise LogSetBackError(back)
        if self.fault is not None:
            raise self.fault
        await asyncio.sleep(self.hang_s)
        found = self._fetch(only)
        await asyncio.sleep(0 if found else timeout_ms / 1000)
        return found or self._fetch(only)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Note the offsets."""
        await asyncio.sleep(ROUND_TRIP_S)
        if self.refuse_commits:
            return False
        self.broker.committed |= offsets
        self.broker.commits.append(dict(offsets))
        return True

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue from another offset."""
        self.seeks.append((partition, offset))
        self._passed[partition] = max(self._passed.get(partition, 0), self.positions[partition])
        self.positions[partition] = offset

    def vitals(self) -> Vitals:
        """Look healthy."""
        now_us = VirtualClock().now_us()
        return Vitals(len(self.positions), sum(self.unread().values()), now_us, now_us, 0)

    def unread(self) -> dict[TopicPartition, int]:
        """Return what is behind, and by how much."""
        counts = {place: len(self.broker.logs[place]) - position for place, position in self.positions.items()}
        return {place: count for place, count in counts.items() if count > 0}

    async def stop(self, timeout_s: float) -> None:
        """Leave."""
        self.stopped = True

    async def _assign(self) -> None:
        assert self._rebalanced is not None
        committed = {partition: self.broker.committed.get(partition) for partition in self.partitions}
        starts = {**committed, **await self._rebalanced.on_assigned(committed)}
        self.positions = {partition: start or 0 for partition, start in starts.items()}

    def _fetch(self, only: frozenset[str] | None) -> list[Record | Batch]:
        found: list[Record | Batch] = []
        for partition, position in self.positions.items():
            if only is None or partition[0] in only:
                new = self.broker.logs[partition][position:][: self.most]
                self.positions[partition] = position + len(new)
                passed = self._passed.get(partition, 0)
                found += [record for record in new if record.offset < passed or self.packing is None]
                found += self.packing(record for record in new if record.offset >= passed) if self.packing else []
        return found


class FakeBroadcast:
    """Follows topics; `slow_s` passes before the first records come."""

    def __init__(self, broker: FakeBroker, topics: Iterable[str], slow_s: float = 0.0) -> None:
        self._broker = broker
        self._positions = {(topic, 0): 0 for topic in topics}
        self._slow_s = slow_s
        self.stopped = False
        self.caught_up = False

    async def start(self) -> None:
        """Connect."""
        await asyncio.sleep(self._slow_s)

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what has arrived."""
        assert not self.stopped, "a client may not be used once it is stopped"
        found = []
        for partition, position in self._positions.items():
            new = self._broker.logs[partition][position:]
            self._positions[partition] += len(new)
            found += new
        self.caught_up = True
        await asyncio.sleep(0 if found else timeout_ms / 1000)
        return found

    async def stop(self, timeout_s: float) -> None:
        """Disconnect, which takes its time."""
        self.stopped = True
        await asyncio.sleep(ROUND_TRIP_S)


class FakePositions:
    """Reads back a number of records instead of a window of time."""

    def __init__(self, records: int, end: int = 1_000_000, time_us: int = 0) -> None:
        self._records = records
        self.end = end
        self.time_us = time_us

    async def before(self, offsets: Mapping[TopicPartition, int], window_us: int) -> dict[TopicPartition, int]:
        """Return where to begin."""
        return {partition: max(0, offset - self._records) for partition, offset in offsets.items()}

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the logs end."""
        return dict.fromkeys(partitions, self.end)

    async def times(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return when the first records after them were written."""
        return dict.fromkeys(offsets, self.time_us)


class FakeRecent:
    """Knows the last records of all topics; `fault` is raised instead, if there is one."""

    def __init__(self, records: Sequence[Record] = (), fault: Exception | None = None) -> None:
        self._records = records
        self._fault = fault
        self.reads: list[tuple[str, int]] = []

    async def last(self, topic: str, count: int) -> Sequence[Record]:
        """Return the last ones."""
        self.reads.append((topic, count))
        await asyncio.sleep(ROUND_TRIP_S)
        if self._fault is not None:
            raise self._fault
        return self._records[-count:]


class FakeExecutors:
    """Runs no model; subclasses answer by `events`.

    Attributes:
        events: who is told.
    """

    def __init__(self) -> None:
        self._ready = asyncio.Event()

    def connect(self, events: ExecutorEvents, tasks: asyncio.TaskGroup) -> None:
        """Remember who is told."""
        self.events = events

    def later(self, seconds: float, tell: Callable[[], None]) -> None:
        """Tell something after a while; from then on whoever waits for models goes on."""
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, tell)
        loop.call_later(seconds, self._ready.set)

    def load(self, load: Load) -> None:
        """Never end."""

    def unload(self, unload: Unload) -> None:
        """Do nothing."""

    def predict(self, predict: Predict) -> None:
        """Never end."""

    def go_on(self) -> None:
        """Do nothing."""

    def ask_now(self, model: str, copy: int, rows: Tensor, patience_us: int) -> None:
        """Return None: nothing is predicted on the caller's thread."""

    async def loaded(self) -> None:
        """Return when something was told."""
        await self._ready.wait()

    async def stop(self) -> None:
        """Do nothing."""

    def statistics(self) -> Mapping[str, float]:
        """Return nothing."""
        return {}


class FaultyStore(MemoryStore):
    """A store in memory that can be down, slow, or lose answers.

    Attributes:
        slow_s: how long a round trip takes.
        most: states that one call can carry before its time is over.
        damaged: what is stored under these keys cannot be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slow_s = ROUND_TRIP_S
        self.most = 1_000_000
        self.damaged: set[StateKey] = set()
        self.down = False
        self.lose_answers = 0
        self.writes: list[WriteStates] = []
        self.reads: list[tuple[StateKey, ...]] = []

    async def read(self, keys: Iterable[StateKey]) -> StatesRead:
        """Read after a round trip."""
        self.reads.append(tuple(keys))
        await self._round_trip(len(self.reads[-1]))
        found = await super().read(self.reads[-1])
        damaged = {key: "is damaged" for key in found.states if key in self.damaged}
        states = {key: state for key, state in found.states.items() if key not in damaged}
        return found._replace(states=states, unreadable=damaged)

    async def offset(self, partition: int) -> int | None:
        """Ask after a round trip."""
        await self._round_trip()
        return await super().offset(partition)

    async def write(self, write: WriteStates, token: str) -> WriteResult:
        """Write after a round trip."""
        await self._round_trip(len(write.states))
        self.writes.append(write)
        verdict = await super().write(write, token)
        if self.lose_answers:
            self.lose_answers -= 1
            raise StoreUnavailableError("the answer was lost")
        return verdict

    async def _round_trip(self, states: int = 0) -> None:
        await asyncio.sleep(self.slow_s)
        if self.down or states > self.most:
            raise StoreUnavailableError("down" if self.down else "this takes too long")


@dataclass
class ScriptedKernel(Operator):
    """Does what `decide` says for each record; remembers what it was told.

    Attributes:
        decide: effects of one record.
        wakes: times (us) at which `on_timer` wants to be called, ascending.
    """

    decide: Callable[[Record], Effects] = field(default=lambda record: [echo(record)])
    wakes: list[int] = field(default_factory=list)
    timer: Callable[[int], Effects] = field(default=lambda _now_us: [])
    states: Callable[[Mapping[StateKey, PolicyState | None]], Effects] = field(default=lambda _states: [])
    window_us: int = 0
    others: frozenset[str] = frozenset()
    pauses: frozenset[str] = frozenset()
    calls: list[list[Record]] = field(default_factory=list)
    fired_us: list[int] = field(default_factory=list)
    starts: list[dict[int, int]] = field(default_factory=list)
    revoked: list[tuple[int, ...]] = field(default_factory=list)
    held: int = 0
    topics: frozenset[str] | None = None
    whole: frozenset[str] = frozenset()
    spread: object = None
    is_getting_ready: bool = False
    has_written: bool = False
    recalled: list[Record] = field(default_factory=list)
    last: Effects = field(default_factory=list)
    answers: list[dict[StateKey, PolicyState | None]] = field(default_factory=list)

    def needs(self) -> Needs:
        """Return what the script says."""
        wake = self.wakes[0] if self.wakes else None
        read_back = ReadBack(self.window_us, self.others, has_written=self.has_written)
        group = GroupNeeds(self.topics, self.spread, self.is_getting_ready, self.whole)
        return Needs(wake, self.held, self.pauses, read_back=read_back, group=group)

    def on_phase(self, phase: Phase, now_us: int) -> Effects:
        """Say the last words."""
        return self.last if phase is Phase.STOPPING else []

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Decide each record, and remember what was written before the first."""
        if self.has_written and records[0].topic in WRITTEN:
            assert not self.calls, "it comes before any record"
            self.recalled += records
            return []
        self.calls.append(list(records))
        return [effect for record in records for effect in self.decide(record)]

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Fire."""
        self.wakes = [wake for wake in self.wakes if wake > now_us]
        self.fired_us.append(now_us)
        return self.timer(now_us)

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Take states."""
        self.answers.append(dict(states))
        return self.states(states)

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Remember the starts, and what was taken."""
        begun = {number: start for number, start in starts.items() if start is not None}
        if begun or not starts:
            self.starts.append(begun)
        else:
            self.revoked.append(tuple(starts))

    def statistics(self) -> Mapping[str, float]:
        """Count calls."""
        return {"calls_total": float(len(self.calls))}

    def seen(self) -> list[bytes | None]:
        """Return the values of all records, in order."""
        return [record.value for call in self.calls for record in call]


def echo(record: Record, topic: str = "out") -> Emit:
    """Return the record for another topic; its acknowledgement completes it."""
    return Emit(topic, record.partition, record.key, record.value or b"", (record.position,))


def fake_ports(broker: FakeBroker, consumer: FakeConsumer, **more: object) -> Ports:
    """Return ports on a fake broker, in virtual time."""
    ports = {"transport": FakeTransport(broker), "clock": VirtualClock(), "encode": _encode, **more}
    return Ports(consumer=consumer, **ports)  # type: ignore[arg-type]


def _encode(report: Report) -> bytes:
    return repr(sorted(report.counters)).encode()
