"""The definition of a role for the runtime, and the connections of its loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from schemas.records import Report
    from streams.operators.contract import Record
    from streams.runtime.clock import Clock
    from streams.runtime.kafka.merging import Strain
    from streams.runtime.metrics import MetricsHook
    from streams.runtime.ports import (
        Broadcast,
        Consumer,
        Executors,
        LogPositions,
        RecentRecords,
        TopicPartition,
        Transport,
    )
    from streams.runtime.stores.base import FeatureStore, StateStore


@dataclass(frozen=True, slots=True)
class Role:
    """A role, as Kafka sees it.

    Attributes:
        name: as in reports and group ids.
        instance: unique in the deployment; the key of its reports.
        topics: consumed as a group; the first is the main one, whose partitions the kernel gets.
        follows: read from the beginning by every member, before the first record of `topics`.
        replies: of `topics`: still read while the role holds as much as it may, since they complete what it holds.
        owns_states: the store's offsets say where the main topic starts, not the group's.
        outstanding: records in hand (delivered, not complete) from which on only replies are read.
        linger_s: pause after a poll that returned something, so that the next one takes more. A request costs about a
            millisecond of CPU whatever it carries (measured), so a role that nobody waits for should make few. One that
            is behind makes no pause: its polls are full. An idle process has polls to spare.
        idle_share: of that pause, what a role makes while its process is idle.
        drain_s: at a stop, how long replies are waited for so that what is in hand gets its outcome here.
        wrote: where there are records if the role has run before. If so, and nothing is committed, it begins as far
            before the ends of its topics as its kernel reads back, and not at the beginning.
        at_once: records a kernel gets in one call: at 30 us each, timers and acknowledgements wait 15 ms at most.
        slice_us: how long such a call may take, by what the last ones took, because others wait for it; 0 = any time.
        patient: topics that it writes for the log alone: records are gathered, so that requests are few.
        tells_process: whether its reports tell what the process costs: of roles that share one, one does.
    """

    name: str
    instance: str
    topics: tuple[str, ...]
    follows: tuple[str, ...] = ()
    replies: frozenset[str] = frozenset()
    owns_states: bool = False
    outstanding: int = 50_000
    linger_s: float = 0.0
    idle_share: float = 0.5
    drain_s: float = 0.0
    at_once: int = 512
    slice_us: int = 0
    wrote: frozenset[TopicPartition] = frozenset()
    patient: frozenset[str] = frozenset()
    tells_process: bool = True

    @property
    def main(self) -> str:
        """The topic whose partitions the kernel gets."""
        return self.topics[0]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often a loop does what it does regularly.

    Attributes:
        commit_s: until it commits again, tells the kernel what is unread, and looks whether its consumer lives.
        report_s: until it reports again.
    """

    commit_s: float = 0.5
    report_s: float = 1.0


USUAL: Final = Rhythm()


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside of a loop; tests put fakes here.

    Attributes:
        encode: turns a report into a value of topic `reports`.
        version: of this program, for the headers of dead letters.
        broadcast: needed where the role follows topics.
        store: needed where the kernel reads or writes states; closed by the loop.
        positions: needed where the role owns states or the kernel reads back.
        written: follows what the role writes, from a time (us) on; needed where the kernel is to recall it.
        recent: for a worker, which tries a version on what was asked last; None = on what it has answered itself.
        executors: needed where the kernel asks models.
        features: needed where the kernel reads features; closed by the loop.
        hooks: are given every report.
        prepare: is awaited before the kernel is given records that are followed: it imports what they name.
        strain: of the event loop; None = it is always pressed as hard as can be.
        rhythm: of what is done regularly.
    """

    consumer: Consumer
    transport: Transport
    clock: Clock
    encode: Callable[[Report], bytes]
    version: str = ""
    broadcast: Broadcast | None = None
    store: StateStore | None = None
    positions: LogPositions | None = None
    written: Callable[[int], Broadcast] | None = None
    recent: RecentRecords | None = None
    executors: Executors | None = None
    features: FeatureStore | None = None
    hooks: tuple[MetricsHook, ...] = ()
    prepare: Callable[[Sequence[Record]], Awaitable[None]] | None = None
    strain: Callable[[], Strain] | None = None
    rhythm: Rhythm = USUAL
