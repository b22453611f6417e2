"""A whole deployment on real services, and what a test looks at from outside: topics, dead letters, offsets, reports.

async with deployed(kafka, redis_url, prefix, folder, models, applications) as there:
    there.system.kill("joiner")
    await there.client.predict("sums", [1, 2])
    await there.watch.until(lambda: there.watch.dead("queries"))
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import aiohttp
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from confluent_kafka import Producer

from deploy.config.addresses import connection
from deploy.config.settings import Settings
from deploy.connect.clients import librdkafka, properties
from deploy.connect.schema_registry import codec_for
from deploy.system.launch import System
from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_id
from schemas.records import Prediction, Report
from streams.client import Client
from streams.dead_letters.letter import RECEIPT
from streams.runtime.kafka.log_reader import KafkaBroadcast
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from deploy.local.services import Broker
    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.runtime.kafka.connection import KafkaConnection

T = TypeVar("T")
ROLES = ("selection", "worker", "joiner", "learner")
CIRCLE = (topics.QUERIES, topics.MODEL_PREDICTIONS, topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS)
UNTIL_S = 60.0  # a busy machine's; who waits returns as soon as it is so
PATIENT_MS = 30_000  # an objective that a busy machine keeps, too, where no deadline is what is tested
_LOOK_S = 0.02
_PREFIX = "skysail.error."


class Toy(NamedTuple):
    """A function that is served as a model: its dotted path, and a batch that it answers."""

    function: str
    sample: NDArray[np.generic] | Sequence[str]
    output: str = "label"
    classes: tuple[int | str, ...] = ()


class Dead(NamedTuple):
    """A dead letter: the bytes as they came, and its error headers without their prefix."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, str]

    @property
    def cause(self) -> str:
        """Return the word that dead letters are grouped by."""
        return self.headers["cause"]


class PatientClient(Client):
    """A client that waits for a busy machine, too."""

    async def predict(self, *asked: Any, timeout_s: float = UNTIL_S, **more: Any) -> Prediction:
        """Ask one query and await its prediction."""
        return await super().predict(*asked, timeout_s=timeout_s, **more)


