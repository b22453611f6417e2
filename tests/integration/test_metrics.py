"""What running roles show to Prometheus."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import numpy as np
import pytest

from deploy.config import configuration
from deploy.config.settings import ROLES, Settings
from deploy.figures.declared import DASHBOARD, RULES
from deploy.figures.rendered import queries, rules
from deploy.local.process import free_port
from deploy.state import topics as deployed_topics
from streams.runtime.process.prometheus import NAMESPACE
from streams.topology import build
from tests.deployments import Toy, deployed
from tests.prometheus import program

if TYPE_CHECKING:
    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

WAIT_S = 60.0
PORTS_OF_CLIENTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
# What every role shows, and what each shows on top once a query has been answered and its feedback learnt.
COMMON = {"cpu_seconds_total", "resident_bytes", "lag", "partitions", "outstanding", "pressure", "lane_records_total"}
OWN = {
    "selection": {"queries_total", "answers_total", "pending", "states_cached", "return_us"},
    "worker.parity": {"rows_total", "batches_total", "batch_rows_total", "predict_us_total", "batch_cap", "queue_rows"},
    "joiner": {"joined_total", "predictions_waiting", "feedback_waiting"},
    "learner": {"applied_total", "observations_waiting", "store_writes_total"},
}


async def scraped(port: int) -> dict[str, str]:
    """Return samples by name, each with the last line that shows it; nothing while nobody listens."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
            lines = (await response.text()).splitlines()
    except aiohttp.ClientConnectionError:
        return {}
    return {re.split("[{ ]", line)[0].removeprefix("skysail_"): line for line in lines if line.startswith("skysail_")}


async def probed(port: int, path: str) -> tuple[int, str]:
    """Return what a probe of a process says."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def until_shown(port: int, names: set[str]) -> dict[str, str]:
    """Wait until all these are shown."""
    end = asyncio.get_running_loop().time() + WAIT_S
    while not names <= (shown := await scraped(port)).keys():
        assert asyncio.get_running_loop().time() < end, (
            f"not shown: {sorted(names - shown.keys())}, but {sorted(shown)}"
        )
        await asyncio.sleep(0.2)
    return shown


def free_ports(count: int) -> int:
    """Return the first of so many neighbouring ports that nobody listens on.

    They lie below those that the system gives to clients: a connection of a test beside this one would take one.
    """
    lowest = int(PORTS_OF_CLIENTS.read_text().split()[0]) if PORTS_OF_CLIENTS.exists() else 32_768
    for _ in range(50):
        first = random.randrange(10_000, lowest - count)
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    pytest.skip(f"no {count} neighbouring ports are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


async def test_every_role_of_a_deployment_shows_its_figures(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """One port a process, in order; common figures and the role's own, each with instance and role."""
    parity = Toy("tests.toys:parity", np.zeros((2, 2), np.float32))
    applications = {"sums": {"models": ["parity"], "default_output": -1, "slo_ms": 20_000}}
    more = {"roles": ROLES, "metrics": {"port": free_ports(5)}, "control": {"port": free_port()}}
    models = {"parity": parity}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, models, applications, **more) as there:
        prediction = await there.client.predict("sums", np.array([1, 2], np.float32), timeout_s=60)
        await there.client.feedback(prediction, label=1)
        ports = there.system.metrics_ports
        assert ports.keys() == {*OWN, "control"}
        for instance, names in OWN.items():
            shown = await until_shown(ports[instance], COMMON | names)
            assert f'instance_name="{instance}@1",role="{instance}"' in shown["lag"]
        assert 'application="sums"' in (await scraped(ports["selection"]))["answers_total"]
        await until_shown(ports["control"], {"cpu_seconds_total", "resident_bytes"})
        for instance, port in ports.items():
            assert await probed(port, "/health") == (200, "ok\n"), instance
            assert await probed(port, "/ready") == (200, "ok\n"), instance
        await watched_by_prometheus(tmp_path, there.system.targets_file, len(ports))


