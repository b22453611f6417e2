"""`skysail record` on a real Apache Kafka: killed and started again, spans, what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config import configuration
from deploy.config.settings import Settings
from deploy.errors import UsageError
from load.harness.topics import delete
from schemas.codec import Codec
from streams.operators.contract import Emit
from streams.runtime.kafka.connection import KafkaConnection
from streams.trace import manifest as manifests
from streams.trace.manifest import TraceError
from streams.trace.reader import Trace
from tests.kafka import producing, take
from tests.samples import FULL, NOW_US

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deploy.local.services import Broker
    from streams.operators.contract import Record

PARTITIONS = 3
CODEC = Codec()
QUERY, FEEDBACK = FULL[0], FULL[4]
TOPICS = ("queries", "feedback")


@pytest.fixture
def shop(kafka: Broker, prefix: str) -> Iterator[KafkaConnection]:
    """Create two topics of a deployment."""
    connection = KafkaConnection(kafka.bootstrap, prefix)
    kafka.create_topics({connection.real(name): PARTITIONS for name in TOPICS})
    yield connection
    delete(kafka.bootstrap, prefix)


@pytest.fixture
def config(shop: KafkaConnection, tmp_path: Path) -> str:
    """Write the settings for the command."""
    settings = Settings.model_validate({"prefix": shop.prefix, "kafka": {"bootstrap": shop.bootstrap}})
    return str(configuration.write(settings, tmp_path / "skysail.yaml"))


def command(*arguments: str) -> subprocess.Popen[str]:
    """Start a command line."""
    argv = [sys.executable, "-m", "deploy.cli", *arguments]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def run(*arguments: str) -> str:
    """Run a command line in this process; return what it printed."""
    result = CliRunner(env=dict(os.environ)).invoke(skysail, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


async def put(connection: KafkaConnection, count: int, first: int = 0) -> None:
    """Write to both topics, a record a millisecond, some of which are none of ours."""
    values = {"queries": QUERY, "feedback": FEEDBACK}
    async with producing(connection) as transport:
        for topic, record in values.items():
            for partition in range(PARTITIONS):
                emits = [
                    Emit(topic, partition, b"%d" % at, value(record, at), headers=(("at", b"%d" % at),))
                    for at in range(first, first + count)
                ]
                while emits:
                    emits = emits[await transport.send(topic, partition, emits) :]


def value(record: object, at: int) -> bytes:
    """Return a record's bytes, each tenth cut off."""
    whole = CODEC.encode(record._replace(sent_us=NOW_US + at))  # type: ignore[attr-defined] # both have one
    return whole[:-1] if at % 10 == 0 else whole


async def in_kafka(connection: KafkaConnection, topic: str) -> list[Record]:
    """Return what a topic holds, by partition and offset."""
    return sorted(await take(connection, topic), key=lambda record: record[:3])


def in_trace(folder: Path, topic: str) -> list[Record]:
    """Return what a trace holds of a topic, by partition and offset."""
    return sorted(Trace.open(folder).records(topic), key=lambda record: record[:3])


async def recorded(folder: Path, count: int) -> None:
    """Wait until a trace has so many records."""
    async with asyncio.timeout(60):
        while True:
            try:
                if manifests.read(folder).count >= count:
                    return
            except TraceError:
                pass
            await asyncio.sleep(0.05)


async def test_a_recorder_that_is_killed_goes_on_and_loses_and_doubles_nothing(
    shop: KafkaConnection, config: str, tmp_path: Path
) -> None:
    """SIGKILL, twice, while records come in; the last one reads on until Ctrl-C, and says what there is."""
    folder = tmp_path / "trace"
    for life in range(3):
        await put(shop, 2_000, first=2_000 * life)
        process = command("record", str(folder), "--config", config, "--follow", "--json")
        last = life == 2
        await recorded(folder, 12_000 * life + (12_000 if last else 1))
        process.send_signal(signal.SIGINT if last else signal.SIGKILL)
        out, fault = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0, fault
    assert json.loads(out)["records"] == 6_000 * PARTITIONS * len(TOPICS)
    for topic in TOPICS:
        assert in_trace(folder, topic) == await in_kafka(shop, topic)


def test_a_span_by_offset_and_by_time(shop: KafkaConnection, config: str, tmp_path: Path) -> None:
    """Kafka finds the place of a time; a trace has exactly what lies between."""
    asyncio.run(put(shop, 50))
    run("record", str(tmp_path / "a"), "--config", config, "--from", "10", "--until", "20")
    assert [one.offset for one in in_trace(tmp_path / "a", "queries")] == [*range(10, 20)] * PARTITIONS
    run("record", str(tmp_path / "b"), "--config", config, "--since", "1h", "--topics", "queries")
    assert in_trace(tmp_path / "b", "queries") == asyncio.run(in_kafka(shop, "queries"))
    said = json.loads(run("record", str(tmp_path / "c"), "--config", config, "--from", "now", "--json"))
    assert said["records"] == 0


def test_a_topic_that_is_not_there_is_said(shop: KafkaConnection, config: str, tmp_path: Path) -> None:
    """With those that are."""
    with pytest.raises(UsageError, match="there are: feedback, queries"):
        run("record", str(tmp_path / "a"), "--config", config, "--topics", "querries")


def test_a_trace_is_shown_and_its_damage_found(shop: KafkaConnection, config: str, tmp_path: Path) -> None:
    """The message names the file."""
    folder = tmp_path / "trace"
    asyncio.run(put(shop, 20))
    assert "120 records" in run("record", str(folder), "--config", config)
    assert "queries" in run("trace", "show", str(folder))
    path = next(folder.glob("queries-*.avro"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TraceError, match=f"{path.name} is damaged: 1 bytes are missing"):
        run("trace", "show", str(folder))
