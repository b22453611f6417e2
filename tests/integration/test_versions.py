"""A model's version is changed under load on real services: commands there and back, a restart, a watched folder."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config import configuration
from deploy.config.addresses import connection
from deploy.config.settings import ModelsSection, Settings
from deploy.connect.schema_registry import codec_for
from deploy.system.launch import System
from schemas import topics
from schemas.records import Prediction, Report, Status
from streams.runtime.kafka.log_reader import KafkaTail
from tests.deployments import PATIENT_MS, PatientClient
from tests.kafka import until
from tests.packages import package_constant

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

ROW = np.zeros(2, dtype=np.float32)
SWITCH_S = 60.0
MANY = 100  # answers in a row that show a share: of a share of 0.3, one in 10^52 times
LABEL = "{application=app,model=same,version=%s}"


@pytest.fixture
def settings(kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path) -> Settings:
    """Settings that name version 1."""
    return Settings.model_validate(
        {
            "prefix": prefix,
            "partitions": 2,
            "kafka": {"bootstrap": kafka.bootstrap},
            "redis": {"url": redis_server.url},
            "roles": ["selection", "worker"],
            "processes": "each",
            "models": {"same": package_constant(tmp_path, 1)},
            "applications": {"app": {"models": ["same"], "policy": "exp3", "slo_ms": PATIENT_MS, "default_output": -1}},
        }
    )


class Load:
    """Asks every 20 ms until stopped; keeps what was answered."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.predictions: list[Prediction] = []
        self.asked = 0
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Ask."""
        async with (
            PatientClient(self.settings.kafka.bootstrap, self.settings.prefix) as client,
            asyncio.TaskGroup() as tasks,
        ):
            while not self._stop.is_set():
                self.asked += 1
                tasks.create_task(self._ask(client))
                await asyncio.sleep(0.02)

    async def until(self, version: int) -> None:
        """Wait until that version answers."""
        await until(lambda: bool(self.predictions) and self.predictions[-1].answer == version, SWITCH_S)

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    async def _ask(self, client: PatientClient) -> None:
        prediction = await client.predict("app", ROW)
        self.predictions.append(prediction)
        if "joiner" in self.settings.roles:
            await client.feedback(prediction, label=2)

    def versions(self, since: int) -> set[str]:
        """Return the versions that have answered from this answer on."""
        return {output.version for p in self.predictions[since:] for output in p.outputs}


async def test_versions_change_under_load_and_a_restart_keeps_the_last_word(settings: Settings, tmp_path: Path) -> None:
    """No query is lost or defaulted, no answer carries another version's name, the settings do not overrule."""
    file = str(configuration.write(settings, tmp_path / "skysail.yaml"))
    load = Load(settings)
    async with System(settings, codec_for(settings), tmp_path / "run") as system:
        pids = dict(system.pids)
        asking = asyncio.create_task(load.run())
        await load.until(1)
        await command("model", "add", str(package_constant(tmp_path, 2)), "--config", file)
        await load.until(2)
        await command("model", "rollback", "same", "--config", file)
        await load.until(1)
        await command("model", "use", "same", "2", "--config", file)
        await load.until(2)
        damaged = package_constant(tmp_path, 3)
        await command("model", "add", str(damaged), "--config", file)
        await load.until(3)
        await command("model", "use", "same", "2", "--config", file)
        await load.until(2)
        load.stop()
        await asking
        assert system.pids == pids
    check(load)
    listed = json.loads(await command("model", "list", "--json", "--config", file))
    assert [(model["version"], model["serves"]) for model in listed] == [("1", False), ("2", True), ("3", False)]
    async with (
        System(settings, codec_for(settings), tmp_path / "again"),
        PatientClient(settings.kafka.bootstrap, settings.prefix) as client,
    ):
        prediction = await client.predict("app", ROW)
    assert prediction.answer == 2


