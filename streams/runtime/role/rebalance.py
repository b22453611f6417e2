"""Which partitions are ours and where they start: tells consumer, tracker, store and kernel, in that order.

assigned ──▶ start = committed, or the store's offset ──▶ read from before it ──▶ kernel.on_partitions(starts)
revoked  ──▶ wait for acknowledgements, commit ──▶ kernel.on_partitions
refused  ──▶ the store has another offset: that partition starts over from there
ahead    ──▶ the store has learnt from records that the log does not have: its states are set aside, and the partition
             is folded anew from what is there. So states remain the fold of their log, and nothing is learnt twice

A group's offsets may be gone while its output is still there. Kafka forgets them after a week without members
(`offsets.retention.minutes`), or somebody deletes them. The role then starts near the end of its topics
(`recent_starts`), and does not repeat everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError, StoreUnavailableError
from streams.runtime.role.recall import recall
from streams.runtime.stopping import Deadline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from streams.operators.contract import Operator
    from streams.runtime.offsets import OffsetTracker
    from streams.runtime.ports import LogPositions, TopicPartition
    from streams.runtime.role.accumulator import Accumulator
    from streams.runtime.role.definition import Ports, Role
    from streams.runtime.role.poll_buffer import PollBuffer
    from streams.runtime.role.state_queue import StateQueue

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
NOTHING: Final[Mapping[TopicPartition, int]] = MappingProxyType({})

# Waiting for acknowledgements, a write and a commit before a hand-over: far less than a rebalance may take. Each step
# leaves these seconds to those after it.
HAND_OVER_S = 5.0
AFTER_FLUSH_S = 3.0
AFTER_SETTLING_S = 1.0
BACKOFF_S = 0.25
# How far back a topic is read that is new to a role whose topics change: no older query is still waited for.
NEWS_US = 600_000_000
# What is taken as committed of such a partition, so that its start is committed at once. Else a role that has read
# nothing of it would begin anew, behind what was written while it was away.
UNREAD = -1
# How often the end of a log is looked up before it is believed: a new leader may take a moment to know its own.
END_ATTEMPTS = 20


async def recent_starts(
    name: str,
    committed: Mapping[TopicPartition, int | None],
    wrote: frozenset[TopicPartition],
    positions: LogPositions,
    window_us: int,
) -> Mapping[TopicPartition, int]:
    """Return where to begin instead of at the beginning: a window before the logs end.

    Args:
        name: of the role, for its log.
        committed: by the group, of what is assigned.
        wrote: where the role has written before, if it has run.
        positions: looks up ends and times.
        window_us: how much before the ends is still of use.

    Returns:
        Nothing where something is committed, or the role has never written: then offsets are what they should be.

    Raises:
        BrokerUnavailableError: ask again later.
    """
    if not wrote or not committed or any(offset is not None for offset in committed.values()):
        return {}
    if not any((await positions.ends(wrote)).values()):
        return {}
    starts = await positions.before(await positions.ends([*committed]), window_us)
    _log.warning(
        "%s: nothing is committed, but it has run before: its group's offsets were deleted, or have expired. It begins"
        " %.0f s before the end of its topics; what is older and was not finished stays so",
        name,
        window_us / 1_000_000,
    )
    return starts


class RebalanceHandler:
    """Implements `ports.Rebalanced` for one loop.

    Args:
        role: whose partitions.
        kernel: gets the main topic's partitions.
        ports: consumer, store and positions are used.
        tracker: follows what is owned.
        accumulator: are flushed before a hand-over.
        state_queue: forgets what is no longer owned.
        buffer: the reader's; records of what is not ours, or waits, are taken out of it.
        ready: set once partitions have been assigned (none is fine, too: a standby).

    Attributes:
        asks_store: partitions wait for what the store says of their start.
        anew_total: how often a partition's states were set aside, as they were ahead of their log.
    """

    def __init__(
        self,
        role: Role,
        kernel: Operator,
        ports: Ports,
        tracker: OffsetTracker,
        accumulator: Accumulator,
        state_queue: StateQueue | None,
        buffer: PollBuffer,
        ready: asyncio.Event,
    ) -> None:
        self.asks_store = False
        self.anew_total = 0
        self._role = role
        self._kernel = kernel
        self._ports = ports
        self._tracker = tracker
        self._accumulator = accumulator
        self._state_queue = state_queue
        self._buffer = buffer
        self._ready = ready
        self._changing = asyncio.Lock()

    async def on_assigned(self, committed: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, int | None]:
        """Start the partitions; see `ports.Rebalanced`."""
        async with self._changing:
            positions = await self._begin(committed)
        if not self._ready.is_set():
            numbers = ", ".join(map(str, self._numbers(committed))) or "none: others have them, it stands by"
            _log.info("%s is ready; its partitions: %s", self._role.name, numbers)
        self._ready.set()
        return positions

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Hand the partitions over; see `ports.Rebalanced`."""
        async with self._changing:
            await self._end(partitions)

    async def on_refused(self, number: int, stored: int | None) -> None:
        """Start one partition over from what the store has."""
        self._kernel.on_partitions({number: None})
        partition = (self._role.main, number)
        generation = self._ports.consumer.generation
        async with self._changing:
            stored = (await self._on_log({partition: stored or 0}))[partition] or None
            position = (await self._read_from({partition: stored or 0}))[partition]
            if generation != self._ports.consumer.generation or partition not in self._tracker.assigned():
                return  # a rebalance has started it over, or taken it away
            self._buffer.drop([partition])
            self._tracker.assign(partition, stored or 0)
            self._own({number: stored})
            self._kernel.on_partitions({number: stored or 0})
            self._ports.consumer.seek(partition, position)

    def on_blocked(self, number: int) -> None:
        """Let one partition wait, with nothing of it in hand, until `on_refused` starts it over."""
        partition = (self._role.main, number)
        self._kernel.on_partitions({number: None})
        self._buffer.close(partition)
        if partition in self._tracker.assigned():
            self._tracker.assign(partition, self._tracker.position(partition))

    async def start_over(self, set_back: Mapping[TopicPartition, int]) -> None:
        """Read again everything that is not complete, with a kernel that remembers nothing of it.

        Args:
            set_back: where partitions begin whose logs go on below what was read of them.
        """
        generation = self._ports.consumer.generation
        async with self._changing:
            assigned = self._tracker.assigned()
            for partition in set_back.keys() & {*assigned}:  # what was complete is gone, and is not committed any more
                self._tracker.revoke(partition)
                self._tracker.assign(partition, set_back[partition], set_back[partition])
            committed = {partition: self._tracker.position(partition) for partition in assigned}
            await self._end(tuple(committed))
            if generation != self._ports.consumer.generation:
                return
            positions = {**committed, **await self._begin(committed, set_back)}
            for partition, position in positions.items():
                self._ports.consumer.seek(partition, position or 0)

    async def commit(self) -> None:
        """Commit what may be committed."""
        offsets = self._tracker.committable()
        if offsets and await self._ports.consumer.commit(offsets):
            self._tracker.committed(offsets)

    async def _begin(
        self, committed: Mapping[TopicPartition, int | None], set_back: Mapping[TopicPartition, int] = NOTHING
    ) -> dict[TopicPartition, int | None]:
        numbers = self._numbers(committed)
        recent = await self._recent(committed)
        starts = {**{partition: offset or 0 for partition, offset in committed.items()}, **recent}
        positions: dict[TopicPartition, int | None] = {**recent}
        if self._has_no_main:
            positions |= (recent := await self._recent_of_news(committed))
            starts |= recent
            for partition, offset in committed.items():
                self._tracker.assign(partition, starts[partition], UNREAD if offset is None else offset)
            self._kernel.on_partitions(dict.fromkeys(numbers, 0))
            return positions
        main = [(self._role.main, number) for number in numbers]
        if self._role.owns_states:
            stored = {partition: await self._stored(partition[1]) for partition in main}
            starts |= await self._on_log(stored, set_back)
        if self._role.owns_states or self._kernel.needs().read_back.us > 0:
            others = [p for p in committed if p[0] in self._kernel.needs().read_back.topics]
            positions |= await self._read_from({partition: starts[partition] for partition in (*main, *others)})
        for partition, offset in committed.items():
            self._tracker.assign(partition, starts[partition], offset)
        if self._role.owns_states:
            self._own({partition[1]: starts[partition] for partition in main})
        self._kernel.on_partitions({partition[1]: starts[partition] for partition in main})
        begun = {partition: starts[partition] for partition in main}
        await _persist(lambda: recall(self._role.name, begun, self._kernel, self._ports))
        return positions

    async def _end(self, partitions: Collection[TopicPartition]) -> None:
        self._buffer.drop(partitions)
        if not partitions:
            return
        deadline = Deadline.after(HAND_OVER_S, _now_s())
        if not await self._accumulator.flush(deadline.before(AFTER_FLUSH_S).left_s(_now_s())):
            _log.warning("handing over with unacknowledged records; their sources will be read again")
        numbers = self._main_numbers(partitions)
        if self._state_queue is not None and self._role.owns_states:
            self._state_queue.forget(numbers)
            await self._state_queue.settle(deadline.before(AFTER_SETTLING_S).left_s(_now_s()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline.at_s):
                await self.commit()
        for partition in partitions:
            self._tracker.revoke(partition)
        if self._state_queue is not None and self._role.owns_states:
            self._state_queue.forget(numbers)  # what was asked for meanwhile
        self._kernel.on_partitions(dict.fromkeys(numbers))

    def _own(self, starts: Mapping[int, int | None]) -> None:
        if self._state_queue is not None:
            self._state_queue.own(starts)

    @property
    def _has_no_main(self) -> bool:
        """Whether topics change: then none of them is the main one, and their partitions do not belong together."""
        return self._kernel.needs().group.topics is not None

    def _main_numbers(self, partitions: Iterable[TopicPartition]) -> list[int]:
        if self._has_no_main:
            return self._numbers(partitions)
        return sorted(number for topic, number in partitions if topic == self._role.main)

    def _numbers(self, partitions: Iterable[TopicPartition]) -> list[int]:
        """Return the main topic's partition numbers; all topics of a role must bring the same ones.

        Where topics change it returns all numbers: a rebalance takes everything and gives it anew.
        """
        if self._has_no_main:
            return sorted({number for _, number in partitions})
        by_topic: dict[str, set[int]] = {topic: set() for topic in self._role.topics}
        for topic, number in partitions:
            by_topic[topic].add(number)
        if len({frozenset(numbers) for numbers in by_topic.values()}) > 1:
            listed = ", ".join(f"{topic} {sorted(numbers)}" for topic, numbers in by_topic.items())
            raise MisconfiguredError(
                f"{self._role.name} was given different partitions ({listed}); make their counts equal"
            )
        return sorted(by_topic[self._role.main])

    async def _recent(self, committed: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, int]:
        """Return where to begin if the group's offsets were lost."""
        role, positions, window_us = self._role, self._ports.positions, self._kernel.needs().read_back.us
        if positions is None:
            return {}
        return await _persist(lambda: recent_starts(role.name, committed, role.wrote, positions, window_us))

    async def _recent_of_news(self, committed: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, int]:
        """Return where to begin with topics that this group has never read, but perhaps another one has."""
        positions = self._ports.positions
        whole = self._kernel.needs().group.whole
        news = [place for place, offset in committed.items() if offset is None and place[0] not in whole]
        if positions is None or not news:
            return {}
        return await _persist(lambda: _before_end(positions, news))

    async def _stored(self, number: int) -> int:
        store = self._ports.store
        assert store is not None, "a role that owns states has a store"
        self.asks_store = True
        try:
            return await _persist(lambda: store.offset(number)) or 0
        finally:
            self.asks_store = False

    async def _on_log(
        self, stored: Mapping[TopicPartition, int], set_back: Mapping[TopicPartition, int] = NOTHING
    ) -> dict[TopicPartition, int]:
        """Return where partitions go on: at their beginning where the store is ahead of the log.

        New records would count as applied, unseen, and what was applied is not there to be known again.

        Args:
            stored: the offset of each.
            set_back: where logs have gone on below what was read of them: they have grown beyond it since, perhaps.
        """
        ahead = {place: at for place, at in stored.items() if at > set_back.get(place, at)}
        ahead |= await self._beyond_end({place: at for place, at in stored.items() if place not in ahead})
        return {place: await self._anew(place, at) if place in ahead else at for place, at in stored.items()}

    async def _beyond_end(self, stored: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return those whose log ends before the stored offset, whoever is asked."""
        ahead = {place: at for place, at in stored.items() if at}
        positions = self._ports.positions
        assert positions is not None, "a role that owns states has log positions"
        for attempt in range(END_ATTEMPTS):
            if not ahead:
                break
            await asyncio.sleep(BACKOFF_S if attempt else 0)
            asked = tuple(ahead)
            ends = await _persist(lambda: positions.ends(asked))  # noqa: B023  # called before the next round
            ahead = {place: at for place, at in ahead.items() if at > ends[place]}
        return ahead

    async def _anew(self, place: TopicPartition, stored: int) -> int:
        """Set a partition's states aside; returns where it goes on: elsewhere if another process has been here."""
        store = self._ports.store
        assert store is not None, "a role that owns states has a store"
        if not await _persist(lambda: store.set_aside(place[1], stored)):
            return await self._stored(place[1])
        self.anew_total += 1
        _log.error(
            "%s-%d: the stored policy states are ahead of the log, at %d: the topic was deleted, or lost records. They "
            "are set aside, and it is folded anew from what is there",
            *place,
            stored,
        )
        return 0

    async def _read_from(self, starts: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        positions = self._ports.positions
        assert positions is not None, "a role that owns states or reads back has log positions"
        return await _persist(lambda: positions.before(starts, self._kernel.needs().read_back.us))


async def _before_end(positions: LogPositions, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
    return await positions.before(await positions.ends(partitions), NEWS_US)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _persist(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Ask until there is an answer: without it a partition cannot start at all."""
    while True:
        try:
            return await ask()
        except (StoreUnavailableError, BrokerUnavailableError) as fault:
            _log.warning("a partition waits for its start: %s", fault)
            await asyncio.sleep(BACKOFF_S)