async def watched_by_prometheus(folder: Path, targets: Path, count: int) -> None:
    """Have a real Prometheus find all processes by the file, take every rule, and draw every line of the dashboard."""
    (folder / "rules.yaml").write_text(rules())
    found = {"job_name": "skysail", "scrape_interval": "1s", "file_sd_configs": [{"files": [str(targets)]}]}
    settings = {"scrape_configs": [found], "rule_files": ["rules.yaml"]}
    (folder / "prometheus.yaml").write_text(json.dumps(settings))
    address = f"127.0.0.1:{free_port()}"
    options = (f"--storage.tsdb.path={folder / 'series'}", f"--web.listen-address={address}", "--log.level=error")
    server = await asyncio.create_subprocess_exec(
        program("prometheus"), f"--config.file={folder / 'prometheus.yaml'}", *options
    )
    try:
        async with aiohttp.ClientSession(f"http://{address}") as session:
            end = asyncio.get_running_loop().time() + WAIT_S
            while len(await drawn(session, 'up{job="skysail"} == 1')) < count:
                assert asyncio.get_running_loop().time() < end, "Prometheus does not find all processes"
                await asyncio.sleep(0.2)
            lines = [expr for its in DASHBOARD.values() for panel in its for expr, _ in queries(panel)]
            for expr in lines:
                await drawn(session, expr.replace("$__rate_interval", "1m"))
            assert await drawn(session, f"max by (application) ({NAMESPACE}answers_total)")
            assert await drawn(session, f'{NAMESPACE}answer_seconds_bucket{{application="sums",le="20"}} >= 1')
            assert await drawn(session, f'{NAMESPACE}estimated_wait_seconds{{model="parity"}} >= 0')
            async with session.get("/api/v1/rules") as response:
                (group,) = (await response.json())["data"]["groups"]
            assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
            assert len(group["rules"]) == len(RULES)
    finally:
        server.terminate()
        await server.wait()


async def drawn(session: aiohttp.ClientSession, expr: str) -> list[object]:
    """Return the series of an expression now; none while the server starts."""
    try:
        async with session.get("/api/v1/query", params={"query": expr}) as response:
            if response.status == 503:
                return []
            answer = await response.json()
    except aiohttp.ClientConnectionError:
        return []
    assert answer["status"] == "success", (expr, answer)
    series: list[object] = answer["data"]["result"]
    return series


async def test_a_role_alone_waits_for_its_topics_and_shows_its_figures(
    kafka: Broker, prefix: str, tmp_path: Path
) -> None:
    """Started before anybody has created a topic; ended in good order."""
    port = free_port()
    settings = Settings.model_validate(
        {"prefix": prefix, "kafka": {"bootstrap": kafka.bootstrap}, "metrics": {"port": port}}
    )
    file = configuration.write(settings, tmp_path / "skysail.yaml")
    argv = ("-m", "deploy.cli", "run", "--role", "joiner", "--instance", "7", "--config", str(file))
    role = await asyncio.create_subprocess_exec(sys.executable, *argv, stderr=asyncio.subprocess.PIPE)
    try:
        assert role.stderr is not None
        assert b"not on the broker" in await asyncio.wait_for(role.stderr.readline(), WAIT_S)
        await asyncio.to_thread(deployed_topics.create, settings, build([]))
        shown = await until_shown(port, COMMON - {"lane_records_total"} | {"feedback_waiting"})
        assert 'instance_name="joiner@7",role="joiner"' in shown["partitions"]
        async with asyncio.timeout(WAIT_S):
            while (said := await probed(port, "/ready"))[0] != 200:
                assert said == (503, "joiner@7 has no partitions assigned yet\n")  # its group is forming
                await asyncio.sleep(0.1)
        assert said[1] == "ok\n"
        role.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(role.wait(), WAIT_S) == 0
    finally:
        if role.returncode is None:
            role.kill()
            await role.wait()
