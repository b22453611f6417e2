"""Asks a contender and takes its answers as cheaply as librdkafka allows, so that the harness limits no result.

A backlog is written in one go, and librdkafka's threads hold the answers until all are there. At a rate, one thread
alternates between sending and taking. Bytes and times are kept, and judged after the end.
"""

from __future__ import annotations

import itertools
import time
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from load.harness import arrivals
from load.harness.aggregates import drain_rate
from load.harness.gc_off import frozen
from load.harness.openloop import pace
from load.harness.probes import Learning
from load.harness.processes import listening, rest, total_cpu_s
from load.harness.wire import Wire, linger_ms
from load.harness.workload import Rows
from load.research.peers.answer_audit import Ledger, Tally
from load.research.peers.running import APPLICATION
from schemas import topics as names
from schemas.codec import Codec
from schemas.framing import peek_id
from schemas.records import Feedback
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.harness.openloop import Asked
    from load.harness.system import Stage
    from load.research.peers.wire_formats import WireFormat

    Record = tuple[str, bytes, bytes]
    from collections.abc import Iterator

    from load.research.peers.running import Ground, Running

    Taken = tuple[int, bytes]

_READY_S = 90.0
_RETRY_S = 0.25
_LOOK_S = 0.02
_QUIET_S = 2.0  # no answer for so long: what is missing then is lost
SLO_MS = 100.0
_BACKLOG_SLO_MS = 600_000.0  # a backlog waits; with a shorter one Skysail would answer it by defaults
_BACKLOG_LINGER_MS = 5.0
_COMMIT_S = 0.6  # after the last answer: the commit belongs to the work
# Queries are made before they are due: so long for each, and a little to spare.
_MAKING_US = 40
_LEAD_US = 50_000


@dataclass(slots=True)
class Asking:
    """Makes queries, notes them in a ledger, and knows the truth about them."""

    rows: Rows
    wire_format: WireFormat
    ledger: Ledger
    codec: Codec = field(default_factory=Codec)

    def ask(self, index: int, intended_us: int) -> tuple[Asked, Record]:
        """Return query number `index` and its record."""
        asked = self.rows(index, intended_us)
        query_id = asked.query.query_id
        self.ledger.asked(query_id, index % len(self.rows.inputs), intended_us)
        return asked, (names.QUERIES, query_id.encode(), self.wire_format.query(asked.query))

    def tell(self, asked: Asked, now_us: int) -> Record:
        """Return the record with the truth about a query."""
        query_id = asked.query.query_id
        feedback = Feedback(query_id, label=asked.label, sent_us=now_us)
        return names.FEEDBACK, query_id.encode(), self.codec.encode(feedback)


def backlog(asking: Asking, count: int, now_us: int, *, feedback: bool) -> list[Record]:
    """Return all records of a backlog; feedback goes with the queries, so that the client delays no role."""
    records = []
    for index in range(count):
        asked, record = asking.ask(index, now_us)
        records.append(record)
        if feedback:
            records.append(asking.tell(asked, now_us))
    return records


class Side:
    """Sends queries when they are due (`load.harness.openloop`); keeps when each answer was taken and its bytes.

    Args:
        wire: where; it follows the answers.
        asking: makes the records.
        intended_us: when each query is meant to be sent; queries and feedback are made beforehand.
        now_us: the clock.
        feedback: whether the truth follows each answer, which must be one of Skysail's.

    Attributes:
        taken: `(arrived_us, value)` of each answer.
        late_us: how late the latest query was sent.
    """

    def __init__(
        self, wire: Wire, asking: Asking, intended_us: Sequence[int], now_us: Callable[[], int], *, feedback: bool
    ) -> None:
        self._wire, self._now_us, self._asking = wire, now_us, asking
        made = [asking.ask(index, at_us) for index, at_us in enumerate(intended_us)]
        self._records = [record for _, record in made]
        truths = (
            [asking.tell(asked, at_us) for (asked, _), at_us in zip(made, intended_us, strict=True)] if feedback else []
        )
        self._untold = {asked.query.query_id: truth for (asked, _), truth in zip(made, truths, strict=False)}
        self.taken: list[tuple[int, bytes]] = []
        self.late_us = 0

    def send(self, index: int, intended_us: int) -> None:
        """Send query number `index`."""
        self._wire.produce(*self._records[index], self._asking.wire_format.headers)
        self.late_us = max(self.late_us, self._now_us() - intended_us)

    def turn(self, wait_s: float) -> None:
        """Take what has arrived, waiting at most `wait_s` for the first of it."""
        arrived = self._wire.values(wait_s)
        now_us = self._now_us()
        self.taken += [(now_us, value or b"") for value in arrived]
        if self._untold:
            self._tell(len(arrived))

    def take(self, wait_s: float) -> int:
        """Take a turn; returns how many answers have been taken."""
        self.turn(wait_s)
        return len(self.taken)

    def _tell(self, count: int) -> None:
        """Send feedback on the latest `count` answers."""
        for _, value in self.taken[len(self.taken) - count :]:
            truth = self._untold.pop(peek_id(value), None)
            if truth is not None:
                self._wire.produce(*truth, patient=True)


