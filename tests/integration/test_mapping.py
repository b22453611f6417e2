"""A topic that is there is scored into another one, and taught from a third: nobody sees a record of Skysail's own."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer
from click.testing import CliRunner
from confluent_kafka import Producer

from deploy.cli import skysail
from schemas import topics
from schemas.records import Observations
from tests.deployments import PATIENT_MS, ROLES, UNTIL_S, Toy, deployed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from tests.deployments import Deployed

SAMPLE = np.ones((2, 2), dtype=np.float32)
MODELS = {"right": Toy("tests.toys:parity", SAMPLE), "wrong": Toy("tests.toys:contrary", SAMPLE)}
ORDERS = 40


def mapped(prefix: str) -> dict[str, Any]:
    """Return an application that asks by records of orders."""
    return {
        "models": [*MODELS],
        "slo_ms": PATIENT_MS,
        "from": {
            "topic": f"{prefix}-orders",
            "id": "order.id",
            "input": ["order.amount", "order.items"],
            "where": "status = 'new'",
        },
        "to": {"topic": f"{prefix}-scored", "fields": {"score": "answer", "by": "decision.models"}, "keep": "all"},
        "feedback": [{"topic": f"{prefix}-truths", "id": "id", "label": "is_odd"}],
    }


@asynccontextmanager
async def others(kafka: Broker, prefix: str) -> AsyncIterator[AIOKafkaConsumer]:
    """Have three topics of other people, with partitions of their own; yields who reads what is scored."""
    counts = {"orders": 3, "scored": 2, "truths": 1}
    await asyncio.to_thread(kafka.create_topics, {f"{prefix}-{name}": count for name, count in counts.items()})
    reader = AIOKafkaConsumer(f"{prefix}-scored", bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
    await reader.start()
    try:
        yield reader
    finally:
        await reader.stop()


def order(number: int, status: str = "new") -> bytes:
    """Return an order as its makers write it."""
    return json.dumps({"order": {"id": f"o-{number}", "amount": number, "items": 1}, "status": status}).encode()


def sent(there: Deployed, topic: str, value: bytes, key: bytes) -> None:
    """Send a record to a topic of others; any client does so."""
    there.producer.produce(topic, value, key, headers=[("traceparent", b"00-1")])


async def read(reader: AIOKafkaConsumer, count: int) -> dict[str, Any]:
    """Return so many scored records by the id of their order."""
    found: dict[str, Any] = {}
    async with asyncio.timeout(UNTIL_S):
        while len(found) < count:
            for records in (await reader.getmany(timeout_ms=200)).values():
                found |= {json.loads(record.value)["order"]["id"]: record for record in records}
    return found


@pytest.mark.parametrize("processes", ["each", "shared"])
async def test_a_topic_of_others_is_scored_into_another_and_taught_from_a_third(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, processes: str
) -> None:
    """With all its fields, under its key, with its headers; what is not meant or not readable is told apart."""
    served, shape = {"parity": mapped(prefix)}, {"processes": processes, "roles": (*ROLES, "mapping")}
    async with (
        others(kafka, prefix) as reader,
        deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, served, **shape) as there,
    ):
        await there.watch.until(lambda: "mapping" in there.watch.reports(), "the role reports")
        for number in range(ORDERS):
            sent(there, f"{prefix}-orders", order(number), b"k%d" % (number % 5))
        sent(there, f"{prefix}-orders", order(1_000, "paid"), b"k")
        sent(there, f"{prefix}-orders", b"no JSON", b"k")
        there.producer.flush(10)
        scored = await read(reader, ORDERS)
        assert {*scored} == {f"o-{number}" for number in range(ORDERS)}
        for number in range(ORDERS):
            record = scored[f"o-{number}"]
            row = json.loads(record.value)
            assert row["status"] == "new"
            assert row["score"] == (number + 1 + (row["by"] == ["wrong"])) % 2
            assert (record.key, record.headers) == (b"k%d" % (number % 5), (("traceparent", b"00-1"),))
        for number in range(ORDERS):
            there.producer.produce(f"{prefix}-truths", json.dumps({"id": f"o-{number}", "is_odd": number % 2}).encode())
        there.producer.flush(10)
        watch = there.watch

        def learnt() -> int:
            return sum(len(each.items) for each in watch.decoded(Observations, topics.OBSERVATIONS))

        await watch.until(lambda: learnt() >= ORDERS, "all is taught")
        await watch.until(lambda: there.watch.dead(topics.MAPPING), "the dead letter")
        (letter,) = watch.dead(topics.MAPPING)
        assert letter.value == b"no JSON"
        assert letter.headers["topic"] == f"/{prefix}-orders"
        assert "value: is no JSON" in letter.headers["message"]


async def test_what_a_mapping_makes_of_a_topic_is_shown_before_anything_runs(
    kafka: Broker, prefix: str, tmp_path: Path
) -> None:
    """The last records, what they become, and what cannot be mapped, with its place; nothing is written."""
    config = tmp_path / "skysail.yaml"
    config.write_text(
        json.dumps(
            {"prefix": prefix, "kafka": {"bootstrap": kafka.bootstrap}, "applications": {"parity": mapped(prefix)}}
        )
    )
    async with others(kafka, prefix) as reader:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for value in [*[order(number) for number in range(9)], order(9, "paid"), b"no JSON"]:
            producer.produce(f"{prefix}-orders", value, b"k")
        producer.flush(10)
        arguments = ("map", "check", "parity", "--config", str(config))
        result = await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, skysail, arguments)
        assert result.exit_code == 1
        assert f"{prefix}-orders: 9 mapped, 1 filtered, 1 cannot be mapped" in result.stdout
        assert "[8.0, 1.0]" in result.stdout
        assert "value: is no JSON" in result.stdout
        assert f"{prefix}-truths: 0 mapped" in result.stdout
        last = await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, skysail, (*arguments, "--count", "2"))
        assert f"{prefix}-orders: 0 mapped, 1 filtered, 1 cannot be mapped" in last.stdout
        missing = {"topic": f"{prefix}-nowhere", "fields": {"score": "answer"}}
        given = {"prefix": prefix, "kafka": {"bootstrap": kafka.bootstrap}}
        config.write_text(json.dumps({**given, "applications": {"parity": {**mapped(prefix), "to": missing}}}))
        refused = await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, skysail, arguments)
        assert refused.exit_code == 1
        assert f"there is no topic {prefix}-nowhere" in str(refused.exception)
        assert not await reader.getmany(timeout_ms=100)
