"""A host on real Kafka: many models in one process, each by its own topic."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from schemas import topics
from schemas.codec import Codec
from schemas.records import Model, ModelPredictions, Outcome, Report, Status, Tensor
from streams.operators.contract import Emit
from streams.runtime.clock import SystemClock
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.consumer import KafkaConsumer
from streams.runtime.kafka.log_reader import KafkaBroadcast, KafkaPositions, KafkaTail
from streams.runtime.kafka.producer import KafkaTransport
from streams.runtime.role.definition import Ports
from streams.topology import host_role
from tests.deployments import Toy, deployed
from tests.samples import model_query
from tests.toy_nets import mlp, seeded
from workers.executors.factory import hosted_by
from workers.kernel.host.kernel import Host
from workers.kernel.schedule.registry import scheduled
from workers.manifest import digest
from workers.packages.packaging import package_function, package_sklearn, package_torch
from workers.runner import Worker, host
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from deploy.local.services import Broker, RedisServer
    from tests.deployments import Deployed

CODEC = Codec()
SECOND = 1_000_000
MIB = 1 << 20
PATIENT_MS = 60_000  # a host that was killed is back, on any machine


class Pool:
    """Models that belong to one pool, a host of them, and what comes back."""

    def __init__(self, kafka: Broker, prefix: str, folder: Path) -> None:
        self._kafka = kafka
        self._prefix = prefix
        self._folder = folder
        names = {topics.MODELS: 1, topics.MODEL_PREDICTIONS: 2, topics.REPORTS: 1, topics.SHADOWS: 2}
        kafka.create_topics({f"{prefix}.{name}": count for name, count in names.items()})
        self.connection = KafkaConnection(kafka.bootstrap, prefix)
        self.clock = SystemClock()
        self.transport = KafkaTransport(self.connection, self.clock)
        self.tail = KafkaTail(self.connection, [topics.MODEL_PREDICTIONS])
        self.outcomes: dict[str, Outcome] = {}
        self.messages: dict[str, str] = {}
        self.order: list[str] = []

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

    async def add(self, name: str, function: str = "tests.toys:parity", version: str = "1", size: int = MIB) -> None:
        """Deploy a model as `skysail model add` does."""
        package = self._folder / f"{name}-{version}"
        package_function(function, package, name, version, np.zeros((2, 2), np.float32))
        if version == "1":
            names = (topics.model_queries(name), topics.dead_letters(topics.model_queries(name)))
            self._kafka.create_topics({f"{self._prefix}.{each}": 1 for each in names})
        model = Model(
            name, version, "function", str(package), digest(package), "label", "float32", (2,), partitions=1, bytes=size
        )
        for key in (topics.model_version(name, version), name):
            await self.transport.send(topics.MODELS, 0, [Emit(topics.MODELS, 0, key.encode(), CODEC.encode(model))])

    def host(self, memory_bytes: int = 64 * MIB, patience_s: float | None = None) -> Worker:
        """Make a host with connections of its own."""
        consumer = KafkaConsumer(self.connection, (), host_role("small"), self.clock)
        ports = Ports(
            consumer,
            self.transport,
            self.clock,
            CODEC.encode,
            broadcast=KafkaBroadcast(self.connection, (topics.MODELS,)),
            positions=KafkaPositions(self.connection),
        )
        settings = WorkerSettings(partitions=2, patience_s=patience_s)
        kernel = Host(CODEC, "one", settings, lambda _: True, *scheduled("fifo", 1, memory_bytes), pool="small")
        executors = hosted_by(settings, self.clock.now_us, memory_bytes=memory_bytes)
        return host(kernel, "small", settings, ports, executors)

    async def ask(self, name: str, *numbers: int, slack_us: int = 90 * SECOND) -> None:
        """Ask a model; query `<name><number>` for each number."""
        topic = topics.model_queries(name)
        for number in numbers:
            row = Tensor.of(np.array([number, 0], dtype=np.float32))
            query = model_query(f"{name}{number}", number % 2, self.clock.now_us() + slack_us, row)
            await self.transport.send(topic, 0, [Emit(topic, 0, None, CODEC.encode(query))])

    async def collect(self, *names: str, seconds: float = 60.0) -> None:
        """Wait until these queries have an outcome."""
        until = time.monotonic() + seconds
        while not self.outcomes.keys() >= {*names} and time.monotonic() < until:
            for record in await self.tail.poll(100):
                batch = CODEC.decode(ModelPredictions, record.value)
                self.outcomes |= dict(zip(batch.query_ids, batch.outcomes, strict=True))
                self.order += batch.query_ids
        assert self.outcomes.keys() >= {*names}


async def test_a_host_serves_several_models_by_their_topics(kafka: Broker, prefix: str, tmp_path: Path) -> None:
    """One process answers three models; a fourth that is added later is served without a restart."""
    stop = asyncio.Event()
    async with Pool(kafka, prefix, tmp_path) as pool:
        for name in ("a", "b", "c"):
            await pool.add(name)
        serving = asyncio.create_task(pool.host().run(stop))
        for name in ("a", "b", "c"):
            await pool.ask(name, *range(20))
        await pool.collect(*(f"{name}{number}" for name in ("a", "b", "c") for number in range(20)))
        await pool.add("d")
        await pool.ask("d", *range(5))
        await pool.collect(*(f"d{number}" for number in range(5)))
        stop.set()
        await serving
    assert {*pool.outcomes.values()} == {Outcome.OK}


async def test_a_deployment_survives_a_model_that_dies_and_a_host_that_is_killed(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """The model's query gets the default with the reason, its neighbour answers, and the killed host comes back."""
    models = {"moody": Toy("tests.toys:moody", ["a"]), "shout": Toy("tests.toys:shout", ["a"])}
    app = {"policy": "single", "slo_ms": PATIENT_MS, "default_output": "none"}
    applications = {name: {**app, "models": [name]} for name in models}
    hosts = {"small": {"models": [*models], "memory_mib": 64}}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, models, applications, hosts=hosts) as there:
        assert {"host.small"} == {name for name in there.system.pids if name.startswith(("host", "worker"))}
        assert (await there.client.predict("moody", "calm", timeout_s=PATIENT_MS / 1e3)).answer == "calm"
        assert (await there.client.predict("shout", "loud", timeout_s=PATIENT_MS / 1e3)).answer == "LOUD"
        lost = await there.client.predict("moody", "die", timeout_s=PATIENT_MS / 1e3)
        assert (lost.answer, lost.status) == ("none", Status.DEFAULT)
        assert (await there.client.predict("shout", "still", timeout_s=PATIENT_MS / 1e3)).answer == "STILL"
        await there.system.restarted("host.small", there.system.kill("host.small"))
        assert (await there.client.predict("shout", "again", timeout_s=PATIENT_MS / 1e3)).answer == "AGAIN"