class Part(NamedTuple):
    """The result of one backlog or one stretch.

    Attributes:
        tally: by id.
        rate_per_s: of answers: over the length of a stretch; of a backlog, until the broker had 95 % of them.
        cpu_s: of all processes of the system.
        late_us: how late the sender was at worst.
        settled: whether all was answered or nothing more came; False = time was up.
        services_cpu_s: of broker and Redis, as far as they are on this machine; what they do for the client is in it.
        learnt_per_s: queries of a backlog until all feedback is learnt and committed; None = nothing learns.
    """

    tally: Tally
    rate_per_s: float
    cpu_s: float
    late_us: int
    settled: bool
    services_cpu_s: float = 0.0
    learnt_per_s: float | None = None

    @property
    def cpu_us_per_query(self) -> float:
        """CPU of all processes of the system for each answered query (us)."""
        return self.cpu_s / max(1, self.tally.answered) * 1e6

    @property
    def services_cpu_us_per_query(self) -> float:
        """CPU of broker and Redis for each answered query (us)."""
        return self.services_cpu_s / max(1, self.tally.answered) * 1e6


@dataclass(slots=True)
class Client:
    """One client of one running contender.

    Args:
        ground: the rows and the truth.
        running: whom it asks.
        wire_format: how.
        feedback: whether it tells the truth after each answer.
        application: whom its queries ask.
        slo_ms: what its queries carry, those of a backlog apart.
    """

    ground: Ground
    running: Running
    wire_format: WireFormat
    feedback: bool = False
    application: str = APPLICATION
    slo_ms: float = SLO_MS
    _seeds: Iterator[int] = field(default_factory=itertools.count)
    _now_us: Callable[[], int] = field(default_factory=lambda: SystemClock().now_us)

    def ready(self) -> None:
        """Return once an answer has come.

        Raises:
            TimeoutError: none has.
            PeerFailedError: the contender has ended.
        """
        rows, end_s = self._rows(self.slo_ms), time.monotonic() + _READY_S
        with closing(self._wire(0)) as wire:
            for index in itertools.count():
                self.running.pids()
                query = rows(index, self._now_us()).query
                wire.produce(
                    names.QUERIES, query.query_id.encode(), self.wire_format.query(query), self.wire_format.headers
                )
                if wire.poll(_RETRY_S):
                    return
                if time.monotonic() > end_s:
                    raise TimeoutError(f"no answer within {_READY_S:g} s")

    def backlog(self, count: int, limit_s: float) -> Part:
        """Write `count` queries at once and wait for their answers, which the broker stamps when it appends them.

        Where there is feedback, also until all of it is learnt and committed.
        """
        asking, wire = self._asking(_BACKLOG_SLO_MS), self._wire(_BACKLOG_LINGER_MS)
        records = backlog(asking, count, self._now_us(), feedback=self.feedback)
        taken: list[Taken] = []

        def take(quiet_s: float) -> None:
            taken.extend((arrival.timestamp_us, arrival.value or b"") for arrival in wire.rest(quiet_s))

        learning = Learning(self.ground.stage, self.running.prefix) if self.feedback else None
        try:
            before, start_us = self._cpu_s(), self._now_us()
            for record in records:
                wire.produce(*record, self.wire_format.headers, patient=record[0] == names.FEEDBACK)
            settled = self._wait(lambda: _appended(wire), count, limit_s)
            learnt_us = learning.over_us(count, limit_s) if learning else 0
            self._rest()
            cpu = self._cpu_s() - before
            take(_QUIET_S / 4)
            tally = _judged(asking.ledger, taken, take)
        finally:
            wire.close()
        rate = drain_rate((appended_us for appended_us, _ in taken), start_us, count)
        learnt = count / (learnt_us - start_us) * 1e6 if learnt_us else 0.0
        return Part(tally, rate, cpu.system_s, 0, settled, cpu.services_s, learnt if learning else None)

    def stretch(self, rate: float, seconds: float, limit_s: float) -> Part:
        """Send Poisson arrivals at `rate` a second and wait for the last answers."""
        asking = self._asking(self.slo_ms)
        with frozen(), closing(self._wire(linger_ms(rate))) as wire:
            offsets_us = list(arrivals.until(arrivals.poisson(rate, next(self._seeds)), seconds))
            start_us = self._now_us() + _LEAD_US + len(offsets_us) * _MAKING_US
            intended_us = [start_us + offset_us for offset_us in offsets_us]
            side = Side(wire, asking, intended_us, self._now_us, feedback=self.feedback)
            before = self._cpu_s()
            pace(side, offsets_us, start_us, self._now_us, lambda: False)
            settled = self._wait(lambda: side.take(_LOOK_S), len(offsets_us), limit_s)
            cpu = self._cpu_s() - before
            tally = _judged(asking.ledger, side.taken, lambda quiet_s: _take_rest(side, quiet_s))
        return Part(tally, tally.answered / seconds, cpu.system_s, side.late_us, settled, cpu.services_s)

    def _wait(self, count: Callable[[], int], expected: int, limit_s: float) -> bool:
        """Wait until `count`, which takes a moment, is as expected or nothing has come for 2 s; False = time is up."""
        end_s = time.monotonic() + limit_s
        seen, quiet_s = -1, 0.0
        while (now := count()) < expected:
            self.running.pids()
            if now > seen:
                seen, quiet_s = now, time.monotonic() + _QUIET_S
            if time.monotonic() > min(end_s, quiet_s):
                return quiet_s < end_s
        return True

    def _rest(self) -> None:
        """Let it commit; one that learns goes on until all is learnt: until it is idle."""
        time.sleep(_COMMIT_S)
        if self.feedback:
            rest(self.running.pids)

    def _cpu_s(self) -> _Cpu:
        return _Cpu(total_cpu_s(self.running.pids()), total_cpu_s(services(self.ground.stage)))

    def _wire(self, linger_ms: float) -> Wire:
        stage = self.ground.stage
        wire = Wire(stage.bootstrap, self.running.prefix, stage.properties, linger_ms)
        wire.follow((self.running.sink,))
        return wire

    def _rows(self, slo_ms: float) -> Rows:
        data = self.ground.data
        return Rows(self.application, data.inputs, data.labels, seed=next(self._seeds), slo_ms=slo_ms)

    def _asking(self, slo_ms: float) -> Asking:
        return Asking(self._rows(slo_ms), self.wire_format, Ledger(self.wire_format, self.ground.truth))


