"""What goes wrong in the driver: faults as values with a time, and the logs and the store that they happen to.

Crash                      ends a role; its uncommitted records are read again
Duplicate, Delay, Reorder  change the records produced to a topic
StoreDown, StoreLoss       take the store down for a while, or lose its last seconds
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from streams.operators.contract import Position, Record
from streams.runtime.stores.base import StateTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from schemas.records import PolicyState
    from streams.operators.contract import Emit, StateKey, WriteStates


_NOBODY: Final[Mapping[str, Callable[[Record], None]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Crash:
    """Kill a role at a time (µs after the start) and start it again from what it had committed."""

    at_us: int
    role: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Append every record of a topic twice, as a producer's retry does."""

    topic: str


@dataclass(frozen=True, slots=True)
class Delay:
    """Let every record of a topic become visible later."""

    topic: str
    by_us: int


@dataclass(frozen=True, slots=True)
class Reorder:
    """Swap neighbours of a topic: every other record is appended after the one that follows it."""

    topic: str


@dataclass(frozen=True, slots=True)
class StoreDown:
    """The store answers nothing in this interval (µs after the start)."""

    from_us: int
    to_us: int


@dataclass(frozen=True, slots=True)
class StoreLoss:
    """At a time, the store forgets its last `lost_us`, as Redis may with `appendfsync everysec`."""

    at_us: int
    lost_us: int


Fault: TypeAlias = Crash | Duplicate | Delay | Reorder | StoreDown | StoreLoss


class FaultyLogs:
    """The records of every partition, appended and seen as faults let them be.

    Args:
        places: topics and partitions that there are.
        faults: what goes wrong.
        appended: is called with each partition that got a record.
        hears: is called with each record of a topic, by topic.
    """

    def __init__(
        self,
        places: Iterable[tuple[str, int]],
        faults: Sequence[Fault],
        appended: Callable[[tuple[str, int]], None],
        hears: Mapping[str, Callable[[Record], None]] = _NOBODY,
    ) -> None:
        self._appended = appended
        self._hears = hears
        self._logs: dict[tuple[str, int], list[Record]] = {place: [] for place in places}
        self._first = dict.fromkeys(self._logs, 0)  # offsets of the first record that has not been let go of
        self._visible: dict[Position, int] = {}
        self._held: dict[tuple[str, int], tuple[Emit, bytes | None]] = {}
        self._reordered = {fault.topic for fault in faults if isinstance(fault, Reorder)}
        self._doubled = {fault.topic for fault in faults if isinstance(fault, Duplicate)}
        self._delays_us: dict[str, int] = defaultdict(int)
        for fault in faults:
            if isinstance(fault, Delay):
                self._delays_us[fault.topic] += fault.by_us

    def __getitem__(self, place: tuple[str, int]) -> Sequence[Record]:
        """Return all records of a partition."""
        return self._logs[place]

    def of(self, topic: str) -> list[Record]:
        """Return all records of a topic, partition by partition."""
        return [record for (name, _), log in sorted(self._logs.items()) if name == topic for record in log]

    def end(self, place: tuple[str, int]) -> int:
        """Return the offset that the next record of a partition gets."""
        return self._first[place] + len(self._logs[place])

    def drop(self, place: tuple[str, int], end: int) -> None:
        """Let the records of a partition go whose offset is below `end`."""
        log, first = self._logs[place], self._first[place]
        self._first[place] += min(len(log), end - first)
        del log[: end - first]

    def append(self, emit: Emit, value: bytes | None, now_us: int, dated_us: int | None = None) -> None:
        """Append a record, or hold it until the next one of its partition where a fault says so.

        Args:
            emit: what is written.
            value: of the record.
            now_us: the time.
            dated_us: the record's timestamp; None = the time.
        """
        place = emit.topic, emit.partition
        if place not in self._logs:
            raise LookupError(f"the topology has no partition {emit.partition} of topic {emit.topic}")
        if emit.topic not in self._reordered:
            self._add(emit, value, now_us, dated_us)
            return
        held = self._held.pop(place, None)
        if held is None:
            self._held[place] = (emit, value)
        else:
            self._add(emit, value, now_us)
            self._add(*held, now_us)

    def release(self, now_us: int) -> bool:
        """Append what is still held; returns whether anything was."""
        if not self._held:
            return False
        held, self._held = self._held, {}
        for emit, value in held.values():
            self._add(emit, value, now_us)
        return bool(held)

    def readable(self, place: tuple[str, int], position: int, now_us: int) -> list[Record]:
        """Return the records from an offset on, as far as they are visible."""
        ready = self._logs[place][position - self._first[place] :]
        if not self._visible:
            return ready
        return list(takewhile(lambda record: self._visible.get(record.position, 0) <= now_us, ready))

    def next_us(self, now_us: int) -> list[int]:
        """Return when records that are not visible yet will be."""
        return [visible_us for visible_us in self._visible.values() if visible_us > now_us]

    def _add(self, emit: Emit, value: bytes | None, now_us: int, dated_us: int | None = None) -> None:
        topic, partition, key, headers = emit.topic, emit.partition, emit.key, emit.headers
        place = topic, partition
        log, hears = self._logs[place], self._hears.get(topic)
        for _ in range(2 if topic in self._doubled else 1):
            record = Record(topic, partition, self._first[place] + len(log), dated_us or now_us, key, value, headers)
            log.append(record)
            if topic in self._delays_us:
                self._visible[record.position] = now_us + self._delays_us[topic]
            if hears is not None:
                hears(record)
        self._appended(place)


class FaultyStore(StateTable):
    """Policy states and offsets by partition, with their history if any of it is going to be lost.

    The history takes a copy of all states for each write.
    """

    def __init__(self, *, is_lossy: bool) -> None:
        super().__init__()
        self._is_lossy = is_lossy
        self._history: list[tuple[int, dict[StateKey, PolicyState], dict[int, int]]] = []
        self._writes = 0

    def write(self, write: WriteStates, now_us: int) -> bool:
        """Write states; False if the offset is not the one that they were folded from."""
        self._writes += 1
        before = (dict(self.states), dict(self.offsets)) if self._is_lossy else None
        if not self.compare_and_set(write, str(self._writes)).accepted:
            return False
        if before is not None:
            self._history.append((now_us, *before))
        return True

    def lose(self, since_us: int) -> None:
        """Forget what was written since then."""
        for at_us, states, offsets in self._history:
            if at_us >= since_us:
                self.states, self.offsets = states, offsets
                return
