"""Processes, Redis and the broker are killed under load; afterwards nothing is lost and nothing counted twice.

Produce, act, validate: a load of queries with feedback flows through real roles, one thing is killed after a fifth of
it, and `validator.faults` judges what is left. Nothing is repaired by hand.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from deploy.clients import redis_url
from schemas import topics
from schemas.records import Feedback, Observation, Prediction, Query, Tensor
from streams.operators.contract import StateKey
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.redis_store import RedisSettings, RedisStore
from tests.deployments import Deployed, Toy, deployed
from tests.fault.validator import Evidence, faults

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from deploy.local.apache import ApacheKafka
    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

RATE = 60
QUERIES = 600
WINDOW_US = 1_260_000_000  # the learner's default
SETTLED_S = 60.0
ROWS = [np.array([number, 1], dtype=np.float32) for number in range(4)]
PARITY = Toy("tests.toys:parity", np.ones((2, 2), dtype=np.float32))
MODELS = {"one": PARITY, "two": PARITY}
APPLICATIONS = {"sums": {"models": ["one", "two"], "policy": "exp3", "slo_ms": 500, "default_output": -1}}


class Load:
    """An open loop of queries, and the truth for every answer that comes."""

    def __init__(self, there: Deployed) -> None:
        self._there = there
        self.asked: set[str] = set()
        self.told: set[str] = set()

    async def ask(self) -> None:
        """Send all queries at their times, whatever happens to the answers."""
        start = time.monotonic()
        for number in range(QUERIES):
            await asyncio.sleep(max(0.0, start + number / RATE - time.monotonic()))
            query = Query(f"q{number}", "sums", Tensor.of(ROWS[number % 4]), None, time.time_ns() // 1000)
            await self._there.client.send([query])
            self.asked.add(query.query_id)

    async def tell(self) -> None:
        """Send the truth for every answer, once."""
        read = 0
        while True:
            records = self._there.watch.records[topics.PREDICTIONS]
            for record in records[read:]:
                await self._tell(self._there.codec.decode(Prediction, record.value).query_id)
            read = len(records)
            await asyncio.sleep(0.05)

    async def _tell(self, query_id: str) -> None:
        if query_id not in self.told:
            label = (int(query_id[1:]) % 4 + 1) % 2
            await self._there.client.send_feedback([(Feedback(query_id, label, None, time.time_ns() // 1000), None)])
            self.told.add(query_id)


async def survive(there: Deployed, disaster: Callable[[], Awaitable[object]]) -> list[str]:
    """Run the load through a disaster, wait until everything has settled, and judge."""
    load = Load(there)
    telling = asyncio.create_task(load.tell())
    asking = asyncio.create_task(load.ask())
    await there.watch.until(lambda: len(load.told) > QUERIES / 5, "a fifth of the load", SETTLED_S)
    await disaster()
    await asking
    store = RedisStore(RedisSettings(redis_url(there.settings), there.settings.prefix), there.codec)
    end = time.monotonic() + SETTLED_S
    while (found := faults(await _evidence(there, load, store))) and time.monotonic() < end:  # noqa: ASYNC110 - see below
        await asyncio.sleep(0.5)  # other processes are watched: there is no event to wait for
    telling.cancel()
    await store.close()
    return found


async def _evidence(there: Deployed, load: Load, store: RedisStore) -> Evidence:
    log: dict[int, list[tuple[int, Observation]]] = {}
    for record in there.watch.records[topics.OBSERVATIONS]:
        seen = there.codec.decode(Observation, record.value)
        log.setdefault(record.partition, []).append((record.timestamp_us, seen))
    try:
        states = await store.read([StateKey(number, "sums") for number in log])
    except StoreUnavailableError:
        states = {}
    return Evidence(
        frozenset(load.asked),
        frozenset(load.told),
        there.watch.decoded(Prediction, topics.PREDICTIONS),
        log,
        {key.name: state for key, state in states.items() if state is not None},
        [dead.cause for topic in (topics.QUERIES, topics.FEEDBACK) for dead in there.watch.dead(topic)],
        WINDOW_US,
    )


@pytest.mark.timeout(180)
async def test_every_role_may_be_killed(kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    """`kill -9` of selection, a worker, the joiner and the learner, one after the other, under one load."""
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, APPLICATIONS) as there:

        async def kill_all() -> None:
            for instance in ("learner", "joiner", "worker.one", "selection"):
                pid = there.system.kill(instance)
                await there.system.restarted(instance, pid)

        assert await survive(there, kill_all) == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_redis_may_go_away(kafka: Broker, own_redis: RedisServer, prefix: str, tmp_path: Path, how: str) -> None:
    """Answers go on with the states last seen; the learner goes on from what Redis still has."""
    async with deployed(kafka, own_redis.url, prefix, tmp_path, MODELS, APPLICATIONS) as there:

        async def lose_redis() -> None:
            await asyncio.to_thread(own_redis.restart if how == "restart" else own_redis.kill)
            if how == "kill":
                await asyncio.sleep(1)
                await asyncio.to_thread(own_redis.start)

        assert await survive(there, lose_redis) == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_the_broker_may_go_away(
    own_kafka: ApacheKafka, redis_server: RedisServer, prefix: str, tmp_path: Path, how: str
) -> None:
    """Everybody waits for it and goes on where they were; queries that had to wait are answered late or by default."""
    async with deployed(own_kafka, redis_server.url, prefix, tmp_path, MODELS, APPLICATIONS) as there:

        async def lose_broker() -> None:
            await asyncio.to_thread(own_kafka.restart if how == "restart" else own_kafka.kill)
            if how == "kill":
                await asyncio.to_thread(own_kafka.start)

        assert await survive(there, lose_broker) == []