class _Cpu(NamedTuple):
    """CPU seconds so far: of the system, and of the services that it uses."""

    system_s: float
    services_s: float

    def __sub__(self, before: _Cpu) -> _Cpu:
        return _Cpu(self.system_s - before.system_s, self.services_s - before.services_s)


@cache
def _listening(addresses: tuple[str, ...]) -> Mapping[str, int]:
    return {address: pid for address in addresses for pid in listening(address).values()}


def services(stage: Stage) -> Mapping[str, int]:
    """Return the processes of the brokers and of Redis on this machine, by address."""
    redis = urlsplit(stage.redis_url)
    return _listening((*stage.bootstrap.split(","), f"{redis.hostname}:{redis.port}"))


def _judged(ledger: Ledger, taken: list[Taken], take: Callable[[float], None]) -> Tally:
    """Judge; where answers are missing, wait once more: late answers to an earlier part have been counted for them."""
    tally = ledger.judge(taken)
    if not tally.missing:
        return tally
    take(_QUIET_S)
    return ledger.judge(taken)


def _take_rest(side: Side, quiet_s: float) -> None:
    seen = -1
    while len(side.taken) > seen:
        seen = len(side.taken)
        side.turn(quiet_s)


def _appended(wire: Wire) -> int:
    time.sleep(_LOOK_S)
    return wire.appended()
