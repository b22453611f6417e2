"""An attack, and where it acts: the topics of a deployment, its processes, its Redis and its broker."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import psutil
import redis.asyncio as redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
)

from load.hostile import batches
from schemas.codec import Codec
from streams.runtime.kafka.admin import configure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence

    from load.harness.system import Stage, System

ANY = -1  # partition: as the key says
_ANSWER_S = 60.0
_STEP_S = 0.02  # a sender that is less ahead of its time than this goes on
_QUIET = {"acks": "all", "log_level": 3, "message.max.bytes": 100_000_000, "queue.buffering.max.kbytes": 2_097_151}
# Does it; returns what is wrong in a sentence, where it can tell itself.
Strike: TypeAlias = "Callable[[Arena], Coroutine[None, None, str | None]]"


@dataclass(frozen=True, slots=True)
class Arena:
    """The arguments and helpers of an attack.

    Attributes:
        stage: the broker and Redis.
        prefix: of the deployment.
        system: its processes.
        settings: of its own, over the defaults.
        refused: what the broker said of records that it did not take, by error.
    """

    stage: Stage
    prefix: str
    system: System
    settings: Mapping[str, Any] = field(default_factory=dict)
    codec: Codec = field(default_factory=Codec)
    refused: Counter[str] = field(default_factory=Counter)

    def full(self, topic: str) -> str:
        """Return a topic's name in Kafka."""
        return f"{self.prefix}.{topic}"

    # --- what clients can do ------------------------------------------------------------------------------------------

    async def put(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        key: bytes | None = b"key",
        headers: Sequence[tuple[str, bytes]] = (),
        compression: str = "none",
        partition: int | None = None,
    ) -> None:
        """Write values as they are; what the broker refuses is counted."""
        await asyncio.to_thread(self._put, topic, [*values], key, headers, compression, partition)

    async def send(self, topic: str, records: Iterable[object], *, key: bytes | None = None, rate: float = 0) -> None:
        """Write records of ours, each under its query's id or the key that is given, at most `rate` a second."""
        made = [(key or str(record.query_id).encode(), self.codec.encode(record)) for record in records]  # type: ignore[attr-defined]
        await asyncio.to_thread(self._send, topic, made, rate)

    async def batch(self, topic: str, made: bytes, partition: int = 0) -> None:
        """Send the broker a batch made by hand; a refusal is counted."""
        code = await asyncio.to_thread(batches.produce, self.stage.bootstrap, self.full(topic), partition, made)
        if code:
            self.refused[f"error {code}"] += 1

    @asynccontextmanager
    async def transaction(self, topic: str, values: Sequence[bytes], *, commit: bool) -> AsyncIterator[None]:
        """Write values to every partition of a topic in one transaction, which ends with the block."""
        producer = Producer(
            {**_QUIET, "bootstrap.servers": self.stage.bootstrap, "transactional.id": f"{self.prefix}-{topic}-{commit}"}
        )
        await asyncio.to_thread(producer.init_transactions, _ANSWER_S)
        producer.begin_transaction()
        for partition in self.partitions(topic):
            for value in values:
                producer.produce(self.full(topic), value, b"key", partition=partition)
        await asyncio.to_thread(producer.flush, _ANSWER_S)
        yield
        await asyncio.to_thread(producer.commit_transaction if commit else producer.abort_transaction, _ANSWER_S)

    def consumer(self) -> Consumer:
        """Return a reader that leaves no trace; the caller assigns and closes it."""
        return Consumer(
            {
                "bootstrap.servers": self.stage.bootstrap,
                "group.id": f"{self.prefix}.hostile",
                "group.protocol": "classic",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 3,
            }
        )

    # --- what brokers and operators can do ----------------------------------------------------------------------------

    def partitions(self, topic: str) -> range:
        """Return the partitions of a topic."""
        name = self.full(topic)
        return range(len(self._admin().list_topics(name, timeout=_ANSWER_S).topics[name].partitions))

    async def set_topic(self, topic: str, name: str, value: str) -> None:
        """Give a topic another setting."""
        await asyncio.to_thread(configure, self._admin(), self.full(topic), {name: value})

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic, even if it is being read."""
        admin = self._admin()
        for future in admin.delete_topics([self.full(topic)]).values():
            await asyncio.to_thread(future.result, _ANSWER_S)

    async def empty_topic(self, topic: str) -> None:
        """Delete every record that a topic has, as retention does."""
        places = [TopicPartition(self.full(topic), number, -1) for number in self.partitions(topic)]
        admin = self._admin()
        for future in admin.delete_records(places).values():
            await asyncio.to_thread(future.result, _ANSWER_S)

    def pid(self, instance: str) -> int:
        """Return the number of the process that a role runs in."""
        return self.system.pids[self.system.process_of(instance)]

    def signal(self, instance: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a role."""
        os.kill(self.pid(instance), number)

    @asynccontextmanager
    async def standing_still(self, instance: str) -> AsyncIterator[None]:
        """Stop a role (SIGSTOP) for the time of a block."""
        process = psutil.Process(self.pid(instance))
        process.suspend()
        try:
            yield
        finally:
            process.resume()

    @asynccontextmanager
    async def limited(self, instance: str, data_bytes: int) -> AsyncIterator[None]:
        """Bound the memory of a role for the time of a block, as a container would."""
        process = psutil.Process(self.pid(instance))
        before = process.rlimit(psutil.RLIMIT_DATA)
        process.rlimit(psutil.RLIMIT_DATA, (data_bytes, before[1]))
        try:
            yield
        finally:
            if process.is_running():
                process.rlimit(psutil.RLIMIT_DATA, before)

    # --- the store ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def redis(self) -> AsyncIterator[redis.Redis]:
        """Return a client of the store."""
        async with redis.Redis.from_url(self.stage.redis_url) as client:
            yield client

    @asynccontextmanager
    async def redis_away(self) -> AsyncIterator[None]:
        """Stop Redis (SIGSTOP) for the time of a block."""
        async with self.redis() as client:
            process = psutil.Process(int((await client.info("server"))["process_id"]))
        process.suspend()
        try:
            yield
        finally:
            process.resume()

    # ------------------------------------------------------------------------------------------------------------------

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.stage.bootstrap, "log_level": 3})

    def _producer(self, **more: object) -> Producer:
        return Producer({**_QUIET, "bootstrap.servers": self.stage.bootstrap, "on_delivery": self._delivered, **more})

    def _put(
        self,
        topic: str,
        values: Sequence[bytes | None],
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        compression: str,
        partition: int | None,
    ) -> None:
        producer = self._producer(**{"compression.codec": compression})
        for value in values:
            place = ANY if partition is None else partition
            producer.produce(self.full(topic), value, key, place, headers=list(headers))
            producer.poll(0)
        producer.flush(_ANSWER_S)

    def _send(self, topic: str, made: Sequence[tuple[bytes, bytes]], rate: float) -> None:
        producer = self._producer(**{"partitioner": "murmur2_random", "linger.ms": 5})
        name, started_s = self.full(topic), time.monotonic()
        for number, (key, value) in enumerate(made):
            if rate and (early_s := started_s + number / rate - time.monotonic()) > _STEP_S:
                time.sleep(early_s)
            producer.produce(name, value, key)
            producer.poll(0)
        producer.flush(_ANSWER_S)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.refused[str(getattr(error, "name", lambda: error)())] += 1


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack or accident.

    Attributes:
        name: as it is asked for by `--only`.
        by: who causes it: client, teacher, broker, store, model or operator.
        what: it does, in one line.
        strike: does it.
        blow_s: what of the beginning does not count for answers in time: the second of the blow, or, where a process is
            killed, its start.
        watch_s: how long its effects are watched after it was struck.
        ends: roles that it ends itself, by instance.
    """

    name: str
    by: str
    what: str
    strike: Strike
    blow_s: float = 1.0
    watch_s: float = 5.0
    ends: tuple[str, ...] = ()
