"""One process's connections to a broker in memory: it sends, follows and looks up.

A request takes one leg to the broker and its answer another. The process may be killed or stand still meanwhile; its
request arrives all the same.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from streams.runtime.errors import BrokerUnavailableError, RecordRefusedError, UnknownPartitionError
from streams.testing.virtual import later

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from random import Random

    from streams.operators.contract import Emit, EmitBatch, Record
    from streams.runtime.clock import Clock
    from streams.runtime.ports import TopicPartition
    from streams.testing.broker import FakeBroker

_T = TypeVar("_T")
# Records that one batch or one fetch of a partition carries at most.
BATCH = 500
# A broker that is away is noticed at once (nobody listens), or an attempt is given up after this (s).
GIVE_UP_S = 5.0
# What was sent without an answer may still arrive, so much later (s).
LATE_S = 5.0
# Of finished batches, the part that is refused, so that their records go one by one.
_UNTAKEN = 0.02
# Of the polls of a tail while the broker is away, the part that fails.
_TAIL_ENDS = 0.3
_stamp = attrgetter("timestamp_us")


@dataclass(eq=False, slots=True)
class Process:
    """Where a role runs.

    Attributes:
        name: unique among those that live and have lived.
        broker: that it speaks to.
        random: draws latencies and failures.
        clock: its own.
        dead: it was killed: nothing that it does is seen by anybody any more.
        fuse: so many of its messages arrive until it is `blown`; 0 = it never is.
        blown: is called when the last of them has arrived, and before that is answered.
        parks_s: a poll that finds nothing waits for so long if it may wait for less, unless something happens: a record
            comes, or an answer of the broker, partitions, a stop. Idle processes cost next to nothing then.
    """

    name: str
    broker: FakeBroker
    random: Random
    clock: Clock
    dead: bool = False
    fuse: int = 0
    blown: Callable[[], object] = bool
    parks_s: float = 0.0

    @property
    def bell(self) -> TopicPartition:
        """Where nothing is written, and polls of this process are woken."""
        return self.name, -1

    @property
    def answers(self) -> TopicPartition:
        """Where nothing is written, and polls are woken that wait for room, by each answer of the broker."""
        return self.name, -2

    def ring(self) -> None:
        """End what polls of this process wait for."""
        self.broker.wake(self.bell)

    def leg_s(self) -> float:
        """Draw how long a message to the broker takes, or one back."""
        return self.random.uniform(*self.broker.weather.leg_s)

    async def ask(self, happen: Callable[[], _T]) -> _T:
        """Have something happen at the broker; return its result, or raise what it raises."""
        if self.dead:
            raise BrokerUnavailableError("the process was killed")
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        later(self.leg_s(), lambda: self._arrive(happen, answer))
        return await answer

    async def ask_serving(self, partitions: Iterable[TopicPartition], happen: Callable[[], _T]) -> _T:
        """Have something happen that only the leaders of these partitions can do."""
        asked = tuple(partitions)

        def arrived() -> _T:
            for partition in asked:
                self.check(partition)
            return happen()

        return await self.ask(arrived)

    def check(self, partition: TopicPartition) -> None:
        """Raise if a partition cannot be reached now."""
        weather = self.broker.weather
        if weather.missing[partition[0]] and not weather.away:
            raise UnknownPartitionError(f"no topic {partition[0]}")
        if not weather.serves(partition):
            raise BrokerUnavailableError(f"{partition[0]}-{partition[1]} cannot be reached")

    def _arrive(self, happen: Callable[[], _T], answer: asyncio.Future[_T]) -> None:
        away = self.broker.weather.away
        delay_s = self.random.choice((0.0, GIVE_UP_S)) if away else self.leg_s()
        try:
            result = happen()
        except BrokerUnavailableError as fault:
            later(delay_s, lambda fault=fault: None if answer.done() else answer.set_exception(fault))  # type: ignore[misc]
        else:
            later(delay_s, lambda: self._answer(answer, result))
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                self.blown()

    def _answer(self, answer: asyncio.Future[_T], result: _T) -> None:
        if not answer.done():
            answer.set_result(result)
            self.broker.wake(self.answers)


class SimulatedTransport:
    """Implements `ports.Transport`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def send(self, topic: str, partition: int, emits: Sequence[Emit]) -> int:
        """Send one batch, which may be shorter than what is offered; see `ports.Transport`."""
        process = self._process
        broker, random, stamp_us = process.broker, process.random, process.clock.now_us()
        batch = [*emits[:BATCH]]
        if len(batch) > 1 and random.random() < 0.1:
            batch = batch[: random.randint(1, len(batch))]

        def write() -> None:
            if broker.weather.serves((topic, partition)):
                broker.write(topic, partition, batch, stamp_us)

        def arrived() -> int:
            if random.random() < broker.weather.unsure:
                later(random.choice((0.0, random.uniform(0.0, LATE_S))), write)
                raise BrokerUnavailableError(f"no answer about {topic}-{partition}")
            write()
            return len(batch)

        return await process.ask_serving([(topic, partition)], arrived)

    async def start(self) -> None:
        """Connect, if there is a broker."""
        await self._process.ask(self._answering)

    async def stop(self) -> None:
        """Do nothing."""

    def _answering(self) -> None:
        if self._process.broker.weather.away:
            raise BrokerUnavailableError("no broker")

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return how many partitions topics have that are there and can be asked about; see `KafkaTransport`."""
        broker, asked = self._process.broker, tuple(topics)
        weather = broker.weather

        def found() -> dict[str, int]:
            known = [topic for topic in asked if not (weather.away or weather.missing[topic])]
            return {topic: broker.partitions[topic] for topic in known if topic in broker.partitions}

        return await self._process.ask(found)

    def post(self, offers: Sequence[object]) -> list[None]:
        """Leave all to those that wait; see `ports.Transport`."""
        return [None] * len(offers)

    async def send_batch(self, batch: EmitBatch) -> None:
        """Send one finished batch, or refuse it now and then; see `ports.Transport`."""
        process = self._process
        broker, random, place = process.broker, process.random, batch[:2]

        def write() -> None:
            if broker.weather.serves(place):
                broker.write_batch(batch)

        def arrived() -> None:
            if random.random() < broker.weather.unsure:
                later(random.choice((0.0, random.uniform(0.0, LATE_S))), write)
                raise BrokerUnavailableError(f"no answer about {place[0]}-{place[1]}")
            write()

        if random.random() < _UNTAKEN:
            raise RecordRefusedError("not as it is")
        await process.ask_serving([place], arrived)


class SimulatedBroadcast:
    """Implements `ports.Broadcast`."""

    def __init__(self, process: Process, topics: Iterable[str], since_us: int = 0) -> None:
        self._process = process
        self._positions = dict.fromkeys((place for topic in topics for place in process.broker.places(topic)), 0)
        self._since_us = since_us
        self._ends: Mapping[TopicPartition, int] = {}

    @property
    def caught_up(self) -> bool:
        """Whether everything that was there at the start has been returned."""
        return all(self._positions[place] >= end for place, end in self._ends.items())

    async def start(self) -> None:
        """Find the ends; see `ports.Broadcast`."""
        self._ends = await SimulatedPositions(self._process).ends(tuple(self._positions))
        for place in self._positions:
            self._positions[place] = bisect_left(self._process.broker.logs[place], self._since_us, key=_stamp)

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what has arrived; see `ports.Broadcast`."""
        found = fetched(self._process.broker, self._positions)
        if not found:
            wait_s = max(timeout_ms / 1000, self._process.parks_s if self.caught_up else 0.0)
            await arrival(self._process.broker, self._positions, wait_s)
            found = fetched(self._process.broker, self._positions)
        return found

    async def stop(self, timeout_s: float) -> None:
        """Do nothing."""


