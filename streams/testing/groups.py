"""A consumer group as its coordinator sees it: members, generations, ownership, commits.

    join ─▶ everybody is asked to join again ─▶ all have, or the time is up ─▶ a new generation, partitions by range

A member that is silent for a session's time is removed. Its partitions go to the others, and its commits are refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from streams.testing.virtual import later

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streams.runtime.ports import TopicPartition

SESSION_S = 10.0
REBALANCE_S = 12.0
HEARTBEAT_S = 3.0


class _GroupWeather(Protocol):
    @property
    def away(self) -> int: ...


class _GroupBroker(Protocol):
    """What a group needs of its broker."""

    @property
    def weather(self) -> _GroupWeather: ...

    def places(self, topic: str) -> list[TopicPartition]: ...


@dataclass(slots=True)
class Membership:
    """One member.

    Attributes:
        topics: that it reads.
        seen_s: when it was last heard of.
        joining: is given the generation and its partitions, while it waits for them.
    """

    topics: tuple[str, ...]
    seen_s: float
    joining: asyncio.Future[tuple[int, tuple[TopicPartition, ...]]] | None = None


@dataclass(slots=True)
class Group:
    """One group. All calls are as if they had arrived at the coordinator now.

    Attributes:
        committed: next offsets.
        watching: is called with every accepted commit.
    """

    name: str
    broker: _GroupBroker
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    watching: list[Callable[[str, Mapping[TopicPartition, int]], None]] = field(default_factory=list)
    generation: int = 0
    members: dict[str, Membership] = field(default_factory=dict)
    rebalancing: bool = False
    _due: asyncio.TimerHandle | None = None

    def join(self, member: str, topics: tuple[str, ...]) -> asyncio.Future[tuple[int, tuple[TopicPartition, ...]]]:
        """Take a member in, or again; what is returned is done when everybody has joined."""
        joining: asyncio.Future[tuple[int, tuple[TopicPartition, ...]]] = asyncio.get_running_loop().create_future()
        if member not in self.members:
            self.members[member] = Membership(topics, self._now_s())
            self._look_later(member, SESSION_S)
        self.members[member].joining = joining
        self.members[member].topics = topics
        self._begin()
        self._complete_if_all()
        return joining

    def heartbeat(self, member: str, generation: int) -> bool:
        """Hear of a member; False: it has to join again."""
        known = self.members.get(member)
        if known is None:
            return False
        known.seen_s = self._now_s()
        return generation == self.generation and not self.rebalancing

    def leave(self, member: str) -> None:
        """Let a member go."""
        if self.members.pop(member, None) is not None:
            self._begin()
            self._complete_if_all()

    def commit(self, member: str, generation: int, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit next offsets; False from who is no member of this generation."""
        if member not in self.members or generation != self.generation:
            return False
        self.committed |= offsets
        for watch in self.watching:
            watch(self.name, offsets)
        return True

    def _begin(self) -> None:
        if not self.rebalancing:
            self.rebalancing = True
            self._due = later(REBALANCE_S, self._complete)

    def _complete_if_all(self) -> None:
        if self.rebalancing and all(known.joining is not None for known in self.members.values()):
            self._complete()

    def _complete(self) -> None:
        """Begin a generation with those who have joined."""
        if self._due is not None:
            self._due.cancel()
        self.members = {name: known for name, known in self.members.items() if known.joining is not None}
        self.rebalancing = False
        self.generation += 1
        names = sorted(self.members)
        for place, name in enumerate(names):
            known = self.members[name]
            joining, known.joining, known.seen_s = known.joining, None, self._now_s()
            if joining is not None and not joining.done():
                joining.set_result((self.generation, self._range(known.topics, place, len(names))))

    def _range(self, topics: tuple[str, ...], place: int, count: int) -> tuple[TopicPartition, ...]:
        """Return a member's share: neighbouring partitions, the same numbers of every topic."""
        found: list[TopicPartition] = []
        for topic in topics:
            places = self.broker.places(topic)
            each, more = divmod(len(places), count)
            begin = place * each + min(place, more)
            found += places[begin : begin + each + (place < more)]
        return tuple(found)

    def _look_later(self, member: str, delay_s: float) -> None:
        later(max(delay_s, 0.001), lambda: self._look(member))

    def _look(self, member: str) -> None:
        """Let a member go that was not heard of; while the broker is away it hears nobody, and blames nobody for it."""
        known = self.members.get(member)
        if known is None:
            return
        if self.broker.weather.away or known.joining is not None:
            known.seen_s = self._now_s()
        left_s = known.seen_s + SESSION_S - self._now_s()
        if left_s > 0:
            self._look_later(member, left_s)
        else:
            self.leave(member)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
