"""Somebody adds partitions to every topic while all runs: what was served is served, and the rest is told."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
import numpy as np
from confluent_kafka.admin import NewPartitions

from deploy.connect.clients import admin
from deploy.local.process import free_port
from deploy.state import desired
from deploy.state import topics as deployed_topics
from schemas import topics
from schemas.records import Observations, Query, Status, Tensor
from tests.deployments import PATIENT_MS, UNTIL_S, Deployed, PatientClient, Toy, deployed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from streams.client import Client

SERVED, MORE = 2, 5
ROLES = ("selection", "worker", "joiner", "learner", "control")
ROW = Tensor.of(np.array([1, 1], np.float32))
ASKED = 12  # ids enough for each served partition


async def test_partitions_that_are_added_to_every_topic_end_no_service(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Queries are answered and learnt, then and by processes that start afterwards; a stranger's query is told of."""
    application = {"models": ["parity"], "policy": "exp3", "slo_ms": PATIENT_MS, "default_output": -1}
    toys = {"parity": Toy("tests.toys:parity", np.zeros((2, 2), np.float32))}
    more = {"partitions": SERVED, "roles": ROLES, "control": {"port": free_port()}}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, toys, {"sums": application}, **more) as there:
        await learnt(there, there.client)

        await asyncio.to_thread(widen, there, [topics.QUERIES])
        await served_alone(there)
        await learnt(there, there.client)
        async with PatientClient(kafka.bootstrap, prefix) as client:  # it sees what the topics have in common
            await learnt(there, client)

        everything = [*desired.build(there.settings, {"parity": None}).topics]
        await asyncio.to_thread(widen, there, [name for name in everything if name != topics.QUERIES])
        for role in ("selection", "joiner", "learner", "worker.parity", "control"):
            await there.system.restarted(role, there.system.kill(role))
        await learnt(there, there.client)
        async with PatientClient(kafka.bootstrap, prefix, partitions=SERVED) as client:
            await learnt(there, client)

        await there.watch.all_committed("learner", topics.OBSERVATIONS)

        there.put_record(topics.QUERIES, Query("strange", "sums", ROW), partition=MORE - 1)
        await told(there, "1 records in queries")
        found = await asyncio.to_thread(
            deployed_topics.check, there.settings, desired.build(there.settings, {"parity": None})
        )
        (circle,) = [
            finding for finding in found if topics.QUERIES in finding.topics and finding.aspect == "partitions"
        ]
        assert not any(finding.fault for finding in found)
        assert f"queries has {MORE} partitions (1 records wait beyond the first {SERVED})" in circle.message
        assert f"Client(..., partitions={SERVED})" in circle.message


def widen(there: Deployed, names: Sequence[str]) -> None:
    """Add partitions, as a monitoring tool might."""
    wanted = [NewPartitions(f"{there.settings.prefix}.{name}", MORE) for name in names]
    client = admin(there.settings)
    for done in client.create_partitions(wanted).values():
        done.result(UNTIL_S)


async def served_alone(there: Deployed) -> None:
    """Wait until selection has noticed what was added, and owns as many as before."""

    def noticed() -> bool:
        gauges = there.watch.reports()["selection"].gauges
        return "unserved_records{topic=queries}" in gauges and gauges["partitions"] == 2 * SERVED

    await there.watch.until(noticed, "selection has not noticed")


async def learnt(there: Deployed, client: Client) -> None:
    """Ask, and wait until each answer's feedback is observed."""
    answers = await asyncio.gather(*(client.predict("sums", ROW) for _ in range(ASKED)))
    assert {(answer.status, answer.reason) for answer in answers} == {(Status.COMPLETE, None)}
    await asyncio.gather(*(client.feedback(answer, label=0) for answer in answers))
    ids = {answer.query_id for answer in answers}

    def observed() -> bool:
        log = there.watch.decoded(Observations, topics.OBSERVATIONS)
        return ids <= {seen.query_id for several in log for seen in several.items}

    await there.watch.until(observed, "not all is joined")


async def told(there: Deployed, text: str) -> None:
    """Wait until the page says it."""
    address = f"http://127.0.0.1:{there.settings.control.port}/api/status"
    async with aiohttp.ClientSession() as session, asyncio.timeout(UNTIL_S):
        alerts: list[dict[str, str]] = []
        while not any(text in alert["text"] for alert in alerts):
            with suppress(aiohttp.ClientConnectorError):  # the page is starting
                response = await session.get(address)
                alerts = (await response.json())["overview"]["alerts"]
            await asyncio.sleep(0.2)
