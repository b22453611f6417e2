"""Nothing that applications say, and no secret, is found where others read: logs, figures, command lines, files.

A run of every role at debug level is given words that occur nowhere else: inputs, contexts, labels, what is no record,
passwords of Kafka and Redis, and a token. Then everything is searched that an operator shows to others, or another user
of the machine can read.
"""

from __future__ import annotations

import json
import stat
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import aiohttp
import psutil
import pytest

from deploy.config.settings import Role
from deploy.local.process import free_port
from deploy.local.redis import RedisServer
from schemas import topics
from schemas.records import Report, Status
from tests.collector import receiving
from tests.deployments import PATIENT_MS, UNTIL_S, Toy, deployed
from tests.secure import SecureKafka, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from tests.collector import Received
    from tests.deployments import Deployed

INPUT, CONTEXT, LABEL, RUBBISH = "mallow-input", "mallow-context", "mallow-label", b"mallow-rubbish"
TOKEN, STRANGER = "mallow-token-0123456789", "mallow-stranger-0123456789"
KAFKA_PASSWORD, REDIS_PASSWORD = "mallow-kafka-0123456789", "mallow-redis-0123456789"
SAID = "mallow"  # is in all of them
TELLING = Toy("tests.toys:telling", ["text"])
MODELS = {"telling": TELLING, "hosted": TELLING}
SHOP = {
    "models": [*MODELS],
    "policy": "exp3",
    "per_context": True,
    "slo_ms": PATIENT_MS,
    "default_output": "none",
}


@pytest.fixture
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Start an Apache Kafka that knows a user by the password."""
    with serving(tmp_path_factory.mktemp("secure")) as server:
        server.create_user("told", KAFKA_PASSWORD)
        yield server


@contextmanager
def told_redis(folder: Path) -> Iterator[RedisServer]:
    """Start a Redis that wants the password."""
    folder.mkdir(mode=0o700)
    _secret(folder / "password", REDIS_PASSWORD)
    with RedisServer(folder) as server:
        assert REDIS_PASSWORD in server.url
        yield server


async def test_a_run_at_debug_level_tells_nobody_what_applications_say(
    secure: SecureKafka, prefix: str, tmp_path: Path
) -> None:
    """Asked well and badly, by all ways; the model's own error names its input, and that stays out, too."""
    pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
    secure.create_topics({f"{prefix}-{name}": 1 for name in ("orders", "scored", "truths")})
    with told_redis(tmp_path / "redis") as redis, receiving() as received:
        more = _settings(secure, tmp_path, received)
        shop = {**SHOP, **_mapped(prefix)}
        async with deployed(secure, redis.url, prefix, tmp_path, MODELS, {"shop": shop}, **more) as there:
            await _talk(there)
            await _talk_http(f"http://127.0.0.1:{more['gateway']['port']}")
            await _talk_records(there, prefix)
            await there.is_shown()
            await there.watch.until(lambda: "shop" in repr(received.told()), "spans")
            control, gateway = (f"http://127.0.0.1:{more[role]['port']}" for role in ("control", "gateway"))
            pages = [text async for text in _pages([f"{control}/api/status", f"{gateway}/metrics"])]
            told = [repr(report) for report in there.watch.decoded(Report, topics.REPORTS)]
            sources = (topics.QUERIES, topics.FEEDBACK, topics.MODEL_PREDICTIONS, topics.OBSERVATIONS, topics.MAPPING)
            letters = [repr(letter.headers) for topic in sources for letter in there.watch.dead(topic)]
            lines = [line for pid in there.system.pids.values() for line in _command_lines(pid)]
            processes = len(there.system.pids)
        spans = repr(received.told())
    assert processes >= len(get_args(Role))
    logs = {file.name: file.read_text(errors="replace") for file in (tmp_path / "run" / "logs").iterdir()}
    assert len(logs) == processes
    assert sum("DEBUG" in text for text in logs.values()) > 1
    assert [*(tmp_path / "trace").glob(f"{topics.QUERIES}-*.avro")]
    assert len(letters) > len(sources)
    shown = {"pages": pages, "headers of dead letters": letters, "reports": told, "command lines": lines}
    texts = {**logs, **{name: "\n".join(its) for name, its in shown.items()}}
    leaks = {name: [line for line in text.splitlines() if SAID in line][:3] for name, text in texts.items()}
    leaks |= {str(file.relative_to(tmp_path)): ["is read by others"] for file in _readable(tmp_path) if _tells(file)}
    assert {name: found for name, found in {**leaks, "spans": spans.count(SAID)}.items() if found} == {}


