"""Tests of the local Apache Kafka: it starts from pip alone, keeps what it was given, and goes without a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from deploy.errors import MissingError
from deploy.local.admin import answers
from deploy.local.jars import missing, pinned
from deploy.local.process import free_port, listens
from deploy.local.services import Broker, open_broker

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.apache import ApacheKafka


def produce(bootstrap: str, topic: str, *values: bytes) -> None:
    """Write values to partition 0 and wait for every acknowledgement."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4_000_000})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(30) == 0
    assert not failures


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Read the first values of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [message.value() for message in messages]


def test_topics_are_created_once_with_their_partitions(kafka: Broker, prefix: str) -> None:
    """Creating a topic again leaves it alone, and unknown topics do not come into being."""
    kafka.create_topics({f"{prefix}.a": 3, f"{prefix}.b": 1})
    kafka.create_topics({f"{prefix}.a": 7})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": prefix})
    topics = consumer.list_topics(timeout=10).topics
    assert len(consumer.list_topics(f"{prefix}.none", timeout=10).topics[f"{prefix}.none"].partitions) == 0
    consumer.close()
    assert {name: len(topics[name].partitions) for name in topics if name.startswith(prefix)} == {
        f"{prefix}.a": 3,
        f"{prefix}.b": 1,
    }


def test_a_record_of_two_mebibytes_passes(kafka: Broker, prefix: str) -> None:
    """The dead letter of an oversized original fits."""
    kafka.create_topics({prefix: 1})
    produce(kafka.bootstrap, prefix, bytes(2 * 1024 * 1024))
    assert [len(value) for value in consume(kafka.bootstrap, prefix, 1)] == [2 * 1024 * 1024]


def test_a_running_broker_is_used_by_its_address(kafka: Broker) -> None:
    """`HOST:PORT` probes and neither starts nor stops anything."""
    broker = open_broker(kafka.bootstrap)
    broker.stop()
    assert answers(kafka.bootstrap)


def test_an_address_where_nobody_answers_is_an_error() -> None:
    """The message names the address and the way to have a broker started."""
    with pytest.raises(MissingError, match=r"No broker answers at 127\.0\.0\.1:\d+\. .*BROKER=apache"):
        open_broker(f"127.0.0.1:{free_port()}", probe_s=0.5)


def test_acknowledged_records_survive_kill_and_restart_on_the_same_port(own_kafka: ApacheKafka) -> None:
    """After kill -9 and after an orderly restart the same address serves the same records."""
    address, first_pid = own_kafka.bootstrap, own_kafka.pid
    own_kafka.create_topics({"kept": 1})
    produce(address, "kept", b"one", b"two")
    own_kafka.kill()
    assert own_kafka.pid is None
    assert not listens(own_kafka.port)
    own_kafka.start()
    assert own_kafka.bootstrap == address
    assert own_kafka.pid != first_pid
    own_kafka.restart()
    produce(address, "kept", b"three")
    assert consume(address, "kept", 3) == [b"one", b"two", b"three"]


def test_stopping_leaves_no_process_and_no_temporary_data(own_kafka: ApacheKafka) -> None:
    """A broker with a temporary folder is gone without a trace."""
    pid, data = own_kafka.pid, own_kafka.data
    assert pid is not None
    assert data.exists()
    own_kafka.stop()
    assert not psutil.pid_exists(pid)
    assert not data.exists()


def test_without_jars_and_network_the_embedded_broker_is_offered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error says what failed and names BROKER=embedded; nothing half-fetched is kept."""
    monkeypatch.setenv("SKYSAIL_CACHE", str(tmp_path))
    for variable in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(MissingError, match=r"could not be fetched(.|\n)*BROKER=embedded"):
        open_broker("apache")
    folder = tmp_path / f"kafka-{pinned().version}"
    assert missing(folder, pinned().jars) == pinned().jars
    assert list(folder.iterdir()) == []
