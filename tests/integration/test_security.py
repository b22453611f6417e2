"""The whole deployment on an Apache Kafka that wants TLS and a log-in, by nothing but documented settings."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest

from deploy import configuration
from deploy.local.errors import MissingError
from deploy.local.process import free_port
from schemas import topics
from schemas.records import Status
from streams.client import Client
from streams.runtime.errors import StreamError
from tests.deployments import ROLES, Deployed, Toy, deployed
from tests.secure import PASSWORD, SecureKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deploy.local.redis import RedisServer

PARITY = {"parity": Toy("tests.toys:parity", np.ones((2, 2), dtype=np.float32))}
SUMS = {"sums": {"models": ["parity"], "policy": "exp3", "slo_ms": 5_000, "default_output": -1}}
PATIENCE_S = 60.0

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Start an Apache Kafka of its own for this file."""
    server = SecureKafka(tmp_path_factory.mktemp("secure"))
    try:
        server.start()
    except MissingError as error:
        pytest.skip(f"no Apache Kafka: {error}")
    server.create_user()
    yield server
    server.stop()


@pytest.mark.parametrize("how", ["logged_in", "certified"])
async def test_the_loop_runs_over_tls(
    secure: SecureKafka, redis_server: RedisServer, prefix: str, tmp_path: Path, how: str
) -> None:
    """All roles, page, client and commands: asked, answered, told and learnt; the password is nowhere to be read."""
    kafka: dict[str, Any] = getattr(secure, how)
    more = {"kafka": kafka, "roles": (*ROLES, "control"), "control": {"port": free_port()}}
    async with deployed(secure, redis_server.url, prefix, tmp_path, PARITY, SUMS, **more) as there:
        prediction = await there.client.predict("sums", np.array([1, 2], dtype=np.float32))
        assert (prediction.status, prediction.answer) == (Status.COMPLETE, 1)
        await there.client.feedback(prediction, label=1)
        await there.watch.until(lambda: there.watch.records[topics.OBSERVATIONS], "an observation")
        await there.watch.until(lambda: there.watch.counter("learner", "applied_total{application=sums}"), "a lesson")
        await is_shown(there)
        file = tmp_path / "skysail.json"  # JSON is YAML
        file.write_text(json.dumps({"prefix": prefix, "kafka": kafka}), encoding="utf-8")
        said = [
            await skysail(file, "topics", "check"),
            await skysail(file, "model", "list"),
            await skysail(file, "tail", "predictions", "--from-beginning", "--end"),
            await skysail(file, "query", "sums", "--input", "[1, 1]"),
        ]
    assert prediction.query_id in said[2]
    printed = configuration.masked(there.settings) + "".join(said)
    logs = [log.read_text(encoding="utf-8") for log in (tmp_path / "run" / "logs").iterdir()]
    assert len(logs) == 6
    assert not any(PASSWORD in text or "pass word" in text for text in (printed, *logs))


async def is_shown(there: Deployed) -> None:
    """Wait until the page shows every process."""
    address = f"http://127.0.0.1:{there.settings.control.port}/api/status"
    shown = 0
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE_S):
        while shown < len(there.system.pids):
            async with session.get(address) as response:
                shown = len((await response.json())["processes"])
            await asyncio.sleep(0.1)


async def skysail(file: Path, *arguments: str) -> str:
    """Run a command in a process of its own, which has only the file; returns what it printed."""
    command = [sys.executable, "-m", "deploy.cli", *arguments, "--config", str(file)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return str(done.stdout + done.stderr)
