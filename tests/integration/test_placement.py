"""A model moves between the process of selection and a worker of its own, between two starts of a deployment."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from deploy.errors import UsageError
from deploy.placement import placement
from deploy.preflight import require_workers
from deploy.state import desired
from schemas import topics
from schemas.records import Query, Status, Tensor
from tests.deployments import Deployed, deployed
from tests.packages import package_corner
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

ROWS = np.array([[0, 0], [0, 1], [9, 9], [9, 8]], dtype=np.float32)
APPLICATIONS = {"corners": {"models": ["corner"], "policy": "exp3", "slo_ms": 600_000, "default_output": -1}}
COUNT = 60

pytestmark = pytest.mark.timeout(400)


def ask(there: Deployed, name: str) -> list[str]:
    """Send queries and wait for nothing; returns their ids."""
    ids = [f"{name}-{number}" for number in range(COUNT)]
    for number, query_id in enumerate(ids):
        row = Tensor.of(ROWS[number % len(ROWS)])
        there.put_record(topics.QUERIES, Query(query_id, "corners", row), query_id.encode(), number % 4)
    return ids


async def answered(there: Deployed, ids: list[str]) -> None:
    """Wait until the model has answered all of them."""
    for number, query_id in enumerate(ids):
        prediction = await there.watch.answer(query_id, 60)
        assert (prediction.status, prediction.answer) == (Status.COMPLETE, number % 4 // 2)


async def test_queries_in_flight_are_answered_wherever_their_model_runs_next(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """From a worker that stands still into selection, and from a process that is killed back to a worker."""
    models = {"corner": package_corner(tmp_path)}

    def started(processes: str) -> Any:
        return deployed(kafka, redis_server.url, prefix, tmp_path, models, APPLICATIONS, processes=processes)

    async with started("each") as there:
        assert "worker.corner" in there.system.pids
        there.system.kill("worker.corner", signal.SIGSTOP)
        waiting = ask(there, "waiting")
        await there.watch.until(lambda: there.watch.records[topics.model_queries("corner")], "queries at the worker")
    async with started("shared") as there:
        assert {*there.system.pids} == {"loop"}
        assert placement.read(tmp_path / "run")["corner"].is_inside
        await answered(there, waiting)
        there.system.kill("loop", signal.SIGSTOP)
        caught = ask(there, "caught")
    async with started("each") as there:
        assert "worker.corner" in there.system.pids
        await answered(there, caught)
        await answered(there, ask(there, "new"))
        await there.watch.all_committed("selection", topics.QUERIES)


async def test_a_version_that_was_not_measured_spoils_nothing(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """It runs in a child process: when it crashes its batch fails, and selection, joiner and learner go on."""
    package_function("tests.toys:fatal", tmp_path / "corner-2", "corner", "2", ROWS, classes=(0, 1, 7))
    models, shape = {"corner": package_corner(tmp_path)}, {"processes": "shared"}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, models, APPLICATIONS, **shape) as there:
        assert (await there.client.predict("corners", ROWS[0], timeout_s=60)).answer == 0
        with pytest.raises(UsageError, match="nobody to ask"):
            await asyncio.to_thread(require_workers, there.settings, there.codec)
        await asyncio.to_thread(desired.add, there.settings, there.codec, tmp_path / "corner-2", share=1.0, force=True)
        while (given := await there.client.predict("corners", ROWS[0], timeout_s=60)).answer != 7:
            assert (given.status, given.answer) == (Status.COMPLETE, 0)
        crashed = await there.client.predict("corners", np.array([13, 0], dtype=np.float32), timeout_s=60)
        assert (crashed.status, crashed.reason) == (Status.DEFAULT, "model_failed")
        assert (await there.client.predict("corners", ROWS[0], timeout_s=60)).answer == 7
        assert there.system.restarts == {"loop": 0}