async def test_all_models_of_a_pool_are_in_memory_before_it_takes_queries(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Ten, of functions, scikit-learn and torch: none is loaded for a query, and no first answer is the default."""
    rows = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    forest = RandomForestClassifier(3, random_state=0).fit(rows, rows[:, 0] > 0)
    package_sklearn(forest, tmp_path / "forest", "forest", "1", rows[:2])
    made, given = "tests.toy_nets:mlp", {"inputs": 4, "outputs": 2}
    package_torch(seeded(mlp(4, 2)), tmp_path / "net", "net", "1", rows[:2], architecture=made, arguments=given)
    toys: dict[str, Toy | Path] = {f"toy{number}": Toy("tests.toys:parity", rows[:2]) for number in range(8)}
    models = {**toys, "forest": tmp_path / "forest", "net": tmp_path / "net"}
    app = {"policy": "single", "slo_ms": PATIENT_MS, "default_output": "none"}
    applications = {name: {**app, "models": [name]} for name in models}
    hosts = {"small": {"models": [*models]}}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, models, applications, hosts=hosts) as there:
        answers = [await there.client.predict(name, rows[0], timeout_s=PATIENT_MS / 1e3) for name in models]
        ready, last = _when_ready(there, "small"), there.watch.reports()["host.small"]
    assert ready is not None
    assert {answer.status for answer in answers} == {Status.COMPLETE}
    assert (ready.gauges["host_known_models"], ready.gauges["host_resident_models"]) == (10, 10)
    assert last.counters["host_loads_total"] == 10


def _when_ready(there: Deployed, pool: str) -> Report | None:
    """Return the first report of a pool's host that takes queries."""
    reports = (each for each in there.watch.decoded(Report, topics.REPORTS) if each.role == host_role(pool))
    return next((report for report in reports if report.gauges.get("partitions", 0)), None)


async def test_nine_models_of_an_application_share_a_host_by_themselves(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Nobody named a pool; the model of another application keeps its process."""
    models = {f"shout{number}": Toy("tests.toys:shout", ["a"]) for number in range(9)}
    models["alone"] = Toy("tests.toys:whereabouts", ["a"])
    many = {"policy": "exp3", "models": [name for name in models if name != "alone"]}
    one = {"policy": "single", "models": ["alone"]}
    patient = {"slo_ms": PATIENT_MS, "default_output": "none"}
    applications = {"many": {**many, **patient}, "one": {**one, **patient}}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, models, applications, processes="shared") as there:
        assert {*there.system.pids} == {"loop", "worker.alone", "host.others"}
        ready = await there.watch.until(lambda: _when_ready(there, "others"))
        assert ready is not None
        assert ready.gauges["host_resident_models"] == 9
        assert (await there.client.predict("many", "loud", timeout_s=PATIENT_MS / 1e3)).answer == "LOUD"
        assert (
            await there.client.predict("one", "here", timeout_s=PATIENT_MS / 1e3)
        ).answer == f"here {there.system.pids['worker.alone']}"
        assert there.system.process_of("worker.shout3") == "host.others"
