"""Collects what a run left behind: the topics as they were read, and Redis as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import redis.asyncio

from deploy.config.addresses import redis_url
from schemas import topics
from schemas.records import Observation, Observations, Prediction
from streams.operators.join.kernel import JoinerSettings
from streams.runtime.stores.base import unstamped
from streams.testing.validator import ObservationLog, RunEvidence, Stored

if TYPE_CHECKING:
    from tests.deployments import Deployed
    from tests.fault.traffic import Traffic


async def collected(there: Deployed, traffic: Traffic) -> RunEvidence:
    """Return what there is at this moment."""
    dead = [records for topic, records in there.watch.records.items() if topic.endswith(topics.dead_letters(""))]
    return RunEvidence(
        asked=frozenset(traffic.asked),
        garbage=frozenset(traffic.garbage),
        told=dict(traffic.told),
        predictions=there.watch.decoded(Prediction, topics.PREDICTIONS),
        log=_log(there),
        stored=await _stored(there),
        dead=[record.value or b"" for records in dead for record in records],
        window_us=JoinerSettings().memory_us,
    )


def _log(there: Deployed) -> dict[int, ObservationLog]:
    seen: dict[int, list[tuple[int, Observation]]] = {}
    ends: dict[int, int] = {}
    for record in there.watch.records[topics.OBSERVATIONS]:
        observations = there.codec.decode(Observations, record.value).items
        seen.setdefault(record.partition, []).extend((record.timestamp_us, each) for each in observations)
        ends[record.partition] = record.offset + 1
    return {number: ObservationLog(seen[number], ends[number]) for number in seen}


async def _stored(there: Deployed) -> dict[int, Stored]:
    """Read Redis, or the file, without the store that wrote it."""
    if there.settings.store.kind == "embedded":
        return _in_file(there)
    found: dict[int, Stored] = {}
    async with redis.asyncio.Redis.from_url(redis_url(there.settings)) as client:
        for number in range(there.settings.partitions):
            states = await client.hgetall(f"{{{there.settings.prefix}:{number}}}:states")
            offset = states.pop(b"/offset", b"").partition(b":")[0]
            found[number] = Stored(
                int(offset) if offset else None, {name.decode(): unstamped(value) for name, value in states.items()}
            )
    return found


def _in_file(there: Deployed) -> dict[int, Stored]:
    with closing(sqlite3.connect(there.settings.store.file)) as database:
        offsets = dict(database.execute("SELECT partition, next FROM offsets"))
        rows = database.execute("SELECT partition, name, value FROM states").fetchall()
    return {
        number: Stored(offsets.get(number), {name: unstamped(value) for at, name, value in rows if at == number})
        for number in range(there.settings.partitions)
    }
