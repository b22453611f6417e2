"""The loop of one role: reads, lets the kernel decide, performs what it asks for, commits what is done.

    consumer ─▶ reader ─▶ kernel.on_records ─▶ effects ─┬─▶ lanes ──▶ acknowledged ─▶ tracker ─▶ committer
    timer ────────────▶ kernel.on_timer ───────┤        ├─▶ keeper ─▶ store
    broadcast ────────▶ kernel.on_records ─────┘        └─▶ skipped ─────────────────▶ tracker

Everything runs on one event loop; kernel calls and `perform()` never wait, so nothing changes in the middle of them. The
timer does not depend on the reader: a poll may hang for seconds in a rebalance (5 s measured), deadlines may not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from schemas import topics
from streams.operators.contract import DeadLetter, Emit, FetchStates, Skip, WriteStates
from streams.runtime.assignment import Assignments
from streams.runtime.keeper import Keeper, KeeperEvents
from streams.runtime.lanes import LaneEvents, Lanes
from streams.runtime.metrics import Composer
from streams.runtime.offsets import OffsetTracker
from streams.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from schemas.records import PolicyState, Report
    from streams.operators.contract import Effects, Operator, Position, Record, StateKey
    from streams.runtime.clock import Clock
    from streams.runtime.dead_letters import DeadLetters
    from streams.runtime.metrics import MetricsHook
    from streams.runtime.ports import Broadcast, Consumer, LogPositions, Transport
    from streams.runtime.store import StateStore

_log = logging.getLogger(__name__)

COMMIT_S = 0.5
REPORT_S = 1.0
# How long a poll waits where there is nothing, and while only replies are wanted: then it must notice that the pressure
# is gone, at the price of 20 wake-ups a second.
POLL_MS = 500
THROTTLED_POLL_MS = 50
# Records a kernel gets at once: at 30 us each, timers and acknowledgements wait 15 ms at most.
SLICE = 512


@dataclass(frozen=True, slots=True)
class Role:
    """What a role is to Kafka.

    Attributes:
        name: as in reports.
        instance: unique in the deployment; the key of its reports.
        topics: consumed as a group; the first is the main one, whose partitions the kernel is told about.
        follows: read from the beginning by every member.
        replies: of `topics`: still read while the role holds as much as it may, since they complete what it holds.
        owns_states: the store's offsets say where the main topic starts, not the group's.
        outstanding: records in hand (delivered, not complete) at which only replies are read.
        drain_s: at a stop, how long replies are waited for so that what is in hand gets its outcome here.
    """

    name: str
    instance: str
    topics: tuple[str, ...]
    follows: tuple[str, ...] = ()
    replies: frozenset[str] = frozenset()
    owns_states: bool = False
    outstanding: int = 50_000
    drain_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ports:
    """What a loop is connected to; tests put fakes here."""

    consumer: Consumer
    transport: Transport
    clock: Clock
    dead_letters: DeadLetters
    encode: Callable[[Report], bytes]
    broadcast: Broadcast | None = None
    store: StateStore | None = None
    positions: LogPositions | None = None
    hooks: tuple[MetricsHook, ...] = ()


class RoleLoop:
    """Runs one kernel; see the module's picture."""

    def __init__(self, role: Role, kernel: Operator, ports: Ports, watchdog: Watchdog | None = None) -> None:
        self.ready = asyncio.Event()
        self._role = role
        self._kernel = kernel
        self._ports = ports
        self._watchdog = watchdog or Watchdog()
        self._tracker = OffsetTracker()
        self._counters: Counter[str] = Counter()
        self._composer = Composer(role.instance, role.name)
        self._hand: list[Record] = []
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us: int | None = None
        self._keeper = None if ports.store is None else Keeper(
            ports.store, KeeperEvents(self._on_states, self._tracker.complete, self._on_refused)
        )  # fmt: skip
        self._lanes: Lanes | None = None
