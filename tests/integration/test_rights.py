"""On a Kafka that allows nothing by itself, every role does its work with the rights that follow from the topology."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from deploy.config.addresses import connection
from deploy.config.settings import Settings
from deploy.connect.clients import properties
from deploy.connect.schema_registry import codec_for
from deploy.local.process import free_port
from deploy.state.desired import rights_of
from schemas import topics
from schemas.records import Feedback, Status
from streams.rights import ASKER, OPERATOR, TEACHER, acting
from streams.topology import build
from tests.deployments import PATIENT_MS, UNTIL_S, PatientClient, Toy, Watch
from tests.secure import SecureKafka, serving
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.local.redis import RedisServer

ROOT = Path(__file__).parents[2]
PARITY = Toy("tests.toys:parity", np.ones((2, 2), dtype=np.float32))
# Principal -> how it is started.
ROLES = {
    "selection": ["selection"],
    "worker.parity": ["worker", "--model", "parity"],
    "joiner": ["joiner"],
    "learner": ["learner"],
    "control": ["control"],
    "gateway": ["gateway"],
}
COMMAND = [sys.executable, "-P", "-m", "deploy.cli"]
APP = "app"  # asks and teaches
TOKEN = "0123456789abcdef-acts"
# What a role may write and has no reason to in such a run: it reads nothing bad, nobody records or maps, no model runs
# inside selection, no features and no candidate are there.
IDLE = {
    "selection": {"model-predictions", "shadows", "calls", "features"},
    "worker.parity": {"shadows"},
    "joiner": {"feedback", "calls"},
    "learner": {"calls"},
    "control": {"promotions", "plan", "applications", "models", "queries"},
    "gateway": {"queries", "feedback"},
}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Start an Apache Kafka where who has no right has none."""
    with serving(tmp_path_factory.mktemp("closed"), is_open=False) as server:
        yield server


def as_user(user: str) -> dict[str, str]:
    """Return the environment of a process that logs in as a user."""
    return os.environ | {"PYTHONPATH": str(ROOT), "SKYSAIL_KAFKA__PROPERTIES__SASL_PLAIN_USERNAME": user}


def set_up(file: Path) -> None:
    """Create the topics and publish, as the chart's Job does."""
    setup = [*COMMAND, "app", "apply", "--config", str(file)]
    subprocess.run(setup, env=as_user(OPERATOR), check=True, timeout=120, cwd=file.parent)


def start(user: str, file: Path, port: int) -> subprocess.Popen[bytes]:
    """Start the role of a user, with its figures at a port; its log lies beside the settings."""
    argv = [*COMMAND, "run", "--quiet", "--config", str(file), "--role", *ROLES[user], "--instance", f"{user}@1"]
    with (file.parent / f"{user}.log").open("w") as log:
        return subprocess.Popen(
            argv, env=as_user(user) | {"SKYSAIL_METRICS__PORT": str(port)}, stdout=log, stderr=log, cwd=file.parent
        )


def probed(port: int, path: str) -> int:
    """Ask a role as its pod's probes do; returns the status."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return int(reply.status)
    except HTTPError as error:
        return error.code


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a role."""
    process.terminate()
    process.wait(30)


async def test_every_role_works_under_a_user_of_its_own(
    closed: SecureKafka, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Asked, answered, told, learnt and shown; a letter is sent again from the page; nobody is refused anything."""
    package_function(PARITY.function, tmp_path / "parity", "parity", "1", PARITY.sample)
    given: dict[str, Any] = {
        "prefix": prefix,
        "kafka": closed.logged_in,
        "redis": {"url": redis_server.url},
        "models": {"parity": str(tmp_path / "parity")},
        "control": {"port": free_port(), "tokens": f"{TOKEN} act"},
        "joiner": {"early_s": 0.2},
        "gateway": {"port": free_port()},
        "applications": {"sums": {"models": ["parity"], "slo_ms": PATIENT_MS, "default_output": -1}},
    }
    file = tmp_path / "skysail.yaml"
    file.write_text(json.dumps(given), encoding="utf-8")
    settings = Settings.model_validate(given)
    found = rights_of(settings, build(["parity"]))
    for user in (*ROLES, OPERATOR):
        closed.grant(user, found[user])
    closed.grant(APP, (*found[ASKER], *found[TEACHER]))
    set_up(file)
    app = Settings.model_validate(given | {"kafka": closed.login(APP)})
    eyes = Settings.model_validate(given | {"kafka": {"bootstrap": closed.bootstrap}})
    codec = codec_for(settings)
    with ExitStack() as undo:
        ports = {user: free_port() for user in ROLES}
        for user, port in ports.items():
            undo.callback(stop, start(user, file, port))
        async with (
            Watch(
                connection(eyes), (topics.OBSERVATIONS, topics.REPORTS, topics.dead_letters(topics.FEEDBACK)), codec
            ) as watch,
            PatientClient(app.kafka.bootstrap, prefix, properties(app), codec=codec) as client,
        ):
            await watch.until(lambda: watch.reports().keys() >= ROLES.keys(), "a report of every role", 120)
            prediction = await client.predict("sums", np.array([1, 2], dtype=np.float32))
            assert (prediction.status, prediction.answer) == (Status.COMPLETE, 1)
            await client.feedback(prediction, label=1)
            await watch.until(lambda: watch.counter("learner", "applied_total{application=sums}"), "a lesson")
            for user, port in ports.items():
                assert await asyncio.to_thread(probed, port, "/health") == 200, user
                assert await asyncio.to_thread(probed, port, "/ready") == 200, user
            await client.send_feedback([(Feedback("nobody", label=1), None)])
            await watch.until(lambda: watch.dead(topics.FEEDBACK), "a dead letter")
            sent = await asyncio.to_thread(sent_again, settings, topics.FEEDBACK)
            assert (sent["said"]["sent"], sent["said"]["refused"]) == ({"feedback": 1}, {}), sent
            await watch.until(lambda: watch.dead(topics.FEEDBACK)[1:], "the same letter, once more", 2 * UNTIL_S)
            for name, lost in (
                (topics.dead_letters(topics.FEEDBACK), "no receipt"),
                (topics.FEEDBACK, "not sent again"),
            ):
                closed.revoke("control", [right for right in acting(prefix) if right.name == f"{prefix}.{name}"])
                refused = await asyncio.to_thread(sent_again, settings, topics.FEEDBACK)
                assert lost in refused["error"], refused
                assert f"no right Write on topic {prefix}.{name}:" in refused["error"], refused
    for user in ROLES:
        said = (tmp_path / f"{user}.log").read_text(encoding="utf-8")
        assert "uthoriz" not in said, said
    assert {one for one in closed.seen("Denied") if one.user in ROLES and one.user != "control"} == set()
    for user, idle in IDLE.items():
        did = {one.name for one in closed.seen() if (one.user, one.operation, one.resource) == (user, "WRITE", "Topic")}
        may = {right.name for right in found[user] if right.resource == "topic" and "Write" in right.operations}
        letters = {name for name in may - did if name.endswith(".dlq")}
        assert may - did - letters == {f"{prefix}.{name}" for name in idle}, user
        assert did <= may, user


def sent_again(settings: Settings, topic: str) -> dict[str, Any]:
    """Have the page send all letters of a topic again."""
    wish = json.dumps({"action": "redrive", "topic": topic}).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    place = f"http://127.0.0.1:{settings.control.port}/api/action"
    try:
        with urlopen(Request(place, wish, headers), timeout=120) as reply:
            told: dict[str, Any] = json.load(reply)
    except HTTPError as error:
        told = json.load(error)
    return told
