"""A topic that is there is scored into another one, and taught from a third: nobody sees a record of Skysail's own."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from deploy.cli import skysail
from deploy.connect.schema_registry import Registry
from schemas import topics
from schemas.records import Observations, Query, Tensor
from tests.apicurio import Apicurio
from tests.deployments import PATIENT_MS, ROLES, UNTIL_S, Toy, deployed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
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


async def test_which_queries_feedback_is_about_is_shown_before_anything_runs(
    kafka: Broker, prefix: str, tmp_path: Path
) -> None:
    """By id and by key; under another key it would be looked for elsewhere; what cannot be mapped says its path."""
    application = mapped(prefix) | {
        "from": {"topic": f"{prefix}-orders", "id": "id", "key": "user", "input": ["amount", "items"]},
        "feedback": [
            {"topic": f"{prefix}-truths", "id": "id", "key": "user", "label": "is_odd"},
            {"topic": f"{prefix}-clicks", "key": "user", "within": "5m", "loss": "0 if clicked else 1"},
        ],
    }
    config = tmp_path / "skysail.yaml"
    given = {"prefix": prefix, "kafka": {"bootstrap": kafka.bootstrap}, "applications": {"parity": application}}
    config.write_text(json.dumps(given))
    async with others(kafka, prefix):
        await asyncio.to_thread(kafka.create_topics, {f"{prefix}-clicks": 2})
        producer = Producer({"bootstrap.servers": kafka.bootstrap})

        def write(topic: str, *rows: dict[str, Any]) -> None:
            for row in rows:
                producer.produce(f"{prefix}-{topic}", json.dumps(row).encode())
            producer.flush(10)

        write("orders", *({"id": f"o-{user}", "user": user, "amount": 1, "items": 2} for user in ("ann", "bob")))
        write(
            "truths",
            {"id": "o-ann", "user": "ann", "is_odd": 1},
            {"id": "o-ann", "user": "bob", "is_odd": 0},
            {"id": "o-eve", "user": "eve", "is_odd": None},
            {"order": "o-ann", "user": "ann", "is_odd": 1},
        )
        write("clicks", {"user": "bob", "clicked": True}, {"user": "eve", "clicked": False})
        arguments = ("feedback", "check", "parity", "--config", str(config))
        result = await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, skysail, arguments)
        assert result.exit_code == 1
        told = result.stdout
        assert f"{prefix}-truths: 2 mapped, 1 nothing_told, 1 cannot be mapped; 1 find their query" in told
        assert f"{prefix}-clicks: 2 mapped, 0 cannot be mapped; 1 find their query" in told
        assert "its query has key ann, not bob" in told
        assert "o-bob, " in told
        assert "none of that key before, of the last 2" in told
        assert "id: there is no such field; there are: order, user, is_odd" in told
        assert f"{prefix}-orders" not in told
        plain = await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, skysail, (*arguments, "--json"))
        by_topic = {each["topic"]: each for each in json.loads(plain.stdout)}
        assert [each["query"]["query_id"] for each in by_topic[f"{prefix}-truths"]["mapped"]] == ["o-ann", None]


async def test_clicks_that_name_a_user_and_a_time_teach_about_the_last_answer(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Nobody who clicks knows the query; each click is about the latest order of its user, and about that alone."""
    application = mapped(prefix) | {
        "from": {
            "topic": f"{prefix}-orders",
            "id": "id",
            "key": "user",
            "input": ["amount", "items"],
            "begin": "earliest",
        },
        "feedback": [
            {"topic": f"{prefix}-truths", "id": "id", "key": "user", "label": "is_odd"},
            {"topic": f"{prefix}-clicks", "key": "user", "within": "5m", "loss": "0 if clicked else 1"},
        ],
    }
    users, shape = ("ann", "bob", "eve"), {"processes": "shared", "roles": (*ROLES, "mapping")}
    async with (
        others(kafka, prefix) as reader,
        deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, {"parity": application}, **shape) as there,
    ):
        await asyncio.to_thread(kafka.create_topics, {f"{prefix}-clicks": 2})
        await there.watch.until(lambda: "mapping" in there.watch.reports(), "the role reports")
        for turn in range(3):
            for user in users:
                row = {"id": f"{user}-{turn}", "user": user, "amount": turn, "items": 1}
                there.producer.produce(f"{prefix}-orders", json.dumps(row).encode())
            there.producer.flush(10)
            await _scored(reader, {f"{user}-{turn}" for user in users})
        for user in users[:2]:
            there.producer.produce(f"{prefix}-clicks", json.dumps({"user": user, "clicked": user == "ann"}).encode())
        there.producer.produce(f"{prefix}-truths", json.dumps({"id": "eve-0", "user": "eve", "is_odd": 1}).encode())
        there.producer.produce(f"{prefix}-clicks", json.dumps({"user": "nobody", "clicked": True}).encode())
        there.producer.flush(10)
        watch = there.watch

        def learnt() -> dict[str, float | None]:
            seen = [one for each in watch.decoded(Observations, topics.OBSERVATIONS) for one in each.items]
            return {one.query_id: one.loss for one in seen}

        await watch.until(lambda: len(learnt()) >= 3, "all is taught")
        assert learnt() == {"ann-2": 0.0, "bob-2": 1.0, "eve-0": learnt()["eve-0"]}
        assert not watch.dead(topics.FEEDBACK)


