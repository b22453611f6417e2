"""A whole deployment on real services: commands, a query and its feedback, a role that is killed, nothing left."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config import configuration
from deploy.config.settings import Settings
from deploy.connect.schema_registry import codec_for
from deploy.launch import System
from deploy.state.topics import partition_counts
from schemas.records import Status
from streams.client import Client
from tests.packages import package_corner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

ROW = np.array([0.0, 0.0], dtype=np.float32)


@pytest.fixture
def settings(kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path) -> Settings:
    """Settings of a deployment with one small model."""
    return Settings.model_validate(
        {
            "prefix": prefix,
            "partitions": 2,
            "kafka": {"bootstrap": kafka.bootstrap},
            "redis": {"url": redis_server.url},
            "roles": ["selection", "joiner", "learner", "worker"],
            "processes": "each",
            "models": {"corner": package_corner(tmp_path)},
            "applications": {"corners": {"models": ["corner"], "slo_ms": 10_000, "default_output": -1}},
        }
    )


@pytest.fixture
async def system(settings: Settings, tmp_path: Path) -> AsyncIterator[System]:
    """Run the deployment; afterwards no process of it may be left."""
    async with System(settings, codec_for(settings), tmp_path / "run") as running:
        pids = set(running.pids.values())
        yield running
        pids |= set(running.pids.values())
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


async def answer(settings: Settings) -> tuple[Status, object]:
    """Ask once and send feedback."""
    async with Client(settings.kafka.bootstrap, settings.prefix) as client:
        prediction = await client.predict("corners", ROW, timeout_s=60)
        await client.feedback(prediction, label=0)
    return prediction.status, prediction.answer


async def test_an_inline_model_answers_inside_selection_and_is_learnt(settings: Settings, tmp_path: Path) -> None:
    """It has no process and no topic; a kill loses nothing, and what it answers is joined and learnt as ever."""
    inline = settings.model_copy(update={"selection": settings.selection.model_copy(update={"inline": ("corner",)})})
    async with System(inline, codec_for(inline), tmp_path / "run") as system:
        assert set(system.pids) == {"selection", "joiner", "learner"}
        assert await answer(inline) == (Status.COMPLETE, 0)
        killed = system.kill("selection")
        assert await system.restarted("selection", killed) != killed
        end = time.monotonic() + 60
        while (given := await answer(inline)) != (Status.COMPLETE, 0):
            assert time.monotonic() < end, given
    names = partition_counts(inline)
    assert "predictions" in names
    assert "models.corner.queries" not in names


async def test_a_deployment_answers_survives_a_kill_and_leaves_nothing(settings: Settings, system: System) -> None:
    """Ready means ready; a worker that is killed comes back under a new pid and answers again."""
    assert set(system.pids) == {"selection", "joiner", "learner", "worker.corner"}
    assert await answer(settings) == (Status.COMPLETE, 0)
    killed = system.kill("worker.corner")
    assert await system.restarted("worker.corner", killed) != killed
    end = time.monotonic() + 60
    while (given := await answer(settings)) != (Status.COMPLETE, 0):
        assert time.monotonic() < end, given
        await asyncio.sleep(0.2)


async def test_roles_that_share_a_process_answer_and_survive_a_kill(settings: Settings, tmp_path: Path) -> None:
    """Each may be named, and its process is meant."""
    shared = settings.model_copy(
        update={"processes": "shared", "selection": settings.selection.model_copy(update={"inline": ()})}
    )
    async with System(shared, codec_for(shared), tmp_path / "run") as system:
        assert set(system.pids) == {"loop", "worker.corner"}
        assert await answer(shared) == (Status.COMPLETE, 0)
        killed = system.kill("joiner")
        assert await system.restarted("learner", killed) == system.pids["loop"]
        assert system.restarts == {"loop": 1, "worker.corner": 0}
        end = time.monotonic() + 60
        while (given := await answer(shared)) != (Status.COMPLETE, 0):
            assert time.monotonic() < end, given
        pid = system.pids["loop"]
        log = system.log("selection")
    assert not psutil.pid_exists(pid)
    assert log.name == "loop.log"


async def test_the_commands_speak_with_a_running_deployment(settings: Settings, system: System, tmp_path: Path) -> None:
    """Query, feedback, tail, lists and the topic check, as a person or a script would use them."""
    assert system.pids
    file = configuration.write(settings, tmp_path / "skysail.yaml")
    said = await asyncio.to_thread(run, "query", "corners", "--input", "[9, 9]", "--json", "--config", str(file))
    prediction = json.loads(said)
    assert (prediction["answer"], prediction["status"]) == (1, "complete")
    await asyncio.to_thread(run, "feedback", prediction["query_id"], "--label", "1", "--config", str(file))
    shown = await asyncio.to_thread(run, "tail", "feedback", "--from-beginning", "--count", "1", "--config", str(file))
    assert json.loads(shown)["value"]["query_id"] == prediction["query_id"]
    assert "corner" in await asyncio.to_thread(run, "model", "list", "--config", str(file))
    apps = json.loads(await asyncio.to_thread(run, "app", "list", "--json", "--config", str(file)))
    assert [app["name"] for app in apps] == ["corners"]
    await asyncio.to_thread(run, "app", "set", "corners", "slo_ms=1500", "--config", str(file))
    changed = json.loads(await asyncio.to_thread(run, "app", "show", "corners", "--json", "--config", str(file)))
    assert changed["slo_ms"] == 1500
    assert "all topics can be used" in await asyncio.to_thread(run, "topics", "check", "--config", str(file))


def run(*arguments: str) -> str:
    """Run a command line; returns what it printed."""
    result = CliRunner(env=dict(os.environ)).invoke(skysail, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout
