"""One application's contexts, learnt by two learners on real services."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
import redis

from schemas import topics
from schemas.records import Report
from streams.topology import state_name, state_partition
from tests.deployments import PATIENT_MS, Toy, deployed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from tests.deployments import Deployed

PARITY = Toy("tests.toys:parity", np.ones((2, 1), np.float32))
CONTRARY = Toy("tests.toys:contrary", np.ones((2, 1), np.float32))
PEOPLE = {"models": ["parity", "contrary"], "policy": "exp3", "per_context": True, "spread": True, "slo_ms": PATIENT_MS}
CONTEXTS = tuple(f"user-{number}" for number in range(24))
PARTITIONS = 4


@asynccontextmanager
async def second_learner(there: Deployed) -> AsyncIterator[None]:
    """Run one more learner, until each of the two owns partitions."""
    command = ("-P", "-m", "deploy.cli", "run", "--config", str(there.system.settings_file), "--quiet")
    process = await asyncio.create_subprocess_exec(sys.executable, *command, "--role", "learner", "--instance", "2")
    try:
        await there.watch.until(lambda: min(owned(there).values(), default=0) == PARTITIONS / 2, "half each", 60.0)
        yield
    finally:
        process.terminate()
        await process.wait()


def latest(there: Deployed) -> dict[str, Report]:
    """Return the latest report of each learner."""
    return {one.instance: one for one in there.watch.decoded(Report, topics.REPORTS) if one.role == "learner"}


def owned(there: Deployed) -> dict[str, float]:
    """Return how many partitions each learner has; nothing before there are two."""
    found = {name: report.gauges.get("partitions", 0) for name, report in latest(there).items()}
    return found if len(found) > 1 else {}


async def test_two_learners_share_the_contexts_of_one_application(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Each context is learnt in its own partition, one slot of a Redis cluster, beside a common state."""
    models = {"parity": PARITY, "contrary": CONTRARY}
    async with (
        deployed(kafka, redis_server.url, prefix, tmp_path, models, {"people": PEOPLE}, partitions=PARTITIONS) as there,
        second_learner(there),
    ):
        for context in CONTEXTS:
            answer = await there.client.predict("people", [1.0], context=context)
            await there.client.feedback(answer, label=1)
        applied = "applied_total{application=people}"

        def all_is_learnt() -> bool:
            counts = [report.counters.get(applied, 0) for report in latest(there).values()]
            return sum(counts) == len(CONTEXTS) and all(counts)

        await there.watch.until(all_is_learnt, "all is learnt, by both", 60.0)
        with redis.Redis.from_url(redis_server.url) as client:
            stored = {n: {*client.hkeys(f"{{{prefix}:{n}}}:states")} for n in range(PARTITIONS)}
    names = [state_name("people", context, is_spread=True) for context in CONTEXTS]
    for number, found in stored.items():
        here = {name.encode() for name in names if state_partition(name, PARTITIONS) == number}
        assert found == {b"/offset", b"people", *here}
        assert here
