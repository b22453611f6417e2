"""A running deployment that takes signed packages alone, on real services: one that is not signed changes nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from deploy.config import configuration
from deploy.config.settings import Settings
from deploy.connect.schema_registry import codec_for
from deploy.diagnose.health import load_faults_lately
from deploy.state import catalog
from deploy.state.packages import model_record
from deploy.system.launch import System
from schemas.records import Model
from tests.deployments import PATIENT_MS
from tests.integration.test_versions import SWITCH_S, Load, check, command
from tests.packages import package_constant
from tests.signed_packages import key_in
from workers.packages.signing.refusal import SignatureError
from workers.packages.signing.signed import sign

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from schemas.codec import Codec

PLACES: dict[str, dict[str, Any]] = {
    "worker": {},
    "host": {"hosts": {"all": {"models": ["same"]}}},
    "inside": {"processes": "shared", "selection": {"inline": ["same"]}},
}


async def refused(settings: Settings, version: str, reason: str) -> str:
    """Wait until a process says why it does not load a version; returns all that it says."""
    codec, end = codec_for(settings), asyncio.get_running_loop().time() + SWITCH_S
    while True:
        faults = await asyncio.to_thread(load_faults_lately, settings, codec)
        if reason in (told := str(faults.get(("same", version), ""))):
            return told
        assert asyncio.get_running_loop().time() < end, faults
        await asyncio.sleep(0.1)


def forge(settings: Settings, codec: Codec, package: Path) -> None:
    """Publish a version as somebody does who may write the topic `models`, and asks no command."""
    serving = catalog.read(settings, codec, Model)["same"]
    catalog.publish(settings, codec, [replace(model_record(package), partitions=serving.partitions)])


@pytest.mark.parametrize("place", PLACES)
async def test_an_unsigned_version_is_refused_while_the_old_one_answers_and_a_signed_one_takes_over(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, place: str
) -> None:
    """Neither a command nor who writes the topic `models` gets it in; no query is lost or answered otherwise."""
    key = key_in(tmp_path / "keys")
    one, two, three = (package_constant(tmp_path, version) for version in (1, 2, 3))
    sign(one, key)
    settings = Settings.model_validate(
        {
            "prefix": prefix,
            "partitions": 2,
            "kafka": {"bootstrap": kafka.bootstrap},
            "redis": {"url": redis_server.url},
            "roles": ["selection", "worker"],
            "processes": "each",
            "worker": {"load_retry_s": 0.5},
            "models": {"same": one, "require_signature": tmp_path / "keys"},
            "applications": {"app": {"models": ["same"], "policy": "exp3", "slo_ms": PATIENT_MS, "default_output": -1}},
            **PLACES[place],
        }
    )
    codec, file, load = (
        codec_for(settings),
        str(configuration.write(settings, tmp_path / "skysail.yaml")),
        Load(settings),
    )
    async with System(settings, codec, tmp_path / "run") as system:
        pids = dict(system.pids)
        asking = asyncio.create_task(load.run())
        await load.until(1)
        with pytest.raises(SignatureError, match="skysail model sign"):
            await command("model", "add", str(two), "--config", file)
        await asyncio.to_thread(forge, settings, codec, two)
        assert "skysail model sign" in await refused(settings, "2", "not trusted (unsigned)")
        seen = len(load.predictions)
        listed = json.loads(await command("model", "list", "--json", "--config", file))
        assert "not trusted (unsigned)" in str(listed)
        sign(two, key_in(tmp_path / "others", "other"))
        await refused(settings, "2", "not trusted (foreign-key): have it signed by the owner of release.pub")
        assert load.versions(0) == {"1"}
        assert len(load.predictions) > seen
        sign(two, key)
        await load.until(2)
        await command("model", "sign", str(three), "--key", str(tmp_path / "release.key"))
        await command("model", "add", str(three), "--config", file)
        await load.until(3)
        load.stop()
        await asking
        assert system.pids == pids
    check(load)
