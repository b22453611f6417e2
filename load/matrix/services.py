"""Rows of services: Redis and the brokers are stopped, killed, paused, and set back to what they held before."""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import redis
from confluent_kafka.admin import AdminClient

from load.matrix.broken import Broken, still
from schemas import topics

if TYPE_CHECKING:
    from pathlib import Path

    from load.matrix.broken import Place

BROKERS: Final = 3
_PAUSE_S: Final = 2.0
_LOST_S: Final = 1.0
_CHASES: Final = 5
_ANSWER_S: Final = 10.0


async def _redis_killed(place: Place) -> None:
    """Redis is killed, and back after a second."""
    await asyncio.to_thread(place.redis.kill)
    await asyncio.sleep(1)
    await asyncio.to_thread(place.redis.start)


async def _redis_paused(place: Place) -> None:
    """Redis stands still."""
    async with still(_pid(place)):
        await asyncio.sleep(_PAUSE_S)


async def _redis_set_back(place: Place) -> None:
    """Redis comes back without its last second: as its disk was a second before it was killed."""
    saved = place.redis.data.with_name(f"{place.redis.data.name}-before")
    await asyncio.to_thread(shutil.copytree, place.redis.data, saved)
    try:
        await asyncio.sleep(_LOST_S)
        await asyncio.to_thread(place.redis.kill)
        await asyncio.to_thread(_replaced, place.redis.data, saved)
        await asyncio.to_thread(place.redis.start)
    finally:
        await asyncio.to_thread(shutil.rmtree, saved, ignore_errors=True)


async def _redis_failed_over(place: Place) -> None:
    """Redis is killed for good, and its replica, which may lack the last writes, takes its address."""
    assert place.proxy is not None
    assert place.second_redis is not None
    await asyncio.to_thread(place.redis.kill)
    with redis.Redis.from_url(place.second_redis.url) as client:
        await asyncio.to_thread(client.replicaof, "NO", "ONE")
    place.proxy.lead(port(place.redis.url), port(place.second_redis.url))


def _replaced(folder: Path, by: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(by, folder)


def port(url: str) -> int:
    """Return the port of an address."""
    found = urlsplit(url).port
    assert found is not None
    return found


def _pid(place: Place) -> int:
    pid = place.redis.pid
    if pid is None:
        raise LookupError("Redis does not run")
    return pid


async def _broker_stopped(place: Place, name: str) -> None:
    """A broker is stopped in an orderly way, which hands over what it leads, and started again."""
    await asyncio.to_thread(place.brokers.nodes[name].restart)


async def _broker_killed(place: Place, name: str) -> None:
    """A broker is killed, and started again."""
    await asyncio.to_thread(place.brokers.nodes[name].kill)
    await asyncio.sleep(1)
    await asyncio.to_thread(place.brokers.nodes[name].start)


async def _leader_killed(place: Place) -> None:
    """Whoever leads the first partition of `queries` is killed."""
    await _broker_killed(place, await asyncio.to_thread(leader, place, topics.QUERIES, 0))


def leader(place: Place, topic: str, partition: int) -> str:
    """Return the broker that leads a partition."""
    name = f"{place.prefix}.{topic}"
    admin = AdminClient({"bootstrap.servers": place.bootstrap, "log_level": 0})
    number = admin.list_topics(name, timeout=_ANSWER_S).topics[name].partitions[partition].leader
    return f"broker@{number}"


_NAMES: Final = tuple(f"broker@{number}" for number in range(1, BROKERS + 1))
REDIS_ROWS: Final = (
    Broken("redis killed", "redis", _redis_killed),
    Broken("redis paused", "redis", _redis_paused),
    Broken("redis set back", "redis", _redis_set_back),
    Broken("redis fails over", "redis", _redis_failed_over, times=1),
)
BROKER_ROWS: Final = (
    *(Broken(f"{name} stopped", "brokers", partial(_broker_stopped, name=name), times=1) for name in _NAMES),
    *(Broken(f"{name} killed", "brokers", partial(_broker_killed, name=name), times=1) for name in _NAMES),
    Broken("leader killed", "brokers", _leader_killed, times=_CHASES),
)