class Watch:
    """Reads every given topic from its beginning, in the background; what came is in `records`."""

    def __init__(self, kafka: KafkaConnection, names: Iterable[str], codec: Codec) -> None:
        self.records: defaultdict[str, list[Record]] = defaultdict(list)
        self._kafka = kafka
        self._codec = codec
        self._reader = KafkaBroadcast(kafka, names)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect."""
        await self._reader.start()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._reader.stop(3)

    async def until(self, condition: Callable[[], T], what: str = "", timeout_s: float = UNTIL_S) -> T:
        """Wait until the condition is true and return what it gave; fails with `what` if that takes too long."""
        end = asyncio.get_running_loop().time() + timeout_s
        while not (found := condition()):
            assert asyncio.get_running_loop().time() < end, f"not within {timeout_s:g} s: {what or condition}"
            assert self._task is not None
            assert not self._task.done(), self._task
            await asyncio.sleep(_LOOK_S)
        return found

    def decoded(self, kind: type[T], topic: str) -> list[T]:
        """Return all records of a topic that are of that kind."""
        return [self._codec.decode(kind, record.value) for record in self.records[topic]]

    def dead(self, topic: str) -> list[Dead]:
        """Return the dead letters of a topic, without receipts of letters that were sent again."""
        return [
            Dead(r.key, r.value, {name.removeprefix(_PREFIX): text.decode() for name, text in r.headers})
            for r in self.records[topics.dead_letters(topic)]
            if RECEIPT not in dict(r.headers)
        ]

    def reports(self) -> dict[str, Report]:
        """Return the latest report of every instance, by the part of its name before the `@`."""
        return {report.instance.partition("@")[0]: report for report in self.decoded(Report, topics.REPORTS)}

    def counter(self, role: str, name: str) -> float:
        """Return a counter, e.g. `skipped_total{reason=late}`, of an instance's latest report; 0 if it has none."""
        report = self.reports().get(role)
        return report.counters.get(name, 0.0) if report else 0.0

    async def answer(self, query_id: str, timeout_s: float = UNTIL_S) -> Prediction:
        """Wait for the prediction of a query that was not sent by the client."""
        found = await self.until(lambda: self.answers(query_id), f"no answer to {query_id}", timeout_s)
        return found[0]

    def answers(self, query_id: str) -> list[Prediction]:
        """Return all predictions of a query."""
        ours = (r.value for r in self.records[topics.PREDICTIONS] if _is_about(r, query_id))
        return [self._codec.decode(Prediction, value) for value in ours]

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return what a group has committed, by logical topic and partition."""
        client = AIOKafkaAdminClient(**self._kafka.options())
        await client.start()
        try:
            found = await client.list_consumer_group_offsets(self._kafka.real(group))
        finally:
            await client.close()
        return {(self._kafka.logical(place.topic), place.partition): at.offset for place, at in found.items()}

    async def all_committed(self, group: str, topic: str, timeout_s: float = UNTIL_S) -> None:
        """Wait until a group has committed everything that a topic holds; fails with what is missing."""
        end = asyncio.get_running_loop().time() + timeout_s
        while missing := await self._missing(group, topic):
            assert asyncio.get_running_loop().time() < end, f"{group} has not committed all of {topic}: {missing}"
            await asyncio.sleep(0.1)

    async def _missing(self, group: str, topic: str) -> dict[int, tuple[int, int]]:
        """Return (committed, end) of every partition where they differ."""
        try:
            committed = await self.committed(group)
        except KafkaError as error:
            if not error.retriable:
                raise
            committed = {}  # a busy broker is asked again
        ends: dict[int, int] = {}
        for record in self.records[topic]:
            ends[record.partition] = record.offset + 1
        found = {partition: (committed.get((topic, partition), 0), end) for partition, end in ends.items()}
        return {partition: pair for partition, pair in found.items() if pair[0] != pair[1]}

    async def _read(self) -> None:
        while True:
            for record in await self._reader.poll(100):
                self.records[record.topic].append(record)


@dataclass(frozen=True, slots=True)
class Deployed:
    """A running deployment: its processes, a client, the eyes, and a producer of bytes that no client would send."""

    settings: Settings
    codec: Codec
    system: System
    client: Client
    watch: Watch
    producer: Producer

    def put(self, topic: str, *values: bytes | None, key: bytes | None = b"key", partition: int = 0) -> None:
        """Produce values as they are; returns when the broker has them."""
        for value in values:
            self.producer.produce(f"{self.settings.prefix}.{topic}", value, key, partition=partition)
        assert self.producer.flush(10) == 0

    def put_record(self, topic: str, record: object, key: bytes | None = b"key", partition: int = 0) -> None:
        """Produce a record."""
        self.put(topic, self.codec.encode(record), key=key, partition=partition)

    async def is_shown(self, timeout_s: float = 60.0) -> None:
        """Wait until the page shows fresh reports of all processes."""
        address = f"http://127.0.0.1:{self.settings.control.port}/api/status"
        seen: set[str] = set()
        async with aiohttp.ClientSession() as session, asyncio.timeout(timeout_s):
            while not {*map(self.system.process_of, seen)} >= set(self.system.pids):
                with suppress(aiohttp.ClientConnectorError):
                    async with session.get(address) as response:
                        shown = (await response.json())["processes"]
                        seen = {process["instance"].partition("@")[0] for process in shown if not process["silent"]}
                await asyncio.sleep(0.1)


@asynccontextmanager
async def deployed(
    kafka: Broker,
    redis_url: str,
    prefix: str,
    folder: Path,
    models: Mapping[str, Toy | Path],
    applications: Mapping[str, Mapping[str, Any]],
    /,
    **more: Any,
) -> AsyncIterator[Deployed]:
    """Run a deployment of a process for each role and model, which are gone afterwards.

    Args:
        kafka: the broker.
        redis_url: of Redis.
        prefix: of topics and groups.
        folder: for packages and logs.
        models: package folders, or toys that are packaged.
        applications: as in the settings.
        more: further settings: `worker={"objective_ms": 20}`, `joiner={"early_s": 2}`, `partitions=1`, `roles=…`,
            `processes="shared"`;
            `kafka=…` says how to connect where the address alone does not.
    """
    packages = {name: _package(folder, name, model) for name, model in models.items()}
    settings = Settings.model_validate(
        {
            "prefix": prefix,
            "kafka": {"bootstrap": kafka.bootstrap},
            "redis": {"url": redis_url},
            "roles": ROLES,
            "processes": "each",  # on any machine
            "models": packages,
            "applications": applications,
            **more,
        }
    )
    codec, place = codec_for(settings), connection(settings)
    producer = Producer({**librdkafka(settings), "message.max.bytes": str(4 << 20), "linger.ms": "0"})
    async with (
        System(settings, codec, folder / "run") as system,
        Watch(place, _watched(settings), codec) as watch,
        PatientClient(settings.kafka.bootstrap, prefix, properties(settings), codec=codec) as client,
    ):
        yield Deployed(settings, codec, system, client, watch, producer)


def _is_about(record: Record, query_id: str) -> bool:
    try:
        return peek_id(record.value) == query_id
    except DecodeError:
        return False


def _watched(settings: Settings) -> list[str]:
    asked = [topics.model_queries(name) for name in settings.models]
    return [*CIRCLE, *asked, *map(topics.dead_letters, (*CIRCLE, *asked, topics.MAPPING)), topics.REPORTS]


def _package(folder: Path, name: str, model: Toy | Path) -> Path:
    if isinstance(model, Path):
        return model
    package_function(model.function, folder / name, name, "1", model.sample, output=model.output, classes=model.classes)
    return folder / name
