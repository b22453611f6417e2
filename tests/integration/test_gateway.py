"""HTTP in front of a whole deployment: queries, feedback and rankings of clients that know nothing of Kafka."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest
import yaml

from deploy.local.process import free_port
from schemas import topics
from schemas.records import Observations, Query
from tests.deployments import PATIENT_MS, ROLES, UNTIL_S, Toy, deployed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from tests.deployments import Deployed

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"
SAMPLE = np.ones((2, 2), dtype=np.float32)
MODELS = {"right": Toy("tests.toys:parity", SAMPLE), "wrong": Toy("tests.toys:contrary", SAMPLE)}
APPLICATION = {"models": [*MODELS], "slo_ms": PATIENT_MS}
ROWS = 40


@asynccontextmanager
async def served(
    kafka: Broker, redis: str, prefix: str, folder: Path, **more: Any
) -> AsyncIterator[tuple[Deployed, aiohttp.ClientSession]]:
    """Run a deployment with a gateway; yields it with a session at its address."""
    port = free_port()
    gateway = {"port": port, "timeout_s": UNTIL_S, **more.pop("gateway", {})}
    models, applications = more.pop("models", MODELS), more.pop("applications", {"parity": APPLICATION})
    shape = {"roles": (*ROLES, "gateway"), "gateway": gateway, **more}
    async with (
        deployed(kafka, redis, prefix, folder, models, applications, **shape) as there,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield there, session


def inference(numbers: list[list[float]], **more: object) -> dict[str, Any]:
    """Return a request of Open Inference v2."""
    flat = [number for row in numbers for number in row]
    tensor = {"name": "input", "datatype": "FP32", "shape": [len(numbers), 2], "data": flat}
    return {"inputs": [tensor], **more}


async def test_rows_are_answered_repeated_and_taught_over_http(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Forty rows in one request; the same request again asks nothing; their labels teach the policy."""
    async with served(kafka, redis_server.url, prefix, tmp_path) as (there, session):
        async with session.get("/v2/health/ready") as ready:
            assert (ready.status, await ready.json()) == (200, {"ready": True})
        asked = inference([[number, 1] for number in range(ROWS)], id="first")
        async with session.post("/v2/models/parity/infer", json=asked) as reply:
            assert reply.status == 200, await reply.text()
            first = await reply.read()
            outputs = {one["name"]: one["data"] for one in (await reply.json())["outputs"]}
        for number, answer, decision in zip(range(ROWS), outputs["answer"], outputs["decision"], strict=True):
            assert answer == (number + 1 + (decision == "wrong")) % 2
        assert outputs["status"] == ["complete"] * ROWS
        assert all(0 < share <= 1 for share in outputs["probability"])
        async with session.post("/v2/models/parity/infer", json=asked) as reply:
            assert await reply.read() == first
        assert len(there.watch.decoded(Query, topics.QUERIES)) == ROWS
        labels = [{"id": name, "label": (n + 1) % 2} for n, name in enumerate(outputs["query_id"])]
        async with session.post("/v2/models/parity/feedback", json={"feedback": labels}) as reply:
            assert (reply.status, await reply.json()) == (202, {"taken": ROWS})

        def learnt() -> int:
            return sum(len(each.items) for each in there.watch.decoded(Observations, topics.OBSERVATIONS))

        await there.watch.until(lambda: learnt() >= ROWS, "all is taught")


