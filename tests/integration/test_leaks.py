"""Nothing that applications say, and no secret, is found where others read: logs, figures, command lines, files.

A run at debug level is given words that occur nowhere else: inputs, contexts, labels, what is no record, a password and
a token. Then everything is searched that an operator shows to others, or another user of the machine can read.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from deploy.local.process import free_port
from schemas import topics
from schemas.records import Report, Status
from tests.deployments import PATIENT_MS, ROLES, UNTIL_S, Toy, deployed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from tests.deployments import Deployed

INPUT, CONTEXT, LABEL, RUBBISH = "mallow-input", "mallow-context", "mallow-label", b"mallow-rubbish"
TOKEN, STRANGER = "mallow-token-0123456789", "mallow-stranger-0123456789"
SAID = "mallow"  # is in all of them
MODELS = {"telling": Toy("tests.toys:telling", ["text"])}
SHOP = {"models": ["telling"], "policy": "exp3", "per_context": True, "slo_ms": PATIENT_MS, "default_output": "none"}


async def test_a_run_at_debug_level_tells_nobody_what_applications_say(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Asked well and badly, over Kafka and HTTP; the model's own error names its input, and that stays out, too."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN} shop\n")
    tokens.chmod(0o600)
    port, page = free_port(), free_port()
    more = {
        "roles": (*ROLES, "control", "gateway"),
        "gateway": {"port": port, "timeout_s": UNTIL_S, "tokens_file": str(tokens)},
        "control": {"port": page},
        "log_level": "debug",
    }
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, {"shop": SHOP}, **more) as there:
        await _talk(there)
        await _talk_http(f"http://127.0.0.1:{port}")
        await there.is_shown()
        addresses = [f"http://127.0.0.1:{page}/api/status", f"http://127.0.0.1:{port}/metrics"]
        shown = [text async for text in _pages(addresses)]
        told = [repr(report) for report in there.watch.decoded(Report, topics.REPORTS)]
        lines = [_command_line(pid) for pid in there.system.pids.values()]
    logs = {file.name: file.read_text(errors="replace") for file in (tmp_path / "run" / "logs").iterdir()}
    assert len(logs) == len(more["roles"])
    assert any("DEBUG" in text for text in logs.values())
    leaks = {name: [line for line in text.splitlines() if SAID in line][:3] for name, text in logs.items()}
    assert {name: found for name, found in leaks.items() if found} == {}
    assert [text for text in (*shown, *told, *lines) if SAID in text] == []
    assert [str(file) for file in _readable(tmp_path) if SAID.encode() in file.read_bytes()] == []


async def _talk(there: Deployed) -> None:
    answered = await there.client.predict("shop", INPUT, context=CONTEXT)
    assert (answered.status, answered.answer) == (Status.COMPLETE, INPUT)
    await there.client.feedback(answered, label=LABEL)
    failed = await there.client.predict("shop", f"{INPUT}: raise", context=CONTEXT)
    assert failed.status is not Status.COMPLETE
    for topic in (topics.QUERIES, topics.FEEDBACK, topics.MODEL_PREDICTIONS, topics.OBSERVATIONS):
        there.put(topic, RUBBISH, key=RUBBISH)
        await there.watch.until(lambda topic=topic: there.watch.dead(topic), f"a dead letter of {topic}")
    await there.watch.until(lambda: there.watch.records[topics.OBSERVATIONS], "an observation")


async def _talk_http(address: str) -> None:
    body = {"inputs": [{"name": "input", "datatype": "BYTES", "shape": [1], "data": [INPUT]}]}
    async with aiohttp.ClientSession(address) as session:
        for token, status in ((TOKEN, 200), (STRANGER, 401)):
            headers = {"Authorization": f"Bearer {token}"}
            async with session.post("/v2/models/shop/infer", json=body, headers=headers) as reply:
                assert reply.status == status, await reply.text()
        async with session.post(
            "/v2/models/shop/infer", data=b'{"inputs": mallow', headers={"Authorization": f"Bearer {TOKEN}"}
        ) as reply:
            assert reply.status == 400


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")


async def _pages(addresses: list[str]) -> AsyncIterator[str]:
    async with aiohttp.ClientSession() as session:
        for address in addresses:
            async with session.get(address) as reply:
                yield await reply.text()


def _readable(folder: Path) -> Iterator[Path]:
    """Yield the files that other users of the machine can read, as far as the files' own modes say."""
    return (
        file for file in folder.rglob("*") if file.is_file() and file.stat().st_mode & (stat.S_IROTH | stat.S_IRGRP)
    )
