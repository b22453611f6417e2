"""One worker on real Kafka: packaged model, bad input, commits, another replica."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Self

import numpy as np
import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import Model, ModelPredictions, Outcome, Tensor
from streams.operators.contract import Emit
from streams.runtime.clock import SystemClock
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.consumer import KafkaConsumer
from streams.runtime.kafka.log_reader import KafkaRecent, KafkaTail
from streams.runtime.kafka.producer import KafkaTransport
from streams.runtime.role.definition import Ports
from streams.topology import worker_role
from tests.samples import model_query
from workers.kernel.model.warm_up import asked_in
from workers.manifest import digest
from workers.packages.packaging import package_function
from workers.runner import Worker, worker
from workers.settings import WARM_UP_ROWS, WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from deploy.local.services import Broker

CODEC = Codec()
TOPIC = topics.model_queries("parity")
SECOND = 1_000_000


class Bench:
    """Asks model queries and collects what comes back; 2 partitions each way."""

    def __init__(self, kafka: Broker, prefix: str, package: Path) -> None:
        names = {TOPIC: 2, topics.MODEL_PREDICTIONS: 2, topics.REPORTS: 1, topics.dead_letters(TOPIC): 1}
        kafka.create_topics({f"{prefix}.{name}": count for name, count in names.items()})
        self.connection = KafkaConnection(kafka.bootstrap, prefix)
        self.clock = SystemClock()
        self.transport = KafkaTransport(self.connection, self.clock)
        self.tail = KafkaTail(self.connection, [topics.MODEL_PREDICTIONS, topics.dead_letters(TOPIC)])
        self.model = Model("parity", "1", "function", str(package), digest(package), "label", "float32", (2,))
        self.outcomes: dict[str, Outcome] = {}
        self.answers: dict[str, int] = {}
        self.dead: list[bytes | None] = []

    async def __aenter__(self) -> Self:
        """Connect."""
        await self.transport.start()
        await self.tail.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        await self.tail.stop()
        await self.transport.stop()

    def worker(self, instance: str) -> Worker:
        """Make a replica with connections of its own."""
        consumer = KafkaConsumer(self.connection, (TOPIC,), worker_role("parity"), self.clock)
        ports = Ports(consumer, self.transport, self.clock, CODEC.encode)
        return worker(self.model, instance, WorkerSettings(partitions=2), ports, CODEC)

    async def ask(self, *rows: Tensor | bytes, start: int = 0, slack_us: int = 90 * SECOND) -> None:
        """Send rows as model queries, bytes as they are; query `q<n>` for row n."""
        for number, row in enumerate(rows, start):
            query = (
                model_query(f"q{number}", number % 2, self.clock.now_us() + slack_us, row)
                if isinstance(row, Tensor)
                else None
            )
            value = row if isinstance(row, bytes) else CODEC.encode(query)
            await self.transport.send(TOPIC, number % 2, [Emit(TOPIC, number % 2, None, value)])

    async def collect(self, count: int, seconds: float = 60.0) -> None:
        """Wait until so many queries have an outcome."""
        until = time.monotonic() + seconds
        while len(self.outcomes) < count and time.monotonic() < until:
            for record in await self.tail.poll(100):
                self._take(record.topic, record.value)
        assert len(self.outcomes) == count

    def _take(self, topic: str, value: bytes | None) -> None:
        if topic != topics.MODEL_PREDICTIONS:
            self.dead.append(value)
            return
        batch = CODEC.decode(ModelPredictions, value)
        assert isinstance(batch.answers, Tensor)
        self.outcomes |= dict(zip(batch.query_ids, batch.outcomes, strict=True))
        self.answers |= dict(zip(batch.query_ids, batch.answers.numpy().tolist(), strict=True))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Package a model that labels rows as even or odd."""
    package_function("tests.toys:parity", tmp_path / "parity", "parity", "1", np.zeros((2, 2), np.float32))
    return tmp_path / "parity"


def row(*numbers: float) -> Tensor:
    """Make an input row."""
    return Tensor.of(np.array(numbers, dtype=np.float32))


async def test_queries_are_answered_around_bad_ones(kafka: Broker, prefix: str, package: Path) -> None:
    """Garbage is dead, what does not fit is invalid, and every neighbour has its answer."""
    stop = asyncio.Event()
    async with Bench(kafka, prefix, package) as bench:
        serving = asyncio.create_task(bench.worker("one").run(stop))
        rows = [row(number, 0) for number in range(100)]
        await bench.ask(*rows, b"garbage", row(1, 2, 3), row(float("nan"), 0))
        await bench.collect(102)
        stop.set()
        await serving
        while not bench.dead:
            bench.dead += [record.value for record in await bench.tail.poll(100)]
    assert {bench.outcomes[f"q{number}"] for number in range(100)} == {Outcome.OK}
    assert [bench.answers[f"q{number}"] for number in range(100)] == [number % 2 for number in range(100)]
    assert (bench.outcomes["q101"], bench.outcomes["q102"]) == (Outcome.INVALID, Outcome.INVALID)
    assert bench.dead == [b"garbage"]


async def test_what_a_model_was_asked_last_is_found_in_its_topic(kafka: Broker, prefix: str, package: Path) -> None:
    """The last rows of both partitions, answered or not, around what cannot be read."""
    async with Bench(kafka, prefix, package) as bench:
        rows = [row(number, 0) for number in range(100)]
        await bench.ask(*rows[:99], b"garbage", rows[99])
        records = await KafkaRecent(bench.connection).last(TOPIC, WARM_UP_ROWS)
    found = asked_in(records, CODEC)
    assert len(found) == WARM_UP_ROWS - 1
    assert {one.data for one in found if isinstance(one, Tensor)} == {one.data for one in rows[100 - len(found) :]}


async def test_another_replica_goes_on_where_one_stopped(kafka: Broker, prefix: str, package: Path) -> None:
    """What was answered is committed at the stop; the next one answers only what came after."""
    async with Bench(kafka, prefix, package) as bench:
        first, second = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(bench.worker("one").run(first))
        await bench.ask(*[row(number, 0) for number in range(20)])
        await bench.collect(20)
        first.set()
        await serving
        bench.outcomes.clear()
        await bench.ask(*[row(number, 0) for number in range(20, 40)], start=20)
        serving = asyncio.create_task(bench.worker("two").run(second))
        await bench.collect(20)
        second.set()
        await serving
    assert set(bench.outcomes) == {f"q{number}" for number in range(20, 40)}
