"""The loop when a service goes away: nothing is lost, and what is counted once stays counted once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import redis.asyncio

from schemas.codec import Codec
from schemas.records import Decision, JoinStatus, Observation
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from streams.operators.learn.kernel import Learner
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.role.definition import Role
from streams.runtime.stores.redis import RedisSettings, RedisStore
from tests.fakes import ScriptedKernel
from tests.kafka import looping, producing, put, take, until

if TYPE_CHECKING:
    from deploy.local.apache import ApacheKafka
    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

CODEC = Codec()
WINDOW_US = 600_000_000


async def test_a_killed_broker_loses_nothing(own_kafka: ApacheKafka, prefix: str) -> None:
    """Producer and consumer come back by themselves; every record has its outcome and every offset is committed."""
    connection = KafkaConnection(own_kafka.bootstrap, prefix)
    await asyncio.to_thread(own_kafka.create_topics, {f"{prefix}.in": 2, f"{prefix}.out": 2, f"{prefix}.reports": 1})
    role = Role("echo", "echo-1", ("in",))
    sent: set[bytes] = set()
    kernel = ScriptedKernel()
    async with producing(connection) as transport, looping(connection, kernel, role) as (_, task):

        async def flow() -> None:
            for n in range(2_000):
                value = b"%d" % n
                await put(transport, [value], n % 2)
                sent.add(value)
                await asyncio.sleep(0.002)

        sending = asyncio.create_task(flow())
        await until(lambda: len(kernel.seen()) > 200)
        await asyncio.to_thread(own_kafka.kill)
        await asyncio.sleep(2)
        await asyncio.to_thread(own_kafka.start)
        await sending
        await until(lambda: set(kernel.seen()) >= sent)
        assert not task.done()
    out = Counter(record.value for record in await take(connection, "out"))
    assert len(sent) == 2_000
    assert out.keys() == sent
    again = ScriptedKernel()
    async with looping(connection, again, role) as (loop, _):
        await until(loop.ready.is_set)
        await asyncio.sleep(1)
    assert again.seen() == [], "everything was committed"


def observation(n: int) -> Observation:
    """Return the n-th observation; every tenth comes twice."""
    decision = Decision((n % 2,), n, "digits", "exp3(eta=0.05,gamma=0.05,share=0.0001)", ("a", "b"), (0.5, 0.5))
    losses = (0.25, None) if n % 2 == 0 else (None, 0.75)
    return Observation(
        f"q{n // 10 * 10 if n % 10 == 1 else n}", "digits", None, decision, losses, 0.5, None, JoinStatus.JOINED, n, n
    )


async def test_states_equal_the_offline_fold_although_redis_was_killed_and_forgot(
    kafka: Broker, own_redis: RedisServer, prefix: str
) -> None:
    """Killed, and set back as by a lost disk write: states and offset go back together and are folded again."""
    connection = KafkaConnection(kafka.bootstrap, prefix)
    await asyncio.to_thread(kafka.create_topics, {f"{prefix}.observations": 1, f"{prefix}.reports": 1})
    role = Role("learner", "learner-1", ("observations",), owns_states=True)
    store = RedisStore(RedisSettings(own_redis.url, prefix, timeout_s=0.2), CODEC)
    learner = Learner(CODEC, WINDOW_US)
    async with producing(connection) as transport, looping(connection, learner, role, store=store) as (loop, task):
        await put(transport, observations(0, 1_000), topic="observations")
        await reach(store, 1_000)
        older = await everything(own_redis)
        await put(transport, observations(1_000, 1_500), topic="observations")
        await asyncio.to_thread(own_redis.kill)
        await put(transport, observations(1_500, 2_000), topic="observations")
        await asyncio.to_thread(own_redis.start)
        await reach(store, 2_000)
        await set_back(own_redis, older)
        await put(transport, observations(2_000, 3_000), topic="observations")
        await reach(store, 3_000)
        assert loop._performer.counters["refused_writes_total"] >= 1
        assert not task.done()
    log = [(r.timestamp_us, CODEC.decode(Observation, r.value)) for r in await take(connection, "observations")]
    states = (await store.read([StateKey(0, "digits")])).states
    await store.close()
    assert len(log) == 3_000
    assert states[StateKey(0, "digits")] == fold(log, WINDOW_US)["digits"]


def observations(first: int, end: int) -> list[bytes]:
    """Return encoded observations."""
    return [CODEC.encode(observation(n)) for n in range(first, end)]


async def reach(store: RedisStore, wanted: int) -> None:
    """Wait until the store stands at an offset; it may be starting."""
    async with asyncio.timeout(60):
        while await offset(store) != wanted:  # noqa: ASYNC110 - it is in another process
            await asyncio.sleep(0.1)


async def offset(store: RedisStore) -> int | None:
    """Return the stored offset, None while Redis starts."""
    try:
        return await store.offset(0)
    except StoreUnavailableError:
        return None


async def everything(server: RedisServer) -> dict[bytes, bytes]:
    """Return all keys as Redis dumps them."""
    async with redis.asyncio.Redis.from_url(server.url) as client:
        return {key: await client.dump(key) async for key in client.scan_iter()}


async def set_back(server: RedisServer, dumps: dict[bytes, bytes]) -> None:
    """Make a Redis hold what it held before, in one step."""
    async with redis.asyncio.Redis.from_url(server.url) as client, client.pipeline() as pipeline:
        for key, dump in dumps.items():
            pipeline.restore(key, 0, dump, replace=True)
        await pipeline.execute()
