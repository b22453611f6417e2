"""The whole deployment on an Apache Kafka that wants TLS and a log-in, by nothing but documented settings."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trustme
from confluent_kafka.admin import AclOperation, AlterConfigOpType, ResourceType

from deploy.local.admin import admin_client
from deploy.local.process import free_port
from schemas import topics
from schemas.records import Status
from streams.runtime.kafka import admin
from tests.deployments import PATIENT_MS, ROLES, Toy, deployed
from tests.secure import PASSWORD, SecureKafka, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.local.redis import RedisServer

PARITY = {"parity": Toy("tests.toys:parity", np.ones((2, 2), dtype=np.float32))}
SUMS = {"sums": {"models": ["parity"], "policy": "exp3", "slo_ms": PATIENT_MS, "default_output": -1}}
PATIENCE_S = 60.0
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
SET = AlterConfigOpType.SET


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Start an Apache Kafka of its own for this file."""
    with serving(tmp_path_factory.mktemp("secure")) as server:
        server.create_user()
        yield server


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
        await there.is_shown()
        file = settings_file(tmp_path, prefix, kafka)
        said = [
            await printed(file, "topics", "check"),
            await printed(file, "model", "list"),
            await printed(file, "tail", "predictions", "--from-beginning", "--end"),
            await printed(file, "query", "sums", "--input", "[1, 1]"),
            await printed(file, "config", "show"),
        ]
    assert prediction.query_id in said[2]
    logs = [log.read_text(encoding="utf-8") for log in (tmp_path / "run" / "logs").iterdir()]
    assert len(logs) == 5
    assert not any(secret in text for text in (*said, *logs) for secret in (PASSWORD, json.dumps(PASSWORD)[1:-1]))


def changed(kafka: dict[str, Any], **properties: str) -> dict[str, Any]:
    """Return the same settings with other properties."""
    return {**kafka, "properties": {**kafka["properties"], **properties}}


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("password", "Authentication failed during authentication due to invalid credentials"),
        ("authority", "certificate verify failed"),
        ("certificate", "certificate required"),
        ("protocol", "security_protocol is 'TLS'; there are: "),
        ("file", "cannot build the TLS context"),
    ],
)
async def test_who_is_not_let_in_is_told_why(secure: SecureKafka, tmp_path: Path, case: str, sentence: str) -> None:
    """The command ends by itself and says what to look at; no traceback, no password."""
    (tmp_path / "wrong").write_text("geheim", encoding="utf-8")
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    cases = {
        "password": changed(secure.logged_in, sasl_plain_password_file=str(tmp_path / "wrong")),
        "authority": changed(secure.logged_in, ssl_cafile=str(tmp_path / "other.pem")),
        "certificate": {**secure.logged_in, "bootstrap": secure.certified["bootstrap"]},
        "protocol": changed(secure.logged_in, security_protocol="TLS"),
        "file": changed(secure.logged_in, ssl_cafile=str(tmp_path / "absent.pem")),
    }
    file = settings_file(tmp_path, "nobody", cases[case])
    for arguments in (
        (["topics", "check"], ["run", "--role", "joiner"]) if case == "password" else (["topics", "check"],)
    ):
        done = await skysail(file, *arguments)
        assert done.returncode == 1
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
        assert "geheim" not in done.stdout + done.stderr


async def test_a_role_with_the_rights_of_the_page_does_not_start_on_topics_that_unpack(
    secure: SecureKafka, prefix: str, tmp_path: Path
) -> None:
    """It sees how its topics are set: a client's few kilobytes could be gigabytes there."""
    await printed(settings_file(tmp_path, prefix, {"bootstrap": secure.bootstrap}), "topics", "create")
    page = PAGE.read_text(encoding="utf-8")
    for operations, kind in re.findall(r"User:role ([^#]*?)--(topic|group) shop\. --resource", page):
        granted = [AclOperation[camel_to_upper(name)] for name in re.findall(r"--operation (\w+)", operations)]
        secure.allow(ResourceType[kind.upper()], f"{prefix}.", granted)
    file = settings_file(tmp_path, prefix, secure.logged_in)
    assert "the broker does not show" not in await printed(file, "topics", "check")
    wrong = {"compression.type": "producer"}
    admin.configure(admin_client(secure.bootstrap), f"{prefix}.{topics.FEEDBACK}", wrong)
    ended = await skysail(file, "run", "--role", "joiner")
    assert ended.returncode == 1
    assert "has compression.type producer instead of uncompressed" in ended.stderr


def camel_to_upper(name: str) -> str:
    """Return `DESCRIBE_CONFIGS` for `DescribeConfigs`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def settings_file(folder: Path, prefix: str, kafka: dict[str, Any]) -> Path:
    """Write what a person would write."""
    file = folder / "skysail.yaml"  # JSON is YAML
    file.write_text(json.dumps({"prefix": prefix, "kafka": kafka}), encoding="utf-8")
    return file


async def skysail(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which has only the file."""
    command = [sys.executable, "-m", "deploy.cli", *arguments, "--config", str(file)]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


async def printed(file: Path, *arguments: str) -> str:
    """Run a command that succeeds; returns all that it printed."""
    done = await skysail(file, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
