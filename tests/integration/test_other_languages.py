"""The examples in other languages ask, are answered and teach, as docs/other-clients.md says. They know no Python.

Their libraries come from the registries of those languages: without one of them, or its tool, the test is skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from schemas import topics
from schemas.records import Observations, Status
from tests.deployments import PATIENT_MS, Toy, deployed
from tests.registries import EXAMPLES, FETCH_S, fetched, jars

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from tests.deployments import Deployed

ROWS = np.array([[1.0, 2.0], [3.0, 5.0]], dtype=np.float32)
APPLICATIONS = {"sums": {"models": ["parity"], "slo_ms": PATIENT_MS, "default_output": -1, "default_loss": None}}
MODELS = {"parity": Toy("tests.toys:parity", ROWS)}


@asynccontextmanager
async def sums(kafka: Broker, redis_server: RedisServer, prefix: str, folder: Path) -> AsyncIterator[Deployed]:
    """Run a deployment whose application says whether a sum is odd."""
    async with deployed(kafka, redis_server.url, prefix, folder, MODELS, APPLICATIONS) as there:
        yield there


async def answered(argv: Sequence[str], folder: Path, there: Deployed, context: str) -> Any:
    """Run an example, and return what it has printed."""
    named = {
        "BOOTSTRAP": there.settings.kafka.bootstrap,
        "PREFIX": there.settings.prefix,
        "CONTEXT": context,
        "TIMEOUT_MS": "60000",
    }
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=folder, env=os.environ | named, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(120):
        written = (await process.communicate())[0]
    assert process.returncode == 0
    return json.loads(written)


async def is_learnt(there: Deployed, query_id: str) -> float:
    """Wait until the feedback on a query was joined; returns the loss of its answer."""

    def losses() -> list[float | None]:
        found = [one for several in there.watch.decoded(Observations, topics.OBSERVATIONS) for one in several.items]
        return [one.losses[0] for one in found if one.query_id == query_id]

    (loss,) = await there.watch.until(losses, f"no observation of {query_id}")
    assert loss is not None
    return loss


async def asks_and_teaches(argv: Sequence[str], folder: Path, there: Deployed) -> None:
    """Ask twice, with a right and a wrong truth: the answers are the model's, and the losses say which was which."""
    right = await answered([*argv, "sums", "[1, 2]", "1"], folder, there, "ann")
    wrong = await answered([*argv, "sums", "[3, 5]", "1"], folder, there, "bö")
    for found, answer, loss in ((right, 1, 0.0), (wrong, 0, 1.0)):
        prediction = await there.watch.answer(found["query_id"])
        assert (prediction.status, prediction.answer) == (Status.COMPLETE, answer)
        assert (found["status"], found["answer"]) in [("complete", {"long": answer}), ("complete", answer)]
        assert await is_learnt(there, found["query_id"]) == loss


HAS_NODE = pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")), reason="node and npm are not installed"
)


def node_example(folder: Path) -> Path:
    """Return a copy of the example with its packages."""
    copied = folder / "examples" / "node"
    shutil.copytree(EXAMPLES / "node", copied, ignore=shutil.ignore_patterns("node_modules"))
    fetched(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], copied)
    return copied


@HAS_NODE
async def test_node(kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    """With kafkajs and avsc."""
    (tmp_path / "schemas").symlink_to(EXAMPLES.parent / "schemas")
    folder = node_example(tmp_path)
    async with sums(kafka, redis_server, prefix, tmp_path) as there:
        await asks_and_teaches(["node", "ask.mjs"], folder, there)


@HAS_NODE
def test_a_copy_of_the_example_says_which_folder_it_misses(tmp_path: Path) -> None:
    """Outside of a clone nothing lies where it looks."""
    argv = ["node", "ask.mjs", "sums", "[1, 2]"]
    told = subprocess.run(argv, cwd=node_example(tmp_path), capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert "copy Skysail's folder schemas" in told.stderr


@pytest.mark.skipif(not (shutil.which("java") and shutil.which("javac")), reason="no Java with a compiler")
@pytest.mark.skipif(not shutil.which("mvn"), reason="Maven is not installed")
async def test_java(kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    """With Kafka's own client and Avro's own framing."""
    its = jars("java", tmp_path)
    async with sums(kafka, redis_server, prefix, tmp_path) as there:
        await asks_and_teaches(["java", "-cp", f"{its}/*", "Ask.java"], EXAMPLES / "java", there)


@pytest.mark.skipif(not shutil.which("go"), reason="go is not installed")
async def test_go(kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    """With franz-go and hamba/avro."""
    fetched(["go", "mod", "download"], EXAMPLES / "go")
    program = tmp_path / "ask"
    build = ["go", "build", "-o", str(program), "."]
    built = await asyncio.create_subprocess_exec(*build, cwd=EXAMPLES / "go")
    async with asyncio.timeout(FETCH_S):
        assert await built.wait() == 0
    async with sums(kafka, redis_server, prefix, tmp_path) as there:
        await asks_and_teaches([str(program)], EXAMPLES / "go", there)
