"""Versions are promoted on evidence on real services: by command, and by the control role."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config import configuration
from deploy.config.settings import Settings
from deploy.connect.schema_registry import codec_for
from deploy.local.process import free_port
from deploy.system.launch import System
from tests.deployments import PatientClient
from tests.packages import package_constant

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

ROW = np.zeros(2, dtype=np.float32)
LONG_S = 200.0


@pytest.fixture
def settings(kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path) -> Settings:
    """Settings that name version 1, with the page."""
    return Settings.model_validate(
        {
            "prefix": prefix,
            "partitions": 2,
            "kafka": {"bootstrap": kafka.bootstrap},
            "redis": {"url": redis_server.url},
            "roles": ["selection", "worker", "joiner", "control"],
            "processes": "each",
            "control": {"port": free_port()},
            "models": {"same": package_constant(tmp_path, 1)},
            "applications": {"app": {"models": ["same"], "policy": "exp3", "slo_ms": 20_000, "default_output": -1}},
        }
    )


async def traffic(settings: Settings, right: int) -> None:
    """Ask every 5 ms and tell that `right` was the label, until cancelled."""
    async with PatientClient(settings.kafka.bootstrap, settings.prefix) as client, asyncio.TaskGroup() as tasks:
        while True:
            tasks.create_task(ask(client, right))
            await asyncio.sleep(0.005)


async def ask(client: PatientClient, right: int) -> None:
    """Ask once, and tell the label."""
    prediction = await client.predict("app", ROW)
    await client.feedback(prediction, label=right)


async def invoke(*arguments: str) -> Result:
    """Run a command line beside the event loop."""
    return await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, skysail, arguments)


async def shown(file: str) -> dict[str, tuple[str, float]]:
    """Return label and share of each version."""
    result = await invoke("model", "show", "same", "--json", "--config", file)
    assert result.exit_code == 0, result.output
    return {each["version"]: (each["label"], each["share"]) for each in json.loads(result.stdout)}


async def until(file: str, version: str, label: str) -> None:
    """Wait until a version has a label."""
    end = time.monotonic() + LONG_S
    while (await shown(file))[version][0] != label:
        assert time.monotonic() < end, await shown(file)
        await asyncio.sleep(0.5)


async def test_a_version_takes_over_on_evidence_by_command_and_by_itself(settings: Settings, tmp_path: Path) -> None:
    """Without evidence it is refused; a shadow gives it; the control role promotes the better and ends the worse."""
    file = str(configuration.write(settings, tmp_path / "skysail.yaml"))
    for version in (2, 3):
        package_constant(tmp_path, version)
    async with System(settings, codec_for(settings), tmp_path / "run"):
        added = await invoke("model", "add", str(tmp_path / "same-2"), "--shadow", "--config", file)
        assert added.exit_code == 0, added.output
        refused = await invoke("model", "promote", "same@2", "--since", "1h", "--config", file)
        assert refused.exit_code != 0
        assert "no observation compares them" in str(refused.exception)
        asking = asyncio.create_task(traffic(settings, right=2))
        end = time.monotonic() + LONG_S
        while (taken := await invoke("model", "promote", "same@2", "--config", file)).exit_code:
            assert time.monotonic() < end, str(taken.exception)
            await asyncio.sleep(1)
        assert "same 2 takes over from 1: it is better: difference 1.000" in taken.output
        await until(file, "2", "stable")

        plan = ("--auto", "--steps", "0.2,0.5,1", "--dwell", "0", "--least", "20", "--config", file)
        added = await invoke("model", "add", str(tmp_path / "same-3"), "--share", "0.01", "--config", file)
        assert added.exit_code == 0, added.output
        wished = await invoke("model", "promote", "same@3", *plan)
        assert wished.exit_code == 0, wished.output
        await until(file, "3", "")
        steps = (await invoke("model", "show", "same", "--config", file)).output
        assert "it is worse" in steps or "over its budget" in steps

        wished = await invoke("model", "promote", "same@1", "--holdback", "0.1", *plan)
        asking.cancel()
        asking = asyncio.create_task(traffic(settings, right=1))
        await until(file, "1", "stable")
        assert (await shown(file))["2"] == ("canary", 0.1)
        asking.cancel()


async def application(file: str) -> dict[str, str]:
    """Return the application's record."""
    return dict(json.loads((await invoke("app", "show", "app", "--json", "--config", file)).stdout))


async def decided_by(settings: Settings, policy: str) -> int:
    """Ask until a policy decides; return how many observations its state had."""
    async with PatientClient(settings.kafka.bootstrap, settings.prefix) as client:
        while True:
            decision = (await client.predict("app", ROW)).decision
            if decision is not None and decision.policy.startswith(f"{policy}("):
                return decision.state_version


async def test_an_apprentice_takes_over_when_it_is_better(settings: Settings, tmp_path: Path) -> None:
    """Without observations it is refused; the control role lets it decide once the log speaks for it."""
    models = {"good": package_constant(tmp_path, 1, "good"), "bad": package_constant(tmp_path, 2, "bad")}
    serving = {"models": list(models), "policy": "epsilon_greedy", "parameters": {"epsilon": 0.8}, "slo_ms": 20_000}
    settings = Settings.model_validate(
        settings.model_dump()
        | {"models": models, "applications": {"app": serving}, "roles": [*settings.roles, "learner"]}
    )
    file = str(configuration.write(settings, tmp_path / "skysail.yaml"))
    async with System(settings, codec_for(settings), tmp_path / "run"):
        refused = await invoke("app", "promote", "app", "--policy", "thompson", "--config", file)
        assert "no observation compares them" in str(refused.exception)
        vote = await invoke("app", "promote", "app", "--policy", "exp4", "--apprentice", "--config", file)
        assert "asks all models" in str(vote.exception)
        for expected in (("", "--end"), ("thompson(gamma=0.01)", "--policy", "thompson", "--apprentice")):
            wished = await invoke("app", "promote", "app", "--policy", "ucb1", "--apprentice", "--config", file)
            assert wished.exit_code == 0, wished.output
            assert (await application(file))["apprentice"].startswith("ucb1(")
            wished = await invoke("app", "promote", "app", *expected[1:], "--config", file)
            assert wished.exit_code == 0, wished.output
            assert (await application(file))["apprentice"] == expected[0]
        asking = asyncio.create_task(traffic(settings, right=1))
        end = time.monotonic() + LONG_S
        while (taken := await application(file))["policy"] != "thompson":
            assert time.monotonic() < end
            await asyncio.sleep(1)
        first = await decided_by(settings, "thompson")
        asking.cancel()
        said = (await invoke("app", "show", "app", "--config", file)).output
        steps = await invoke("tail", "promotions", "--from-beginning", "--end", "--config", file)
        back = ("--policy", "exp3", "--yes-without-evidence")
        assert "starts anew" in (await invoke("app", "promote", "app", *back, "--config", file)).output
    assert taken["apprentice"] == ""
    pairs = [json.loads(line)["value"]["pairs"] for line in steps.stdout.splitlines() if '"promote"' in line]
    assert first >= pairs[-1] > 0  # it decides with all that it was judged by
    assert "promote" in said
    assert "it is better" in said
