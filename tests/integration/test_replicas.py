"""Workers that share a model's queries, as the settings say."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import numpy as np

from deploy.cli.load_stage import launcher
from deploy.config.settings import WorkerSection
from deploy.state import desired
from load.harness.system import Deployment, Stage
from load.research.harness.backlog import Asker
from schemas import topics
from schemas.records import Application, ModelPredictions, Status
from tests.deployments import Toy, deployed
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from tests.deployments import Deployed

COUNT = 2_000


ROWS = np.ones((2, 1), np.float32)
SLOW = Toy("load.models.functions:slow", ROWS)
# Eight processes that start on two busy cores, and workers that look for new partitions every 10 s.
SECONDS = 120.0
AT_ONCE_MS = 9_000  # less than those 10 s: a query that nobody reads yet would be late


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
                batches, _ = await asyncio.to_thread(asker.drain, 2 * COUNT, SECONDS)
            finally:
                os.kill(still, signal.SIGCONT)
    assert {batch.worker for batch in batches} == {"worker.slow@2"}
    assert asker.answered == 2 * COUNT


async def ask_until(there: Deployed, seen: Callable[[], Awaitable[bool]]) -> None:
    """Ask query after query until something is seen; the model answers all of them."""
    async with asyncio.timeout(SECONDS):
        while not await seen():
            answers = await asyncio.gather(*(there.client.predict("slow", [1.0]) for _ in range(4)))
            assert [one.status for one in answers] == [Status.COMPLETE] * 4


async def partitions_read(there: Deployed) -> set[int]:
    """Return the partitions of the model's topic from which workers have taken queries."""
    committed = await there.watch.committed("worker.slow")
    return {number for (topic, number), offset in committed.items() if topic == topics.model_queries("slow") and offset}


async def test_eight_workers_of_a_model_all_get_queries(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """The settings name eight, and so the model's topic has eight partitions, over which selection spreads."""
    models, applications = {"slow": SLOW}, {"slow": {"models": ["slow"], "policy": "single", "slo_ms": 60_000}}
    eight = {"replicas": {"slow": 8}}
    async with deployed(
        *(kafka, redis_server.url, prefix, tmp_path, models, applications), roles=("selection", "worker"), worker=eight
    ) as there:
        everybody = {f"worker.slow@{number}" for number in range(1, 9)}

        async def all_have_answered() -> bool:
            batches = there.watch.decoded(ModelPredictions, topics.MODEL_PREDICTIONS)
            return {batch.worker for batch in batches} == everybody

        await ask_until(there, all_have_answered)


async def test_partitions_that_are_added_while_everything_runs_are_used_and_no_query_is_late(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """First the topic has them, then the workers, then selection asks there."""
    models, applications = {"slow": SLOW}, {"slow": {"models": ["slow"], "policy": "single", "slo_ms": AT_ONCE_MS}}
    async with deployed(
        *(kafka, redis_server.url, prefix, tmp_path, models, applications), roles=("selection", "worker")
    ) as there:
        wide = there.settings.model_copy(update={"worker": WorkerSection(partitions={"slow": 7})})
        told = [finding.message for finding in desired.unspread(wide, desired.known_models(wide, there.codec))]
        assert [message.rpartition(": ")[2] for message in told] == ["skysail topics create"]
        adding = asyncio.create_task(asyncio.to_thread(desired.spread_out, wide, there.codec))

        async def all_are_read() -> bool:
            return adding.done() and await partitions_read(there) == {*range(7)}

        await ask_until(there, all_are_read)
        assert adding.result() == {"slow": 7}
        assert desired.unspread(wide, desired.known_models(wide, there.codec)) == []
        assert desired.spread_out(wide, there.codec) == {}
