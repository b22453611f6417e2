"""The damage of an attack, seen from outside: roles that ended, memory, dead letters, and wrong states."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
from confluent_kafka import TopicPartition

from schemas import topics
from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.records import Observations, PolicyState
from streams.operators.ids import SeenIds
from streams.operators.join.kernel import JoinerSettings
from streams.operators.learn.bounds import LessonCounts
from streams.operators.learn.fold import taught
from streams.runtime.stores.base import unstamped
from streams.runtime.stores.redis import OFFSET_FIELD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from load.hostile.arena import Arena

_CAUSE = "skysail.error.cause"
_CODEC = Codec()
_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class Before:
    """Restarts and resident bytes of each role at one moment, from which on its peak is counted anew."""

    restarts: Mapping[str, int]
    rss_bytes: Mapping[str, int]

    @classmethod
    def of(cls, arena: Arena) -> Self:
        """Look now."""
        pids = arena.system.pids
        for pid in pids.values():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): the peak of resident memory starts anew
        return cls(
            dict(arena.system.restarts), {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}
        )

    def ended(self, arena: Arena, expected: Iterable[str]) -> dict[str, int]:
        """Return the roles that have ended since, and how often, without those that were to."""
        expected = {*map(arena.system.process_of, expected)}
        now = arena.system.restarts
        since = {name: now.get(name, 0) - before for name, before in self.restarts.items()}
        return {name: count for name, count in since.items() if count > (name in expected)}

    def grown(self, arena: Arena) -> dict[str, int]:
        """Return by how many bytes each role's memory was at its peak over what it had."""
        pids = arena.system.pids
        return {name: _peak(pids[name]) - rss for name, rss in self.rss_bytes.items() if name in pids}


def _peak(pid: int) -> int:
    """Return the most resident bytes of a process (proc(5): VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


class DeadLetters:
    """Counts the dead letters of all client topics by topic and cause."""

    def __init__(self, arena: Arena, of: Iterable[str]) -> None:
        self._consumer = arena.consumer()
        self._consumer.assign([TopicPartition(arena.full(topics.dead_letters(name)), 0, 0) for name in of])

    def take(self) -> Counter[str]:
        """Return what has come since the last time."""
        found: Counter[str] = Counter()
        while messages := self._consumer.consume(1000, 0.3):
            for message in messages:
                headers: dict[str, object] = dict(message.headers() or ())
                cause = headers.get(_CAUSE)
                found[cause.decode(errors="replace") if isinstance(cause, bytes) else "none"] += 1
        return found

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


@dataclass(slots=True)
class _Fold:
    """One partition of `observations`, folded so far."""

    offset: int = 0
    seen: SeenIds = field(default_factory=lambda: SeenIds(JoinerSettings().memory_us))
    states: dict[str, PolicyState] = field(default_factory=dict)
    counts: LessonCounts = field(default_factory=LessonCounts)

    def take(self, observations: Observations, now_us: int) -> None:
        """Fold those of a record that are the first of their query."""
        for seen in observations.items:
            reach = self.counts.reach(seen, now_us)
            if self.seen.add(seen.query_id, now_us):
                self.states.update(taught(self.states, seen, now_us, JoinerSettings().memory_us, reach))


class Learnt:
    """Folds the log of a deployment as it grows, beside its learner."""

    def __init__(self, arena: Arena, partitions: int) -> None:
        self._arena = arena
        self._folds = {number: _Fold() for number in range(partitions)}
        self._consumer = arena.consumer()

    async def faults(self) -> list[str]:
        """Return a sentence for each stored state that is not the fold of its log up to the stored offset."""
        found = []
        for partition, its in self._folds.items():
            offset, stored = await self._stored(partition)
            self._advance(partition, its, offset)
            found += [f"partition {partition}: {text}" for text in _differences(its.states, stored)]
        return found

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    async def _stored(self, partition: int) -> tuple[int, Mapping[str, bytes]]:
        async with self._arena.redis() as client:
            found: dict[Any, Any] = await client.hgetall(f"{{{self._arena.prefix}:{partition}}}:states")
        offset = found.pop(OFFSET_FIELD.encode(), b"").partition(b":")[0]
        return int(offset or 0), {name.decode(): unstamped(value) for name, value in found.items()}

    def _advance(self, partition: int, its: _Fold, until: int) -> None:
        """Fold the log up to an offset."""
        if its.offset >= until:
            return
        self._consumer.assign([TopicPartition(self._arena.full(topics.OBSERVATIONS), partition, its.offset)])
        while its.offset < until:
            messages = self._consumer.consume(min(1000, until - its.offset), _ANSWER_S)
            if not messages:
                raise TimeoutError(f"observations-{partition} holds nothing at {its.offset}, stored is {until}")
            for message in messages:
                its.take(_CODEC.decode(Observations, message.value()), message.timestamp()[1] * 1000)
                its.offset = (message.offset() or 0) + 1


def _differences(folded: Mapping[str, PolicyState], stored: Mapping[str, bytes]) -> Iterator[str]:
    for name in sorted(folded.keys() | stored.keys()):
        if name not in stored:
            yield f"{name!r} is not stored"
        elif name not in folded:
            yield f"{name!r} is stored, and nothing taught it"
        elif _CODEC.encode(folded[name]) != stored[name]:
            yield f"{name!r} is stored after {_lessons(stored[name])} lessons, folded after {folded[name].version}"


def _lessons(stored: bytes) -> str:
    try:
        return str(_CODEC.decode(PolicyState, stored).version)
    except DecodeError as error:
        return f"an unknown number of ({error})"