async def test_a_version_whose_files_were_changed_never_answers(settings: Settings, tmp_path: Path) -> None:
    """The digest is checked before anything is loaded; the version that answers goes on, and another can follow."""
    file = str(configuration.write(settings, tmp_path / "skysail.yaml"))
    load = Load(settings)
    two = package_constant(tmp_path, 2)
    async with System(settings, codec_for(settings), tmp_path / "run") as system:
        asking = asyncio.create_task(load.run())
        await load.until(1)
        await command("model", "add", str(two), "--config", file)
        await load.until(2)
        await command("model", "rollback", "same", "--config", file)
        await load.until(1)
        (two / "manifest.json").write_text((two / "manifest.json").read_text() + "\n")
        await command("model", "use", "same", "2", "--config", file)
        await until(lambda: "cannot take over" in system.log("worker.same").read_text(), SWITCH_S)
        assert load.predictions[-1].answer == 1
        await command("model", "add", str(package_constant(tmp_path, 3)), "--config", file)
        await load.until(3)
        load.stop()
        await asking
    check(load)


async def test_canaries_and_a_shadow_come_and_go_under_load(settings: Settings, tmp_path: Path) -> None:
    """By commands; a restart keeps them, a query may name one, reports carry what each version costs."""
    settings = settings.model_copy(update={"roles": ("selection", "worker", "joiner")})
    file = str(configuration.write(settings, tmp_path / "skysail.yaml"))
    load = Load(settings)
    async with System(settings, codec_for(settings), tmp_path / "run") as system:
        asking = asyncio.create_task(load.run())
        await load.until(1)
        await command("model", "add", str(package_constant(tmp_path, 2)), "--share", "0.4", "--config", file)
        await load.until(2)
        await command("model", "add", str(package_constant(tmp_path, 3)), "--shadow", "--config", file)
        losses = await scores(settings, {"1", "2", "3"})
        assert losses == {"1": 1.0, "2": 0.0, "3": 1.0}
        await command("model", "add", str(package_constant(tmp_path, 4)), "--share", "0.3", "--config", file)
        await load.until(4)
        await load.until(2)
        await command("model", "rollback", "same", "--config", file)
        await until(lambda: load.versions(-MANY) == {"1"}, SWITCH_S)
        await command("model", "canary", "same", "2", "--share", "0.5", "--config", file)
        await load.until(2)
        await command("model", "canary", "same", "4", "--share", "0.25", "--config", file)
        await load.until(4)
        load.stop()
        await asking
        assert len(system.pids) == 3
    check(load)
    listed = json.loads(await command("model", "show", "same", "--json", "--config", file))
    assert [(model["version"], model["label"], model["share"]) for model in listed] == [
        ("1", "stable", 0.25),
        ("2", "canary", 0.5),
        ("3", "shadow", 0.0),
        ("4", "canary", 0.25),
    ]
    async with (
        System(settings, codec_for(settings), tmp_path / "again"),
        PatientClient(settings.kafka.bootstrap, settings.prefix) as client,
    ):
        await named(client, "2", "2")
        await named(client, "same@4", "4")
        await named(client, "same@1", "1")
        assert (await client.predict("app", ROW, version="canary")).outputs[0].version in {"2", "4"}
        unknown = await client.predict("app", ROW, version="3")
    assert (unknown.status, unknown.reason) == (Status.DEFAULT, "unknown_version")


async def test_a_model_inside_the_selection_role_changes_its_versions_alike(settings: Settings, tmp_path: Path) -> None:
    """There, back, a canary and a shadow, without a query lost or under another version's name."""
    inline = settings.selection.model_copy(update={"inline": ("same",)})
    settings = settings.model_copy(update={"selection": inline, "roles": ("selection", "joiner")})
    file = str(configuration.write(settings, tmp_path / "skysail.yaml"))
    load = Load(settings)
    async with System(settings, codec_for(settings), tmp_path / "run") as system:
        pids = dict(system.pids)
        asking = asyncio.create_task(load.run())
        await load.until(1)
        await command("model", "add", str(package_constant(tmp_path, 2)), "--config", file)
        await load.until(2)
        await command("model", "rollback", "same", "--config", file)
        await load.until(1)
        await command("model", "canary", "same", "2", "--share", "0.4", "--config", file)
        await command("model", "add", str(package_constant(tmp_path, 3)), "--shadow", "--config", file)
        await load.until(2)
        assert await scores(settings, {"1", "2", "3"}) == {"1": 1.0, "2": 0.0, "3": 1.0}
        load.stop()
        await asking
        assert system.pids == pids
    check(load)