async def test_in_one_process_with_the_loop(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """A small machine's process serves HTTP, too; many requests at once all have their own answers."""
    shape = {"processes": "shared", "gateway": {"shared": True}}
    async with served(kafka, redis_server.url, prefix, tmp_path, **shape) as (there, session):
        assert "gateway" not in there.system.pids

        async def one(number: int) -> bool:
            async with session.post("/v2/models/parity/infer", json=inference([[number, 1]])) as reply:
                outputs = {each["name"]: each["data"] for each in (await reply.json())["outputs"]}
            return outputs["answer"] == [(number + 1 + (outputs["decision"] == ["wrong"])) % 2]

        assert all(await asyncio.gather(*map(one, range(ROWS))))


def of_the_page(kind: str) -> list[str]:
    """Return the blocks of docs/gateway.md in one language."""
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def packaged_as_the_page_says(folder: Path) -> dict[str, Any]:
    """Save and run the programs that the page has somebody save; returns the settings, with the packages' folders."""
    for program in of_the_page("python"):
        name = program.splitlines()[0].removeprefix("# ")
        if name.endswith(".py"):
            (folder / name).write_text(program, encoding="utf-8")
            here = os.environ | {"PYTHONPATH": str(PAGE.parents[1])}
            subprocess.run([sys.executable, name], cwd=folder, env=here, check=True)
    first, all_of_them = [yaml.safe_load(block) for block in of_the_page("yaml") if "models:" in block]
    for part in ("models", "applications", "gateway"):
        assert first[part].items() <= all_of_them[part].items()
    all_of_them["models"] = {name: folder / path for name, path in all_of_them["models"].items()}
    return dict(all_of_them)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not on this machine")
async def test_the_page_is_enough_for_somebody_with_curl(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program, setting and command of docs/gateway.md as it stands there, from top to bottom."""
    said_there = packaged_as_the_page_says(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{PAGE.parents[1]}")  # `sums:both` lies beside
    monkeypatch.syspath_prepend(tmp_path)
    blocks = of_the_page("sh")
    assert len(blocks) >= 7
    shape = {
        "models": said_there["models"],
        "applications": {name: one | {"slo_ms": PATIENT_MS} for name, one in said_there["applications"].items()},
        "gateway": {"application": said_there["gateway"]["application"]},
        "processes": "shared",  # two of its models import scikit-learn
    }
    async with served(kafka, redis_server.url, prefix, tmp_path, **shape) as (there, session):
        script = "set -e\n" + "echo\n".join(blocks)
        script = script.replace("127.0.0.1:8080", f"127.0.0.1:{there.settings.gateway.port}")
        script = script.replace("curl -s ", "curl -sS --fail-with-body ")
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said = (await process.communicate())[0].decode()
        assert process.returncode == 0, said
        for shown in (
            '{"name":"iris","ready":true}',
            '"predictions":[0]',
            '{"name":"OUTPUT0","datatype":"FP32","shape":[1,2],"data":[11.0,22.0]}',
            '"model_name":"iris"',
            '"taken":2',
            '"rewardActionId":"',
        ):
            assert shown in said

        def learnt() -> list[float | None]:
            found = there.watch.decoded(Observations, topics.OBSERVATIONS)
            return [one.loss for each in found for one in each.items if one.query_id == "event-1"]

        assert await there.watch.until(learnt, "the reward is learnt") == [0.25]
        async with session.get("/metrics") as reply:
            shown = await reply.text()
        await there.watch.until(lambda: "gateway" in there.watch.reports(), "the role reports")
        assert "# HELP skysail_gateway_requests_total requests answered by the gateway" in shown


async def test_each_token_has_its_applications(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """From a file that the settings name; its tokens stand in no log and no copy of the settings."""
    tokens = tmp_path / "tokens"
    tokens.write_text("0123456789abcdef parity\nfedcba9876543210 other\n")
    named = {"tokens_file": str(tokens)}
    async with served(kafka, redis_server.url, prefix, tmp_path, gateway=named) as (_, session):

        async def status(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with session.post("/v2/models/parity/infer", json=inference([[1, 1]]), headers=headers) as reply:
                return reply.status

        assert [await status(token) for token in ("0123456789abcdef", "fedcba9876543210", "")] == [200, 403, 401]
        for file in (tmp_path / "run").rglob("*.log"):
            assert "0123456789abcdef" not in file.read_text(errors="replace")
