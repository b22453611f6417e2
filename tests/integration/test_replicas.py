"""Workers that share a model's queries, as the settings say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from deploy.launch import launcher
from load.backlog import Asker
from load.system import Deployment, Stage
from schemas.records import Application
from workers.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

COUNT = 2_000


async def test_two_workers_share_a_models_queries(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Both are up before the first query, under names of their own, and every row is answered by one of them."""
    rows = np.ones((2, 1), np.float32)
    package_function("load.models:slow", tmp_path / "slow", "slow", "1", rows)
    launch = launcher(kafka.bootstrap, redis_server.url, tmp_path / "runs")
    deployment = Deployment(
        prefix,
        (Application("slow", ("slow",), "single"),),
        {"slow": tmp_path / "slow"},
        roles=("worker",),
        settings={"worker": {"controller": "fixed", "parameters": {"rows": 40}, "replicas": {"slow": 2}}},
    )
    async with launch(deployment) as system:
        assert set(system.pids) == {"worker.slow", "worker.slow@2"}
        with Asker(Stage(kafka.bootstrap, launch, tmp_path), prefix, "slow", rows) as asker:
            batches, _ = await asyncio.to_thread(asker.drain, COUNT)
    assert {batch.worker for batch in batches} == {"worker.slow@1", "worker.slow@2"}
    assert asker.answered == COUNT
