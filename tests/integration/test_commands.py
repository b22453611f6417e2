"""What a person types at a deployment that runs: questions, truths, models that go and come back, the doctor.

One deployment serves all tests but the one whose models go. What a test changes it makes itself, or nobody else asks.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import pytest_asyncio
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config import configuration
from deploy.config.settings import ModelsSection, Settings
from deploy.errors import UsageError
from schemas.records import Status
from tests.deployments import PATIENT_MS, UNTIL_S, Toy, deployed
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from tests.deployments import Deployed

ROWS = np.array([[1.0, 2.0], [3.0, 5.0]], dtype=np.float32)
SLO_MS = PATIENT_MS / 3  # a query that a removed worker has read is answered by then
SUMS = {"models": ["parity", "spare"], "policy": "single", "slo_ms": SLO_MS, "default_output": -1}
JUDGED, REMOVED = "tallies", "totals"

pytestmark = pytest.mark.asyncio(loop_scope="module")


def serving(
    kafka: Broker, redis_server: RedisServer, folder: Path, *applications: str
) -> AbstractAsyncContextManager[Deployed]:
    """Run two models of which one is asked."""
    models = {"parity": Toy("tests.toys:parity", ROWS), "spare": Toy("tests.toys:parity", ROWS)}
    asking, more = dict.fromkeys(applications, SUMS), {"partitions": 2, "joiner": {"early_s": 1}}
    return deployed(kafka, redis_server.url, f"commands-{uuid.uuid4().hex[:8]}", folder, models, asking, **more)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(
    kafka: Broker, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployed]:
    """Run the deployment of this module."""
    async with serving(kafka, redis_server, tmp_path_factory.mktemp("commands"), "sums", JUDGED, REMOVED) as running:
        yield running


def written(there: Deployed, folder: Path) -> str:
    """Write the settings for the commands, without models: what is deployed is in the topics."""
    settings = there.settings.model_copy(update={"deployed": ModelsSection(), "applications": {}})
    return str(configuration.write(settings, folder / "skysail.yaml"))


@pytest.fixture
def config(there: Deployed, tmp_path: Path) -> str:
    """Return the file for the deployment of this module."""
    return written(there, tmp_path)


def run(*arguments: str, code: int = 0) -> str:
    """Run a command line that ends with this code; returns what it printed."""
    result = CliRunner(env=dict(os.environ)).invoke(skysail, arguments, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


async def said(*arguments: str, code: int = 0) -> Any:
    """Run a command that prints JSON beside this loop; returns what it printed."""
    return json.loads(await asyncio.to_thread(run, *arguments, "--json", code=code))


async def refused(*arguments: str) -> str:
    """Run a command that is refused; returns why."""
    with pytest.raises(UsageError) as why:
        await asyncio.to_thread(run, *arguments)
    return str(why.value)


async def test_a_running_deployment_s_log_is_evaluated_as_its_trace_is(config: str, tmp_path: Path) -> None:
    """What was asked and told is judged as a trace of it would be; one decision is too few, unless one insists."""
    asked = await said("query", JUDGED, "--input", "[1, 2]", "--config", config)
    await said("feedback", asked["query_id"], "--label", "1", "--wait", "60", "--config", config)
    wanted = ("evaluate", "--live", JUDGED, "--policy", "always:parity", "--window", "0", "--config", config)
    found = await said(*wanted)
    assert (found["application"], found["decisions"], found["delays"]["waiting"]) == (JUDGED, 1, 0)
    assert "refused" in found["estimates"]["ipw"]
    forced = await said(*wanted, "--force")
    assert forced["estimates"]["ipw"]["value"] == forced["served"]["mean"] == 0.0
    folder = str(tmp_path / "trace")
    command = (sys.executable, "-m", "deploy.cli", "record", folder, "--config", config)  # it wants signals of its own
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    recorded = await said("evaluate", folder, "--app", JUDGED, *wanted[3:], "--force")
    assert recorded["estimates"] == forced["estimates"]


async def test_feedback_tells_what_becomes_of_it(there: Deployed, config: str) -> None:
    """Joined at once; skipped the second time; unmatched for a query that nobody asked."""
    asked = await said("query", "sums", "--input", "[1, 2]", "--config", config)
    truth = ("feedback", asked["query_id"], "--label", "1", "--wait", "60", "--config", config)
    first = await said(*truth)
    assert (first["observation"]["query_id"], first["refused"]) == (asked["query_id"], None)
    again = await said(*truth[:-3], "0.5", "--config", config, code=1)
    assert (again["observation"], again["refused"]) == (None, None)
    unknown = await said("feedback", "nobody", "--label", "1", "--wait", "60", "--config", config, code=1)
    assert unknown["refused"] == "unmatched"
    shown = await asyncio.to_thread(run, "feedback", "nobody", "--label", "1", "--config", config)
    assert "--wait" in shown
    assert there.system.pids


async def test_a_query_s_story_is_told_from_the_topics(there: Deployed, config: str) -> None:
    """By an id that says when, and by one of the client's own, which is searched; no other id has one."""
    asked = await said("query", "sums", "--input", "[1, 2]", "--config", config)
    await said("feedback", asked["query_id"], "--label", "1", "--wait", "60", "--config", config)
    told = await said("story", asked["query_id"], "--config", config)
    (answer,), (question,) = told["answers"], told["queries"]
    assert (answer["query_id"], question["query_id"]) == (asked["query_id"], asked["query_id"])
    assert answer["answer"] == asked["answer"]
    assert [leg["model"] for leg in told["legs"]] == ["parity"]
    assert told["late"] == []
    assert told["feedback"][0]["label"] == 1
    assert told["observations"][0]["loss"] == 0.0
    change = told["change"]
    taught_before = change["before"]["version"] if change["before"] else 0  # by other tests
    assert change["after"]["version"] == taught_before + 1
    await there.client.predict("sums", ROWS[0], query_id="order-17")
    foreign = await said("story", "order-17", "--config", config)
    assert [one["query_id"] for one in foreign["answers"]] == ["order-17"]
    shown = await asyncio.to_thread(
        run, "story", "order-17", "--at", str(foreign["answers"][0]["sent_us"] // 1000), "--config", config
    )
    assert "feedback   none so far" in shown
    why = await refused("story", "never-asked", "--config", config)
    assert "nothing names query never-asked" in why
    assert "predictions" in why
    known = await said("story", "--application", "sums", "--config", config)
    assert (known["state"], known["stored"]["version"]) == ("sums", change["after"]["version"])
    assert {one["query_id"] for one in known["answers"]} >= {"order-17", asked["query_id"]}
    assert "nothing is known" in await refused("story", "--application", "smus", "--context", "ann", "--config", config)


async def test_an_unknown_application_is_an_error_that_names_the_known_ones(there: Deployed, config: str) -> None:
    """There is nothing to say the truth about; a script still gets the answer."""
    why = await refused("query", "smus", "--input", "[1, 2]", "--config", config)
    assert "sums" in why.partition("there are: ")[2]
    assert "app create smus" in why
    assert there.system.pids


async def test_a_model_that_is_removed_is_asked_no_more_and_can_come_back(
    kafka: Broker, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Refused while it is asked; by force its queries are answered by default; its worker answers again afterwards."""
    async with serving(kafka, redis_server, tmp_path, "sums") as there:
        config = written(there, tmp_path)
        assert "is used by sums" in await refused("model", "remove", "parity", "--config", config)
        assert (await said("model", "remove", "spare", "--force", "--config", config))["asked_by"] == ["sums"]
        assert (await there.client.predict("sums", ROWS[0])).status is Status.COMPLETE
        changed = await said("app", "set", "sums", "models=parity", "--config", config)
        assert changed["models"] == ["parity"]
        assert (await said("model", "remove", "parity", "--force", "--config", config))["removed"] == "parity"
        assert await said("model", "list", "--config", config) == []
        await until(there, "sums", (Status.DEFAULT, "unknown_model"))
        package = str(there.settings.models["parity"])
        assert (await said("model", "add", package, "--config", config))["name"] == "parity"
        await until(there, "sums", (Status.COMPLETE, None))
        assert "there is no model spare" in await refused("model", "remove", "spare", "--config", config)


async def test_an_application_that_is_removed_is_unknown_and_can_come_back(there: Deployed, config: str) -> None:
    """Its queries get an answer at once that says so, its model stays."""
    assert "there is no application smus" in await refused("app", "remove", "smus", "--config", config)
    removed = await said("app", "remove", REMOVED, "--config", config)
    assert (removed["removed"], removed["in_settings"]) == (REMOVED, False)
    assert REMOVED not in {each["name"] for each in await said("app", "list", "--config", config)}
    await until(there, REMOVED, (Status.DEFAULT, "unknown_application"))
    assert (await said("app", "create", REMOVED, "models=parity", "--config", config))["not_deployed"] == []
    await until(there, REMOVED, (Status.COMPLETE, None))


async def until(there: Deployed, application: str, wanted: tuple[Status, str | None]) -> None:
    """Ask until queries are answered like this: a change takes a moment to be read."""
    async with asyncio.timeout(UNTIL_S):
        while True:
            prediction = await there.client.predict(application, ROWS[0])
            if (prediction.status, prediction.reason) == wanted:
                return


async def test_applications_are_made_and_changed_by_scripts(there: Deployed, config: str) -> None:
    """Each command prints what holds now; what is not deployed is named."""
    made = await said("app", "create", "more", "models=parity,later", "policy=ucb1", "--config", config)
    assert (made["policy"], made["not_deployed"]) == ("ucb1", ["later"])
    assert (await said("app", "apply", "--config", config))["models"] == ["parity", "spare"]
    changed = await asyncio.to_thread(run, "app", "set", "more", "parity=decoder", "--config", config)
    assert "late outputs are decoded by decoder" in changed
    listed = await asyncio.to_thread(run, "app", "list", "--config", config)
    parity = {line.split()[0]: line.split()[-1] for line in listed.splitlines()}
    assert [parity[name] for name in ("application", "more", "sums")] == ["parity", "decoder", "none"]
    assert (await said("app", "remove", "more", "--config", config))["removed"] == "more"
    assert there.system.pids


async def test_the_doctor_says_that_all_is_well_or_who_is_silent(there: Deployed, config: str) -> None:
    """Servers, topics, models, applications and every role; a role that is stopped is named, with the exit code."""
    well = await said("doctor", "--config", config)
    found = {check["name"]: check["level"] for check in well["checks"]}
    needed = {"Kafka", "Redis", "topics", "model parity", "application sums", "selection", "joiner", "worker.spare"}
    assert needed <= {name for name, level in found.items() if level == "ok"}
    assert (well["exit_code"], well["next"].startswith("ask: skysail query sums")) == (0, True)
    there.system.kill("worker.spare", 19)  # SIGSTOP: it is there, and says nothing
    try:
        ill = await said("doctor", "--config", config, code=3)
    finally:
        there.system.kill("worker.spare", 18)
    assert [check["name"] for check in ill["checks"] if check["level"] == "down"] == ["worker.spare"]
    assert "skysail run --role worker --model spare" in ill["next"]


async def test_run_says_what_it_waits_for_and_which_role_is_ready(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Line by line without a terminal, whatever files are in the folder; SIGTERM ends it."""
    file = configuration.write(
        Settings.model_validate(
            {
                "prefix": prefix,
                "kafka": {"bootstrap": kafka.bootstrap},
                "redis": {"url": redis_server.url},
                "roles": ["joiner"],
            }
        ),
        tmp_path / "skysail.yaml",
    )
    (tmp_path / "load.py").write_text("raise RuntimeError('a file of the user stands in for a module of ours')")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "deploy.cli", "run", "--config", str(file)),
        stdout=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    lines = []
    async with asyncio.timeout(110):
        while "ready; Ctrl-C stops everything" not in lines:
            lines.append((await process.stdout.readline()).decode().strip())
        process.terminate()
        rest = (await process.communicate())[0].decode().split("\n")
    assert any(line.startswith("waiting for Kafka at") for line in lines)
    assert "waiting for the roles: joiner" in lines
    assert any("joiner is ready (process" in line for line in lines)
    assert (process.returncode, rest[:2]) == (0, ["stopping the roles", "stopped"])


async def test_what_cannot_run_beside_another_version_is_refused(there: Deployed, config: str, tmp_path: Path) -> None:
    """A version nobody knows, the one that serves, another kind of input, a share of nothing; all changes nothing."""
    wide = np.zeros((1, 3), dtype=np.float32)
    package_function("tests.toys:parity", tmp_path / "wide", "parity", "2", wide)
    package_function("tests.toys:parity", tmp_path / "new", "new", "1", ROWS)
    for words, why in (
        (("canary", "parity", "7", "--share", "0.1"), "there is no version 7"),
        (("canary", "parity", "1", "--share", "0.1"), "serves already"),
        (("canary", "parity", "1", "--share", "0"), "does not run beside"),
        (("shadow", "nobody", "1"), "there is no model nobody"),
        (("add", str(tmp_path / "wide"), "--share", "0.1"), "shape"),
        (("add", str(tmp_path / "new"), "--shadow"), "its first version serves"),
        (("add", str(tmp_path / "new"), "--share", "0"), "--shadow"),
        (("show", "nobody"), "neither"),
        (("show", "parity", "9"), "has no version 9; it has 1"),
    ):
        assert why in await refused("model", *words, "--config", config)
    shown = await asyncio.to_thread(run, "model", "show", "parity", "--config", config)
    assert [line.split()[:4] for line in shown.splitlines()] == [
        ["model", "version", "label", "share"],
        ["parity", "1", "stable", "1"],
    ]
    one = json.loads(await asyncio.to_thread(run, "model", "show", "parity", "1", "--json", "--config", config))
    assert (one["name"], one["version"], one["runtime"]) == ("parity", "1", "function")
    asked = "query", "sums", "--input", "[1, 2]", "--version", "2"
    prediction = await said(*asked, "--config", config, code=1)
    assert prediction["reason"] == "unknown_version"