async def test_a_watched_folder_switches_versions_under_load(settings: Settings, tmp_path: Path) -> None:
    """Of the two latest one serves and one stands by; a label, and an application that names it, find their version."""
    folder, load = tmp_path / "watched", Load(settings)
    folder.mkdir()
    settings = settings.model_copy(update={"deployed": ModelsSection()})  # the folder says it
    (tmp_path / "same-1").rename(folder / "same-1")
    file = str(configuration.write(settings, tmp_path / "skysail.yaml"))
    told = json.loads(await command("model", "watch", str(folder), "--once", "--json", "--config", file))
    assert [model["serves"] for model in told["models"]] == ["1"]
    async with System(settings, codec_for(settings), tmp_path / "run") as system:
        pids = dict(system.pids)
        asking = asyncio.create_task(load.run())
        await load.until(1)
        watching = await watcher(folder, "--latest", "2", "--every", "0.2", "--config", file)
        try:
            package_constant(tmp_path, 2).rename(folder / "same-2")
            await load.until(2)
            await command("model", "label", "same@1", "proven", "--config", file)
            async with PatientClient(settings.kafka.bootstrap, settings.prefix) as client:
                await named(client, "1", "1")
                await named(client, "same@proven", "1")
                package_constant(tmp_path, 3).rename(folder / "same-3")
                await load.until(3)
                await named(client, "2", "2")
                await named(client, "proven", "1")
                await command("app", "set", "app", "models=same@proven", "--config", file)
                await load.until(1)
                await command("app", "set", "app", "models=same", "--config", file)
                await load.until(3)
                await command("model", "unlabel", "same", "proven", "--config", file)
                await gone(client, "1")
            assert system.pids == pids
        finally:
            watching.terminate()
            printed, errors = await watching.communicate()
        load.stop()
        await asking
    check(load)
    assert watching.returncode == 0
    assert "same 3 serves, no longer 2" in printed.decode()
    assert not [line for line in errors.decode().splitlines() if not line.startswith("waiting for")]


async def watcher(folder: Path, *options: str) -> asyncio.subprocess.Process:
    """Watch a folder in a process of its own, until it is terminated."""
    words = ("-m", "deploy.cli", "model", "watch", str(folder), *options)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    while b"watching" not in (line := await process.stdout.readline()):
        assert line, (await process.communicate())[1].decode()
    return process


async def gone(client: PatientClient, version: str) -> None:
    """Ask for a version until it runs no more."""
    end = time.monotonic() + SWITCH_S
    while (await client.predict("app", ROW, version=version)).reason != "unknown_version":
        assert time.monotonic() < end


async def named(client: PatientClient, version: str, expected: str) -> None:
    """Ask for a version until it runs: it is loaded after the one that serves."""
    end = time.monotonic() + SWITCH_S
    while (prediction := await client.predict("app", ROW, version=version)).reason == "unknown_version":
        assert time.monotonic() < end
    assert [output.version for output in prediction.outputs] == [expected]


async def scores(settings: Settings, versions: set[str]) -> dict[str, float]:
    """Wait until a report tells the mean loss of all these versions; returns it."""
    codec = codec_for(settings)
    tail = KafkaTail(connection(settings, "test"), (topics.REPORTS,))
    await tail.start()
    try:
        async with asyncio.timeout(2 * SWITCH_S):
            while True:
                for record in await tail.poll(200):
                    counters = codec.decode(Report, record.value).counters
                    found = {
                        v: [counters.get(f"version_{n}_total{LABEL % v}") for n in ("loss", "joined")] for v in versions
                    }
                    if all(joined for _, joined in found.values()):
                        return {v: (loss or 0.0) / (joined or 1.0) for v, (loss, joined) in found.items()}
    finally:
        await tail.stop()


def check(load: Load) -> None:
    """Every query is answered by a model, under the name of the version that answered."""
    assert len(load.predictions) == load.asked
    assert {prediction.status for prediction in load.predictions} == {Status.COMPLETE}
    assert all(str(p.answer) == p.outputs[0].version for p in load.predictions)


async def command(*arguments: str) -> str:
    """Run a command line beside the event loop; returns what it printed."""
    result = await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, skysail, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout
