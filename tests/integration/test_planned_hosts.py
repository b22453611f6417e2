"""Two hosts of a pool in a real deployment: the control role moves a model between them, and one is killed."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from deploy.config.addresses import connection
from schemas import topics
from schemas.records import ModelPredictions, Plan, Report, Status
from tests.deployments import Toy, Watch, deployed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from deploy.local.services import Broker, RedisServer
    from schemas.records import Prediction
    from tests.deployments import Deployed

POOL: Final = "small"
FIRST, SECOND = f"host.{POOL}@1", f"host.{POOL}@2"
MODELS: Final = ("a", "b", "c", "d")
BUSY: Final = ("a", "b")
# At 15 ms a row each of the two keeps a host busy for 0.6 of its time: together they are too much for one.
PER_S: Final = 40.0
# What one host can do of both.
FEW_PER_S: Final = 5.0
# The group misses a host that is killed after 10 s. Its queries wait for that long.
SLO_MS: Final = 30_000
UNTIL_S: Final = 90.0


class Load:
    """Asks models all the time, and keeps what came back."""

    def __init__(self, there: Deployed) -> None:
        self.per_s = PER_S
        self.sent = 0
        self.answers: list[Prediction] = []
        self._there = there

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Ask until the block ends, and then wait for all answers."""
        async with asyncio.TaskGroup() as asking:
            sending = [asyncio.create_task(self._send(model, asking)) for model in BUSY]
            try:
                yield
            finally:
                for task in sending:
                    task.cancel()

    async def _send(self, model: str, asking: asyncio.TaskGroup) -> None:
        due_s = asyncio.get_running_loop().time()
        while True:
            self.sent += 1
            asking.create_task(self._ask(model, str(self.sent)))
            due_s += 1 / self.per_s  # by the clock: a busy machine must not make the load less
            await asyncio.sleep(due_s - asyncio.get_running_loop().time())

    async def _ask(self, model: str, text: str) -> None:
        self.answers.append(await self._there.client.predict(model, text, timeout_s=UNTIL_S))


async def test_a_model_moves_by_plan_and_a_killed_host_leaves_nothing_unread(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Two busy models are too much for one host. Every query is answered by a model, through the move and the loss."""
    models = {name: Toy("tests.toys:drowsy", ["a"]) for name in MODELS}
    app = {"policy": "single", "slo_ms": SLO_MS, "default_output": "none"}
    applications = {name: {**app, "models": [name]} for name in models}
    more = {"hosts": {POOL: {"models": [*MODELS], "memory_mib": 64}}, "roles": ("selection", "worker", "control")}
    async with (
        deployed(kafka, redis_server.url, prefix, tmp_path, models, applications, **more) as there,
        _second_host(there) as second,
        Watch(connection(there.settings), [topics.PLAN], there.codec) as eyes,
    ):
        load = Load(there)
        async with load.running():
            plan = await _planned(eyes, lambda plan: len({*map(_homes(plan).get, BUSY)}) > 1)
            assert any("moves from" in reason for reason in plan.reasons), plan
            await _answering(there, _homes(plan))
            load.per_s = FEW_PER_S
            second.kill()
            after = await _planned(eyes, lambda plan: SECOND not in plan.hosts)
            assert {*_homes(after).values()} == {FIRST}
            await _answering(there, dict.fromkeys(BUSY, FIRST))
    assert len(load.answers) == load.sent
    assert {found.status for found in load.answers} == {Status.COMPLETE}


@asynccontextmanager
async def _second_host(there: Deployed) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start one more host by hand; nobody starts it again when it is killed."""
    argv = (sys.executable, "-P", "-m", "deploy.cli", "run", "--config", str(there.system.settings_file))
    more = ("--role", "host", "--pool", POOL, "--instance", "2", "--quiet")
    process = await asyncio.create_subprocess_exec(*argv, *more)
    try:
        await there.watch.until(
            lambda: any(report.instance == SECOND for report in there.watch.decoded(Report, topics.REPORTS)),
            "a report of the second host",
            UNTIL_S,
        )
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _planned(eyes: Watch, condition: Callable[[Plan], bool]) -> Plan:
    """Wait for a plan."""
    found = await eyes.until(
        lambda: [plan for plan in eyes.decoded(Plan, topics.PLAN)[-1:] if condition(plan)], "a plan", UNTIL_S
    )
    return found[0]


async def _answering(there: Deployed, homes: Mapping[str, str]) -> None:
    """Wait until the busy models are answered where the plan says."""
    watch = there.watch
    seen = len(watch.records[topics.MODEL_PREDICTIONS])

    def workers() -> dict[str, str]:
        batches = watch.decoded(ModelPredictions, topics.MODEL_PREDICTIONS)[seen:]
        return {batch.model: batch.worker for batch in batches}

    wanted = {name: homes[name] for name in BUSY}
    await watch.until(lambda: workers() == wanted, f"answers of {wanted}", UNTIL_S)


def _homes(plan: Plan) -> dict[str, str]:
    return {place.model: place.host for place in plan.places}