class SimulatedTail:
    """Implements `streams.client_transport.TailLink`: it ends now and then when the broker goes away."""

    def __init__(self, process: Process, topics: Iterable[str]) -> None:
        self._process = process
        self._topics = tuple(topics)
        self._positions: dict[TopicPartition, int] = {}

    async def start(self) -> dict[str, int]:
        """Find the ends."""
        places = [place for topic in self._topics for place in self._process.broker.places(topic)]
        self._positions = dict(await SimulatedPositions(self._process).ends(places))
        return {topic: len(self._process.broker.places(topic)) for topic in self._topics}

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return what has arrived."""
        process = self._process
        if process.broker.weather.away and process.random.random() < _TAIL_ENDS:
            raise BrokerUnavailableError("reading has failed")
        found = fetched(process.broker, self._positions)
        if not found:
            bells = (*self._positions, process.bell)
            if await arrival(process.broker, bells, max(timeout_ms / 1000, process.parks_s)):
                await asyncio.sleep(process.leg_s())
            found = fetched(process.broker, self._positions)
        return found

    async def stop(self) -> None:
        """Do nothing."""


class SimulatedPositions:
    """Implements `ports.LogPositions`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def before(self, offsets: Mapping[TopicPartition, int], window_us: int) -> Mapping[TopicPartition, int]:
        """Return where a window before each offset begins; see `ports.LogPositions`."""
        logs = self._process.broker.logs

        def found() -> dict[TopicPartition, int]:
            return {place: _begin(logs[place], offset, window_us) for place, offset in offsets.items()}

        return await self._process.ask_serving(offsets, found)

    async def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where logs end; see `ports.LogPositions`."""
        logs = self._process.broker.logs
        return await self._process.ask_serving(partitions, lambda: {place: len(logs[place]) for place in partitions})

    async def times(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the time of the first record at each offset or after it; see `ports.LogPositions`."""
        broker = self._process.broker

        def found() -> dict[TopicPartition, int]:
            after = {place: broker.readable(place, offset) for place, offset in offsets.items()}
            return {place: records[0].timestamp_us for place, records in after.items() if records}

        return await self._process.ask_serving(offsets, found)


def fetched(
    broker: FakeBroker, positions: dict[TopicPartition, int], only: frozenset[str] | None = None
) -> list[Record]:
    """Return what can be read after positions, and move them on."""
    found: list[Record] = []
    for place, position in positions.items():
        end = len(broker.logs[place])
        if position < end and (only is None or place[0] in only) and broker.weather.serves(place):
            begin = max(position, broker.begins[place])
            positions[place] = min(begin + BATCH, end)
            found += broker.readable(place, begin, positions[place])
    return found


async def arrival(broker: FakeBroker, partitions: Iterable[TopicPartition], timeout_s: float) -> bool:
    """Wait until one of these partitions gets a record, at most for so long; returns whether one has."""
    wanted = tuple(partitions)
    waiting = broker.wait(wanted)
    timer = asyncio.get_running_loop().call_later(timeout_s, _over, waiting)
    try:
        return await waiting
    finally:
        timer.cancel()
        broker.forget(waiting, wanted)


def _over(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


def _begin(log: Sequence[Record], offset: int, window_us: int) -> int:
    """Return the first record of the window, as a look-up by timestamp finds it: of those that only grow."""
    if offset <= 0:
        return 0
    wanted_us = log[min(offset, len(log)) - 1].timestamp_us - window_us
    newest_us, grown = 0, []
    for record in log[:offset]:
        newest_us = max(newest_us, record.timestamp_us)
        grown.append(newest_us)
    return bisect_left(grown, wanted_us)
