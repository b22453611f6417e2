"""Workers that share a model's queries, as the settings say."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import numpy as np

from deploy.launch import launcher
from load.harness.backlog import Asker
from load.harness.system import Deployment, Stage
from schemas.records import Application
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

COUNT = 2_000


ROWS = np.ones((2, 1), np.float32)


def two_workers(prefix: str, folder: Path) -> Deployment:
    """Package a model that two workers share."""
    package_function("load.models.functions:slow", folder, "slow", "1", ROWS)
    return Deployment(
        prefix,
        (Application("slow", ("slow",), "single"),),
        {"slow": folder},
        roles=("worker",),
        settings={"worker": {"controller": "fixed", "parameters": {"rows": 40}, "replicas": {"slow": 2}}},
    )


async def test_two_workers_share_a_models_queries(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Both are up before the first query, under names of their own, and every row is answered by one of them."""
    launch = launcher(kafka.bootstrap, redis_server.url, tmp_path / "runs")
    async with launch(two_workers(prefix, tmp_path / "slow")) as system:
        assert set(system.pids) == {"worker.slow", "worker.slow@2"}
        with Asker(Stage(kafka.bootstrap, launch, tmp_path), prefix, "slow", ROWS) as asker:
            batches, _ = await asyncio.to_thread(asker.drain, COUNT)
    assert {batch.worker for batch in batches} == {"worker.slow@1", "worker.slow@2"}
    assert asker.answered == COUNT


async def test_the_queries_of_a_worker_that_stands_still_go_to_the_other(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """It is alive, so nobody starts it again; without its heartbeats its partitions are the other's after 10 s."""
    launch = launcher(kafka.bootstrap, redis_server.url, tmp_path / "runs")
    async with launch(two_workers(prefix, tmp_path / "slow")) as system:
        with Asker(Stage(kafka.bootstrap, launch, tmp_path), prefix, "slow", ROWS) as asker:
            await asyncio.to_thread(asker.drain, COUNT)
            still = system.pids["worker.slow"]
            os.kill(still, signal.SIGSTOP)
            try:
                batches, _ = await asyncio.to_thread(asker.drain, 2 * COUNT, 30.0)
            finally:
                os.kill(still, signal.SIGCONT)
    assert {batch.worker for batch in batches} == {"worker.slow@2"}
    assert asker.answered == 2 * COUNT
