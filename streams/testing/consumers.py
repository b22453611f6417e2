"""A member of a consumer group on a broker in memory; several members of a group share its partitions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from streams.runtime.errors import BrokerUnavailableError, LogSetBackError
from streams.runtime.ports import Vitals
from streams.testing.connections import arrival, fetched
from streams.testing.groups import HEARTBEAT_S

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Mapping

    from streams.operators.contract import Batch, Record
    from streams.runtime.ports import Rebalanced, TopicPartition
    from streams.testing.connections import Process
    from streams.testing.groups import Group
    from streams.testing.packing import Packing

# How long a commit is waited for.
COMMIT_S = 5.0
_BACKOFF_S = 0.25
# A poll that reads not everything waits no longer for what would wake it: room in a store comes without an answer.
_PRESSED_S = 5.0


class SimulatedConsumer:
    """Joins, polls, commits and seeks as `runtime.kafka_consumer` does; implements `ports.Consumer`.

    Args:
        process: where it runs.
        topics: that it reads.
        group: of which it is a member.
        packing: which records it hands out in whole batches; None = none.
    """

    def __init__(self, process: Process, topics: tuple[str, ...], group: str, packing: Packing | None = None) -> None:
        self._packing = packing
        self._passed: dict[TopicPartition, int] = {}  # what is read again, below these, comes record by record
        self._process = process
        self._topics = topics
        self._group: Group = process.broker.group(group)
        self._rebalanced: Rebalanced | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._highs: dict[TopicPartition, int] = {}
        self._owned: tuple[TopicPartition, ...] = ()
        self._is_ready = False
        self._must_join = asyncio.Event()
        self._member_generation = 0
        self._generation = 0
        self._fault: BaseException | None = None
        self._jobs: list[asyncio.Task[None]] = []
        self._beating: asyncio.TimerHandle | None = None
        self._polled_us = self._progressed_us = process.clock.now_us()

    @property
    def generation(self) -> int:
        """Number of the assignment."""
        return self._generation

    async def start(self, rebalanced: Rebalanced) -> None:
        """Join the group; see `ports.Consumer`."""
        places = [place for topic in self._topics for place in self._process.broker.places(topic)]
        weather = self._process.broker.weather

        def known() -> None:
            missing = [topic for topic, _ in places if weather.missing[topic]]
            if missing or weather.away:
                raise BrokerUnavailableError(f"no topic {missing[0]}" if missing else "no broker")

        await self._process.ask(known)
        self._rebalanced = rebalanced
        running = asyncio.get_running_loop()
        self._jobs = [running.create_task(self._coordinate())]
        self._beating = running.call_later(HEARTBEAT_S, self._beat)

    def subscribe(self, topics: frozenset[str]) -> None:
        """Read these topics from now on; see `ports.Consumer`."""
        self._topics = tuple(sorted(topics))
        self._must_join.set()

    def rejoin(self) -> None:
        """Have partitions spread anew; see `ports.Consumer`."""
        self._must_join.set()

    async def poll(self, timeout_ms: int, only: frozenset[str] | None = None) -> list[Record | Batch]:
        """Return everything fetched; see `ports.Consumer`."""
        found = self._take(only)
        if not found:
            wanted = [place for place in self._positions if only is None or place[0] in only]
            parks_s = self._process.parks_s if only is None else min(_PRESSED_S, self._process.parks_s)
            bells = (self._process.bell,) if only is None else (self._process.bell, self._process.answers)
            if await arrival(self._process.broker, (*wanted, *bells), max(timeout_ms / 1000, parks_s)):
                await asyncio.sleep(self._process.leg_s())
            found = self._take(only)
        if self._fault is not None:
            raise self._fault
        return [*found] if self._packing is None else self._packed(found, self._packing)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit next offsets; see `ports.Consumer`."""
        weather, group = self._process.broker.weather, self._group
        generation = self._member_generation

        def arrived() -> bool:
            if weather.away:
                raise BrokerUnavailableError("no broker")
            if weather.deaf[group.name]:
                return False
            return group.commit(self._process.name, generation, offsets)

        try:
            async with asyncio.timeout(COMMIT_S):
                return await self._process.ask(arrived)
        except (TimeoutError, BrokerUnavailableError):
            return False

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue from another offset; see `ports.Consumer`."""
        if partition in self._positions:
            self._passed[partition] = max(self._passed.get(partition, 0), self._positions[partition])
            self._positions[partition] = offset
            self._process.ring()

    def vitals(self) -> Vitals:
        """Return signs of life."""
        return Vitals(len(self._positions), self._lag(), self._polled_us, self._progressed_us, 0)

    def unread(self) -> dict[TopicPartition, int]:
        """Return how many records are to come; of partitions that cannot be reached that is not known."""
        broker = self._process.broker
        counts = {
            place: len(broker.logs[place]) - position if broker.weather.serves(place) else 1
            for place, position in self._positions.items()
        }
        return {place: count for place, count in counts.items() if count > 0}

    async def stop(self, timeout_s: float) -> None:
        """Leave the group; see `ports.Consumer`."""
        if self._beating is not None:
            self._beating.cancel()
        for job in self._jobs:
            job.cancel()
        if self._jobs and not self._process.dead:
            try:
                await self._process.ask(self._leave)
            except BrokerUnavailableError:
                return  # its session will end

    def _leave(self) -> None:
        if self._process.broker.weather.away:
            raise BrokerUnavailableError("no broker")
        self._group.leave(self._process.name)

    def _take(self, only: frozenset[str] | None) -> list[Record]:
        self._polled_us = self._process.clock.now_us()
        if not self._is_ready:
            return []
        broker = self._process.broker
        if back := broker.set_back(self._positions):
            self._positions |= back
            raise LogSetBackError(back)
        found = fetched(broker, self._positions, only)
        for place in self._positions:
            if broker.weather.serves(place):
                self._highs[place] = len(broker.logs[place])
        if found or not self._lag():
            self._progressed_us = self._polled_us
        return found

    def _packed(self, found: list[Record], packing: Packing) -> list[Record | Batch]:
        again = [record for record in found if record.offset < self._passed.get(record[:2], 0)]
        return [*again, *packing(record for record in found if record.offset >= self._passed.get(record[:2], 0))]

    def _lag(self) -> int:
        return sum(max(0, self._highs.get(place, 0) - position) for place, position in self._positions.items())

    def _beat(self) -> None:
        """Say regularly that this member lives.

        That arrives at once, as nobody can tell the difference; that it is no member any more takes its time to hear.
        """
        process, generation = self._process, self._member_generation
        if process.dead:
            return
        later_s = asyncio.get_running_loop().call_later
        self._beating = later_s(HEARTBEAT_S, self._beat)
        if not generation or self._must_join.is_set() or process.broker.weather.away:
            return
        if not self._group.heartbeat(process.name, generation):
            later_s(process.leg_s() + process.leg_s(), self._hear_of, generation)

    def _hear_of(self, generation: int) -> None:
        """Join again, if what was heard is about what is still so."""
        if generation == self._member_generation:
            self._must_join.set()

    async def _coordinate(self) -> None:
        """Join, and again whenever the group says so."""
        while True:
            self._must_join.clear()
            self._is_ready = False
            self._generation += 1
            await self._kept(self._revoked())
            self._member_generation, self._owned = await self._joined()
            await self._kept(self._assigned(self._owned))
            await self._must_join.wait()

    async def _kept(self, callback: Coroutine[None, None, None]) -> None:
        """Run a callback; what it raises, the next poll raises."""
        try:
            await callback
        except Exception as fault:  # noqa: BLE001 - whatever it is, it ends the role
            self._fault = fault
        self._process.ring()

    async def _revoked(self) -> None:
        assert self._rebalanced is not None
        await self._rebalanced.on_revoked(self._owned)
        self._positions.clear()
        self._passed.clear()
        self._highs.clear()
        self._member_generation = 0

    async def _joined(self) -> tuple[int, tuple[TopicPartition, ...]]:
        """Join; returns once all members have."""
        while True:
            try:
                joining = await self._process.ask(self._join)
            except BrokerUnavailableError:
                await asyncio.sleep(_BACKOFF_S)
                continue
            found = await joining
            await asyncio.sleep(self._process.leg_s())
            return found

    def _join(self) -> asyncio.Future[tuple[int, tuple[TopicPartition, ...]]]:
        if self._process.broker.weather.away:
            raise BrokerUnavailableError("no broker")
        return self._group.join(self._process.name, self._topics)

    async def _assigned(self, assigned: Collection[TopicPartition]) -> None:
        assert self._rebalanced is not None
        committed = await self._committed(assigned)
        starts = {**committed, **await self._rebalanced.on_assigned(committed)}
        self._positions = {place: starts[place] or 0 for place in assigned}
        self._is_ready = True

    async def _committed(self, assigned: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        def arrived() -> dict[TopicPartition, int | None]:
            if self._process.broker.weather.away:
                raise BrokerUnavailableError("no broker")
            return {place: self._group.committed.get(place) for place in assigned}

        while True:
            try:
                return await self._process.ask(arrived)
            except BrokerUnavailableError:
                await asyncio.sleep(_BACKOFF_S)
