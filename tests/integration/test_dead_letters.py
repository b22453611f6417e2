"""Dead letters on a real broker: counted, read, sent again once their cause is mended, removed."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from click.testing import CliRunner

from deploy.cli import skysail
from schemas import topics
from schemas.records import Feedback, Observations
from tests.deployments import PATIENT_MS, ROLES, Toy, deployed
from tests.integration.test_mapping import order, others, sent

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

MODELS = {"right": Toy("tests.toys:parity", np.ones((2, 2), dtype=np.float32))}


def orders(prefix: str, items: str) -> dict[str, Any]:
    """Return an application that reads one of its inputs from a field of this name."""
    return {
        "models": [*MODELS],
        "slo_ms": PATIENT_MS,
        "from": {"topic": f"{prefix}-orders", "id": "order.id", "input": ["order.amount", items]},
        "to": {"topic": f"{prefix}-scored", "fields": {"score": "answer"}},
    }


async def typed(config: Path, *arguments: str) -> str:
    """Return what a command prints."""
    command = (*arguments, "--config", str(config))
    result = await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, skysail, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


async def test_what_could_not_be_used_is_sent_again_once_its_cause_is_mended(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Orders by a wrong mapping: seen by cause, tried dry, sent once, answered; what still cannot be says why."""
    wrong, shape = {"parity": orders(prefix, "order.count")}, {"processes": "shared", "roles": (*ROLES, "mapping")}
    async with (
        others(kafka, prefix),
        deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, wrong, **shape) as there,
    ):
        watch, config = there.watch, tmp_path / "redrive.yaml"
        servers = {"kafka": {"bootstrap": kafka.bootstrap}, "redis": {"url": redis_server.url}}
        config.write_text(yaml.safe_dump({"prefix": prefix, **servers}))
        await watch.until(lambda: "mapping" in watch.reports(), "the role reports")
        for number in range(3):
            sent(there, f"{prefix}-orders", order(number), b"k")
        sent(there, f"{prefix}-orders", b"no JSON", b"k")
        there.producer.flush(10)
        await watch.until(lambda: len(watch.dead(topics.MAPPING)) == 4, "the dead letters")

        counted = json.loads(await typed(config, "dlq", "list", "--json"))
        assert [(each["topic"], each["letters"], each["redriven"]) for each in counted] == [("mapping", 4, 0)]
        (shown,) = json.loads(await typed(config, "dlq", "show", counted[0]["such_as"], "--json"))
        assert shown["from"]["topic"] == f"/{prefix}-orders"
        still = json.loads(await typed(config, "dlq", "redrive", "--dry-run", "--json"))
        assert (still["sent"], sum(still["refused"].values())) == ({}, 4)

        mended = tmp_path / "mended.yaml"
        applications = {"parity": orders(prefix, "order.items")}
        mended.write_text(yaml.safe_dump({"prefix": prefix, **servers, "applications": applications}))
        await typed(mended, "app", "apply")
        done = json.loads(await typed(config, "dlq", "redrive", "--topic", "mapping", "--json"))
        assert done["sent"] == {"queries": 3}
        assert [reason for reason in done["refused"] if "still cannot be mapped" in reason]
        answers = [await watch.answer(f"o-{number}") for number in range(3)]
        assert [int(each.answer) for each in answers] == [(number + 1) % 2 for number in range(3)]

        again = json.loads(await typed(config, "dlq", "redrive", "--topic", "mapping", "--json"))
        assert (again["sent"], again["refused"]["was sent again already"]) == ({}, 3)
        assert "3" in (await typed(config, "dlq", "list")).splitlines()[1].split()
        assert [len(watch.answers(f"o-{number}")) for number in range(3)] == [1, 1, 1]

        assert "4 would be removed" in await typed(config, "dlq", "purge", "--topic", "mapping", "--dry-run")
        assert "0 removed" in await typed(config, "dlq", "purge", "--topic", "mapping", "--older-than", "1h", "--yes")
        assert "4 removed" in await typed(config, "dlq", "purge", "--topic", "mapping", "--yes")
        assert json.loads(await typed(config, "dlq", "list", "--json")) == []


async def test_feedback_that_came_too_early_teaches_when_it_is_sent_again(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Its prediction came after it had become a dead letter."""
    served = {"parity": {"models": [*MODELS], "slo_ms": PATIENT_MS}}
    async with deployed(
        kafka, redis_server.url, prefix, tmp_path, MODELS, served, processes="shared", joiner={"early_s": 0.2}
    ) as there:
        watch, config = there.watch, tmp_path / "redrive.yaml"
        config.write_text(yaml.safe_dump({"prefix": prefix, "kafka": {"bootstrap": kafka.bootstrap}}))
        await there.client.send_feedback([(Feedback("q-1", label=1), None)])
        await watch.until(lambda: watch.dead(topics.FEEDBACK), "the dead letter")
        await there.client.predict("parity", np.array([1, 0], dtype=np.float32), query_id="q-1")
        done = json.loads(await typed(config, "dlq", "redrive", "--cause", "unmatched", "--json"))
        assert done["sent"] == {"feedback": 1}
        await watch.until(lambda: watch.decoded(Observations, topics.OBSERVATIONS), "it is learnt")
