"""On a Kafka that allows nothing by itself, every role does its work with the rights that follow from the topology."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from deploy.config.addresses import connection
from deploy.config.settings import Settings
from deploy.connect.clients import properties
from deploy.connect.schema_registry import codec_for
from deploy.errors import MissingError
from deploy.local.admin import admin_client
from deploy.local.process import free_port
from schemas import topics
from schemas.records import Status
from streams.rights import ASKER, OPERATOR, TEACHER, Right, rights
from streams.topology import build
from tests.deployments import PATIENT_MS, PatientClient, Toy, Watch
from tests.secure import PASSWORD, SecureKafka
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Start an Apache Kafka where who has no right has none."""
    server = SecureKafka(tmp_path_factory.mktemp("closed"), is_open=False)
    try:
        server.start()
    except MissingError as error:
        pytest.skip(f"no Apache Kafka: {error}")
    yield server
    server.stop()


def allow(server: SecureKafka, user: str, its: Iterable[Right]) -> None:
    """Create a user with these rights."""
    client = admin_client(server.bootstrap)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    news = [UserScramCredentialUpsertion(user, info, PASSWORD.encode())]
    acls = [
        AclBinding(
            ResourceType["BROKER" if right.resource == "cluster" else right.resource.upper()],
            right.name or "kafka-cluster",
            ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[{"DescribeConfigs": "DESCRIBE_CONFIGS"}.get(operation, operation.upper())],
            AclPermissionType.ALLOW,
        )
        for right in its
        for operation in right.operations
    ]
    asked = [*client.alter_user_scram_credentials(news).values(), *client.create_acls(acls).values()]
    for done in asked:
        done.result(10)


def as_user(user: str) -> dict[str, str]:
    """Return the environment of a process that logs in as a user."""
    return os.environ | {"PYTHONPATH": str(ROOT), "SKYSAIL_KAFKA__PROPERTIES__SASL_PLAIN_USERNAME": user}


def set_up(file: Path) -> None:
    """Create the topics and publish, as the chart's Job does."""
    setup = [*COMMAND, "app", "apply", "--config", str(file)]
    subprocess.run(setup, env=as_user(OPERATOR), check=True, timeout=120, cwd=file.parent)


def start(user: str, file: Path) -> subprocess.Popen[bytes]:
    """Start the role of a user; its log lies beside the settings."""
    argv = [*COMMAND, "run", "--quiet", "--config", str(file), "--role", *ROLES[user], "--instance", f"{user}@1"]
    with (file.parent / f"{user}.log").open("w") as log:
        return subprocess.Popen(argv, env=as_user(user), stdout=log, stderr=log, cwd=file.parent)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a role."""
    process.terminate()
    process.wait(30)


async def test_every_role_works_under_a_user_of_its_own(
    closed: SecureKafka, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Asked, answered, told, learnt and shown; nobody is refused anything."""
    found = rights(build(["parity"]), prefix)
    for user in (*ROLES, OPERATOR):
        allow(closed, user, found[user])
    allow(closed, APP, (*found[ASKER], *found[TEACHER]))
    package_function(PARITY.function, tmp_path / "parity", "parity", "1", PARITY.sample)
    given: dict[str, Any] = {
        "prefix": prefix,
        "kafka": closed.logged_in,
        "redis": {"url": redis_server.url},
        "models": {"parity": str(tmp_path / "parity")},
        "control": {"port": free_port()},
        "gateway": {"port": free_port()},
        "applications": {"sums": {"models": ["parity"], "slo_ms": PATIENT_MS, "default_output": -1}},
    }
    file = tmp_path / "skysail.yaml"
    file.write_text(json.dumps(given), encoding="utf-8")
    set_up(file)
    settings = Settings.model_validate(given)
    app = Settings.model_validate(given | {"kafka": login(closed, APP)})
    eyes = Settings.model_validate(given | {"kafka": {"bootstrap": closed.bootstrap}})
    codec = codec_for(settings)
    with ExitStack() as undo:
        for user in ROLES:
            undo.callback(stop, start(user, file))
        async with (
            Watch(connection(eyes), (topics.OBSERVATIONS, topics.REPORTS), codec) as watch,
            PatientClient(app.kafka.bootstrap, prefix, properties(app), codec=codec) as client,
        ):
            await watch.until(lambda: watch.reports().keys() >= ROLES.keys(), "a report of every role", 120)
            prediction = await client.predict("sums", np.array([1, 2], dtype=np.float32))
            assert (prediction.status, prediction.answer) == (Status.COMPLETE, 1)
            await client.feedback(prediction, label=1)
            await watch.until(lambda: watch.counter("learner", "applied_total{application=sums}"), "a lesson")
    for user in ROLES:
        said = (tmp_path / f"{user}.log").read_text(encoding="utf-8")
        assert "uthoriz" not in said, said


def login(server: SecureKafka, user: str) -> dict[str, Any]:
    """Return settings for `kafka` of a user."""
    its = server.logged_in
    return {**its, "properties": {**its["properties"], "sasl_plain_username": user}}