def _settings(kafka: SecureKafka, folder: Path, received: Received) -> dict[str, Any]:
    """Return settings of all roles, with secrets in them where they may stand."""
    _secret(folder / "tokens", f"{TOKEN} shop\n")
    login = kafka.login("told")
    secret = {name: value for name, value in login["properties"].items() if name != "sasl_plain_password_file"}
    return {
        "kafka": {**login, "properties": {**secret, "sasl_plain_password": KAFKA_PASSWORD}},
        "roles": get_args(Role),
        "hosts": {"pool": {"models": ["hosted"], "memory_mib": 64}},
        "gateway": {"port": free_port(), "timeout_s": UNTIL_S, "tokens_file": str(folder / "tokens")},
        "control": {"port": free_port()},
        "record": {"folder": str(folder / "trace")},
        "telemetry": {"endpoint": received.endpoint, "rate": 1.0},
        "log_level": "debug",
    }


def _mapped(prefix: str) -> Mapping[str, Any]:
    """Return how records of others ask and teach."""
    return {
        "from": {"topic": f"{prefix}-orders", "id": "id", "input": "text"},
        "to": {"topic": f"{prefix}-scored", "fields": {"score": "answer"}},
        "feedback": [{"topic": f"{prefix}-truths", "id": "id", "label": "label"}],
    }


async def _talk(there: Deployed) -> None:
    answered = await there.client.predict("shop", INPUT, context=CONTEXT)
    assert (answered.status, answered.answer) == (Status.COMPLETE, INPUT)
    await there.client.feedback(answered, label=LABEL)
    failed = await there.client.predict("shop", f"{INPUT}: raise", context=CONTEXT)
    assert failed.status is not Status.COMPLETE
    for topic in (topics.QUERIES, topics.FEEDBACK, topics.MODEL_PREDICTIONS, topics.OBSERVATIONS):
        there.put(topic, RUBBISH, key=RUBBISH)
        await there.watch.until(partial(there.watch.dead, topic), f"a dead letter of {topic}")
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


async def _talk_records(there: Deployed, prefix: str) -> None:
    """Ask and teach by records of others, of which some are none."""
    for name, said in (("orders", {"id": "o-1", "text": INPUT}), ("truths", {"id": "o-1", "label": LABEL})):
        there.producer.produce(f"{prefix}-{name}", json.dumps(said).encode(), CONTEXT.encode())
        there.producer.produce(f"{prefix}-{name}", RUBBISH, RUBBISH)
    assert there.producer.flush(10) == 0
    assert (await there.watch.answer("o-1")).answer == INPUT
    await there.watch.until(lambda: len(there.watch.dead(topics.MAPPING)) > 1, "dead letters of mapping")


def _secret(file: Path, text: str) -> None:
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")


def _command_lines(pid: int) -> list[str]:
    """Return what a process and its children were started by, which every user of the machine can read."""
    process = psutil.Process(pid)
    return [" ".join(each.cmdline()) for each in (process, *process.children(recursive=True))]


async def _pages(addresses: list[str]) -> AsyncIterator[str]:
    async with aiohttp.ClientSession() as session:
        for address in addresses:
            async with session.get(address) as reply:
                yield await reply.text()


def _tells(file: Path) -> bool:
    """Whether a file holds what was said, as it is or packed in a trace."""
    return (file.parent.name == "trace" and file.suffix == ".avro") or SAID.encode() in file.read_bytes()


def _readable(folder: Path) -> Iterator[Path]:
    """Yield the files that other users of the machine can read, as far as the files' own modes say."""
    return (
        file for file in folder.rglob("*") if file.is_file() and file.stat().st_mode & (stat.S_IROTH | stat.S_IRGRP)
    )