async def test_feedback_that_is_corrected_teaches_once_by_its_last_record(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """One order is corrected, one is taken back by a tombstone, one told about once."""
    application = mapped(prefix) | {
        "from": {"topic": f"{prefix}-orders", "id": "id", "input": ["amount", "items"]},
        "feedback": [{"topic": f"{prefix}-truths", "id": "id", "loss": "wrong", "replaces": True}],
        "window_s": 12.0,
    }
    ids, shape = ("o-corrected", "o-withdrawn", "o-once"), {"processes": "shared", "roles": (*ROLES, "mapping")}
    async with (
        others(kafka, prefix) as reader,
        deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, {"parity": application}, **shape) as there,
    ):
        await there.watch.until(lambda: "mapping" in there.watch.reports(), "the role reports")
        for each in ids:
            there.producer.produce(f"{prefix}-orders", json.dumps({"id": each, "amount": 1, "items": 1}).encode())
        there.producer.flush(10)
        await _scored(reader, {*ids})
        for each, wrong in ((ids[0], 1), (ids[1], 1), (ids[2], 1), (ids[0], 0)):
            told = json.dumps({"id": each, "wrong": wrong}).encode()
            there.producer.produce(f"{prefix}-truths", told, each.encode())
            there.producer.flush(10)
        there.producer.produce(f"{prefix}-truths", None, ids[1].encode())
        there.producer.flush(10)
        watch = there.watch

        def learnt() -> list[tuple[str, float | None]]:
            seen = [one for each in watch.decoded(Observations, topics.OBSERVATIONS) for one in each.items]
            return [(one.query_id, one.loss) for one in seen]

        await watch.until(lambda: len(learnt()) >= 2, "both are taught")
        await watch.until(
            lambda: watch.counter("joiner", "revised_total{outcome=withdrawn}") == 1.0, "the third one is taken back"
        )
        assert sorted(learnt()) == [("o-corrected", 0.0), ("o-once", 1.0)]
        assert not watch.dead(topics.FEEDBACK)
        assert not watch.dead(topics.MAPPING)


async def _scored(reader: AIOKafkaConsumer, ids: set[str]) -> None:
    """Wait until these orders have been scored."""
    left = set(ids)
    async with asyncio.timeout(UNTIL_S):
        while left:
            for records in (await reader.getmany(timeout_ms=200)).values():
                left -= {json.loads(record.value)["id"] for record in records}


