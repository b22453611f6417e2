"""A model whose topic is missing costs its own queries their answers, also after selection has started again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from deploy.state import catalog
from deploy.state.packages import model_record
from schemas.records import Status
from tests.deployments import Toy, deployed
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

SAMPLE = np.array([[0, 0], [1, 0]], np.float32)
PARITY = {"models": ["parity"], "slo_ms": 2_000, "max_slo_ms": 60_000, "default_output": -1}
GHOSTS = PARITY | {"models": ["ghost"], "slo_ms": 500}


async def test_selection_starts_again_without_the_topic_of_one_model(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """What that model is asked ends by default in time, and others are served."""
    toys, applications = {"parity": Toy("tests.toys:parity", SAMPLE)}, {"parity": PARITY, "ghosts": GHOSTS}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, toys, applications, partitions=1) as there:
        package_function("tests.toys:parity", tmp_path / "ghost", "ghost", "1", SAMPLE)
        catalog.publish(there.settings, there.codec, [model_record(tmp_path / "ghost")])
        await there.system.restarted("selection", there.system.kill("selection"), timeout_s=60)
        answers = await asyncio.gather(
            *(there.client.predict("parity", SAMPLE[1], slo_ms=60_000, timeout_s=90) for _ in range(3))
        )
        assert {(given.status, given.answer) for given in answers} == {(Status.COMPLETE, 1)}
        alone = await there.client.predict("ghosts", SAMPLE[1])
        assert (alone.status, alone.reason, alone.answer) == (Status.DEFAULT, "deadline", -1)
        assert there.system.restarts["selection"] == 1
