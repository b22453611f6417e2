"""Runs the hand loops: how fast one drains a backlog, how long a chain of them takes."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from load.baseline import job as jobs
from load.baseline.job import Done, Job
from load.harness import arrivals, topics
from load.harness.aggregates import ROUNDS
from load.harness.gc_off import frozen
from load.harness.openloop import IDLE_S, pace
from load.harness.recorder import Recorder
from load.harness.wire import Wire, linger_ms
from schemas import topics as names
from schemas.codec import Codec
from schemas.records import Status
from schemas.sizes import MOST_BYTES
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from load.harness.openloop import Workload
    from load.harness.system import Stage

_HOPS = 3
_PARTITIONS = 4
_SLO_US = 100_000
# The broker compiles its code as it goes; chain and system are warmed alike, or the first one measured pays for all.
WARM_UP_RATE = 300.0
WARM_UP_S = 6.0
_DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to write the loop by hand."""

    name: str
    module: str
    batched: bool = True
    linger_ms: int = 0
    codec: bool = False

    @property
    def figure(self) -> str:
        """What its figures begin with."""
        return f"{'floor' if self.codec else 'hand'}_{self.name.replace('-', '_')}"


# A linger is for the rate of a backlog alone; chains, which latencies are measured by, have none.
VARIANTS = (
    Variant("aiokafka", "hand_aiokafka", codec=True),
    Variant("confluent", "hand_confluent", linger_ms=5, codec=True),
    Variant("aiokafka-send-batch", "hand_aiokafka"),
    Variant("aiokafka-send", "hand_aiokafka", batched=False),
    Variant("confluent", "hand_confluent"),
)


async def drain(stage: Stage, workload: Workload, model: str, count: int) -> list[dict[str, Done]]:
    """Let each variant answer the same backlog of `count` queries, one after the other, in each of several rounds.

    All rounds of a variant write to one topic: a new one costs the broker more, and the system's are not new either.
    """
    prefix = topics.new_prefix("floor")
    sinks = {variant.figure: _PARTITIONS for variant in VARIANTS}
    with topics.temporary(stage.bootstrap, prefix, {names.QUERIES: _PARTITIONS, **sinks}):
        await asyncio.to_thread(fill, stage, prefix, workload, count)
        return [{v.figure: await _drain(stage, prefix, v, model, count, n) for v in VARIANTS} for n in range(ROUNDS)]


async def _drain(stage: Stage, prefix: str, variant: Variant, model: str, count: int, number: int) -> Done:
    job = Job(
        stage.bootstrap,
        f"{prefix}.{names.QUERIES}",
        f"{prefix}.{variant.figure}",
        count,
        model,
        variant.batched,
        variant.linger_ms,
        variant.codec,
        number,
    )
    return await jobs.run(variant.module, job)


def fill(stage: Stage, prefix: str, workload: Workload, count: int) -> None:
    """Write `count` queries to the queries topic as fast as the broker takes them."""
    wire = Wire(stage.bootstrap, prefix, stage.properties, linger_ms=5)
    codec, now_us = Codec(), SystemClock().now_us()
    for index in range(count):
        query = workload(index, now_us).query
        wire.produce(names.QUERIES, query.query_id.encode(), codec.encode(query))
    unsent = wire.flush()
    wire.close()
    if unsent:
        raise RuntimeError(f"{unsent} of {count} queries were not taken by the broker")


@dataclass(frozen=True, slots=True)
class Chain:
    """Hops that pass bytes on: what the way over Kafka takes without anything to do."""

    stage: Stage
    prefix: str
    legs: Sequence[str]

    async def at(self, rate: float, offsets_us: Iterator[int], workload: Workload, seconds: float) -> Recorder:
        """Send through it by arrivals of this rate (1/s); returns what was recorded."""
        return await asyncio.to_thread(self._at, rate, offsets_us, workload, seconds)

    def _at(self, rate: float, offsets_us: Iterator[int], workload: Workload, seconds: float) -> Recorder:
        wire = Wire(self.stage.bootstrap, self.prefix, self.stage.properties, linger_ms(rate))
        with frozen(), closing(wire):
            wire.follow(self.legs[-1:])
            return _send_through(wire, self.legs[0], workload, offsets_us, seconds)


@asynccontextmanager
async def chain(
    stage: Stage,
    workload: Workload,
    module: str = "hand_aiokafka",
    hops: int = _HOPS,
    warm_up_s: float = WARM_UP_S,
    warm_up_rate: float = WARM_UP_RATE,
) -> AsyncIterator[Chain]:
    """Start a chain and warm it up with a workload; of three hops, it has as many legs as the whole system."""
    prefix = topics.new_prefix("chain")
    legs = [f"leg-{i}" for i in range(hops + 1)]
    with topics.temporary(stage.bootstrap, prefix, dict.fromkeys(legs, _PARTITIONS)):
        running = [
            await jobs.start(module, Job(stage.bootstrap, f"{prefix}.{a}", f"{prefix}.{b}"))
            for a, b in itertools.pairwise(legs)
        ]
        try:
            started = Chain(stage, prefix, legs)
            await started.at(warm_up_rate, arrivals.poisson(warm_up_rate, 0), workload, warm_up_s)
            yield started
        finally:
            await jobs.stop(running)


class _Echo:
    """Sends queries into the first leg and takes the same bytes from the last one."""

    def __init__(
        self, wire: Wire, topic: str, workload: Workload, recorder: Recorder, now_us: Callable[[], int]
    ) -> None:
        self._wire, self._topic, self._workload = wire, topic, workload
        self._recorder, self._now_us = recorder, now_us
        self._codec = Codec(max_bytes=MOST_BYTES)

    def send(self, index: int, intended_us: int) -> None:
        query = self._workload(index, intended_us).query
        self._wire.produce(self._topic, query.query_id.encode(), self._codec.encode(query))
        self._recorder.sent(query.query_id, intended_us, self._now_us())

    def turn(self, wait_s: float) -> None:
        arrived = self._wire.poll(wait_s)
        now_us = self._now_us()
        for arrival in arrived:
            self._recorder.answered((arrival.key or b"").decode(), now_us, Status.COMPLETE)


def _send_through(wire: Wire, topic: str, workload: Workload, offsets_us: Iterator[int], seconds: float) -> Recorder:
    now_us = SystemClock().now_us
    recorder = Recorder(now_us(), _SLO_US)
    echo = _Echo(wire, topic, workload, recorder, now_us)
    pace(echo, arrivals.until(offsets_us, seconds), recorder.start_us, now_us, lambda: False)
    end_us = now_us() + int(_DRAIN_S * 1e6)
    while recorder.open and now_us() < end_us:
        echo.turn(IDLE_S)
    return recorder