PROTO = """
syntax = "proto3";
package shop;
message Ignored { int32 x = 1; }
message Order { string id = 1; Size size = 2; }
message Size { double amount = 1; double items = 2; }
"""
AVRO_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": kind} for name, kind in (("id", "string"), ("amount", "int"), ("items", "int"))],
}
SCORED = {
    "type": "record",
    "name": "Scored",
    "fields": [{"name": "id", "type": "string"}, {"name": "score", "type": "long"}],
}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Apicurio]:
    """Return a real registry."""
    with Apicurio(tmp_path / "registry") as running:
        yield running


async def test_records_of_a_registrys_schemas_are_read_and_written(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, registry: Apicurio
) -> None:
    """Avro in and out, a newer schema while it runs, and Protobuf; Confluent's client is on both ends."""
    applications = {
        "avro": mapped(prefix)
        | {
            "from": {
                "topic": f"{prefix}-orders", "format": "avro", "schema": "registry", "id": "id",
                "input": ["amount", "items"],
            },
            "to": {
                "topic": f"{prefix}-scored", "format": "avro", "schema": "registry",
                "fields": {"id": "id", "score": "answer"},
            },
            "feedback": [],
        },
        "protobuf": mapped(prefix)
        | {
            "from": {
                "topic": f"{prefix}-truths", "format": "protobuf", "schema": "registry", "id": "id",
                "input": ["size.amount", "size.items"],
            },
            "to": None,
            "feedback": [],
        },
    }  # fmt: skip
    del applications["protobuf"]["to"]
    client = Registry({"url": registry.url}).client
    number = client.register_schema(f"{prefix}-truths-value", Schema(PROTO, "PROTOBUF"))
    client.register_schema(f"{prefix}-scored-value", Schema(json.dumps(SCORED), "AVRO"))
    more = {"processes": "shared", "roles": (*ROLES, "mapping"), "registry": {"url": registry.url}}
    async with (
        others(kafka, prefix) as reader,
        deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, applications, **more) as there,
    ):
        await there.watch.until(lambda: "mapping" in there.watch.reports(), "the role reports")
        newer = {**AVRO_ORDER, "fields": [{"name": "note", "type": ["null", "string"], "default": None},
                                          *AVRO_ORDER["fields"]]}  # fmt: skip
        for version, schema in enumerate((AVRO_ORDER, newer)):
            write = AvroSerializer(client, json.dumps(schema))
            for number_of in range(5):
                row = {"id": f"o-{version}-{number_of}", "amount": number_of, "items": 1, "note": "x"}
                there.producer.produce(
                    f"{prefix}-orders", write(row, SerializationContext(f"{prefix}-orders", MessageField.VALUE))
                )
        there.producer.produce(f"{prefix}-orders", b"\0\0\0\x7f\xff?")
        body = b"\x0a\x03p-1\x12\x12" + b"\x09" + struct.pack("<d", 2.0) + b"\x11" + struct.pack("<d", 1.0)
        there.producer.produce(f"{prefix}-truths", b"\0" + number.to_bytes(4, "big") + b"\x02\x02" + body)
        there.producer.flush(10)
        decode, found = AvroDeserializer(client), dict[str, int]()
        async with asyncio.timeout(UNTIL_S):
            while len(found) < 10:
                for records in (await reader.getmany(timeout_ms=200)).values():
                    for record in records:
                        row = decode(record.value, SerializationContext(f"{prefix}-scored", MessageField.VALUE))
                        found[row["id"]] = row["score"]
        assert {*found} == {f"o-{version}-{number_of}" for version in range(2) for number_of in range(5)}
        assert {*found.values()} <= {0, 1}
        watch = there.watch
        await watch.until(lambda: watch.dead(topics.MAPPING), "the dead letter")
        assert "the registry has no schema 32767" in watch.dead(topics.MAPPING)[0].headers["message"]

        def asked() -> list[Query]:
            return [query for query in watch.decoded(Query, topics.QUERIES) if query.application == "protobuf"]

        await watch.until(asked, "the message is asked about")
        assert asked()[0].query_id == "p-1"
        client.close()
        assert asked()[0].input == Tensor.of(np.array([2, 1], np.float32))
