"""`skysail run` on real services: one at a time, workers for models that come, logs that stay, ports that are taken."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from deploy.config import configuration
from deploy.config.settings import Settings
from deploy.connect.schema_registry import codec_for
from deploy.local.process import free_port
from deploy.placement import placement
from deploy.state import desired
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

READY = "ready; Ctrl-C stops everything"
PATIENCE_S = 120.0


@pytest.fixture
def settings(kafka: Broker, redis_server: RedisServer, prefix: str) -> Settings:
    """Settings of a deployment that has no model yet."""
    return Settings.model_validate(
        {
            "prefix": prefix,
            "partitions": 1,
            "kafka": {"bootstrap": kafka.bootstrap},
            "redis": {"url": redis_server.url},
            "roles": ["joiner", "worker"],
            "control": {"port": free_port()},
        }
    )


async def started(settings: Settings, folder: Path) -> Process:
    """Start `skysail run` in a folder."""
    file = configuration.write(settings, folder / "skysail.yaml")
    argv = (sys.executable, "-P", "-m", "deploy.cli", "run", "--quiet", "--config", str(file))
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*argv, cwd=folder, stdout=pipe, stderr=asyncio.subprocess.STDOUT)


@asynccontextmanager
async def running(settings: Settings, folder: Path) -> AsyncIterator[Process]:
    """Run a deployment for a block, from its being ready on."""
    process = await started(settings, folder)
    try:
        await until_said(process, READY)
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.communicate()


async def until_said(process: Process, words: str) -> str:
    """Read on until a line has these words; returns all that was read."""
    assert process.stdout is not None
    said = ""
    async with asyncio.timeout(PATIENCE_S):
        while words not in said:
            line = await process.stdout.readline()
            assert line, f"it ended before it said {words!r}: {said}"
            said += line.decode()
    return said


async def refused(settings: Settings, folder: Path) -> str:
    """Start a deployment that must not start; returns what it said."""
    process = await started(settings, folder)
    async with asyncio.timeout(PATIENCE_S):
        said = (await process.communicate())[0].decode()
    assert process.returncode == 1
    assert "Traceback" not in said
    assert READY not in said
    return said


async def test_a_second_run_says_that_one_runs_and_starts_nothing(settings: Settings, tmp_path: Path) -> None:
    """From the same folder or from another, as from another machine; once the first has ended, it may."""
    async with running(settings, tmp_path / "one") as first:
        assert f"(process {first.pid})" in await refused(settings, tmp_path / "one")
        assert "joiner@1, process" in await refused(settings, tmp_path / "two")
    async with running(settings, tmp_path / "two"):
        pass


async def test_a_model_that_is_added_gets_its_worker_and_the_logs_stay(settings: Settings, tmp_path: Path) -> None:
    """Without a restart; at the end the logs are left, and no file with secrets."""
    package_function("tests.toys:parity", tmp_path / "parity", "parity", "1", np.zeros((1, 2), np.float32))
    async with running(settings, tmp_path / "one") as process:
        await asyncio.to_thread(desired.add, settings, codec_for(settings), tmp_path / "parity")
        await until_said(process, "worker.parity starts")
    state = tmp_path / "one" / ".skysail"
    logs = {log.name for log in (state / "logs" / settings.prefix).iterdir()}
    assert logs == {"joiner.log", "worker.parity.log"}
    assert {file.name for file in (state / "run" / settings.prefix).iterdir()} == {"lock", placement.FILE}


async def test_a_port_that_is_taken_is_named_before_anything_starts(settings: Settings, tmp_path: Path) -> None:
    """With its owner; no role has been started by then."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        whole = {"roles": ("joiner", "control"), "control": settings.control.model_copy(update={"port": port})}
        said = await refused(settings.model_copy(update=whole), tmp_path / "one")
    assert f"127.0.0.1:{port} is taken by process" in said
    assert "nothing was started" in said
    assert not list((tmp_path / "one" / ".skysail" / "logs" / settings.prefix).iterdir())
