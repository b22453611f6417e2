"""Tests of the embedded broker with the client that the product uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiokafka
import pytest
from aiokafka.errors import KafkaConnectionError

from deploy.errors import StartError
from deploy.local.embedded import EmbeddedBroker
from deploy.local.services import open_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCE = 0  # ApiKey
NOT_LEADER = 6  # error codes
INVALID_TOPIC = 17


@pytest.fixture
def embedded() -> Iterator[EmbeddedBroker]:
    """Run an embedded broker for this test."""
    with EmbeddedBroker() as broker:
        yield broker


async def send(bootstrap: str, topic: str, value: bytes) -> int:
    """Write one value and return its offset."""
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    try:
        await producer.start()
        return (await producer.send_and_wait(topic, value, partition=0)).offset
    finally:
        await producer.stop()


async def test_a_group_reads_what_was_written(embedded: EmbeddedBroker, prefix: str) -> None:
    """Producer, group and consumer of aiokafka work, and the group forms without the three-second delay."""
    embedded.create_topics({prefix: 3})
    await send(embedded.bootstrap, prefix, b"hello")
    consumer = aiokafka.AIOKafkaConsumer(
        prefix,
        bootstrap_servers=embedded.bootstrap,
        group_id=prefix,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=5,
    )
    async with consumer:
        record = await consumer.getone()
        assert record.value == b"hello"
        assert len(consumer.partitions_for_topic(prefix)) == 3


async def test_creating_a_topic_again_leaves_it_alone(embedded: EmbeddedBroker, prefix: str) -> None:
    """The second creation changes nothing and is no error, as on Apache Kafka."""
    embedded.create_topics({prefix: 2})
    embedded.create_topics({prefix: 5})
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=embedded.bootstrap) as producer:
        assert await producer.partitions_for(prefix) == {0, 1}


async def test_pushed_errors_reach_the_client_once(embedded: EmbeddedBroker, prefix: str) -> None:
    """A retriable error is retried by the client; one that is not reaches the caller; then all is well again."""
    embedded.create_topics({prefix: 1})
    embedded.cluster.push_request_errors(PRODUCE, [NOT_LEADER])
    assert await send(embedded.bootstrap, prefix, b"retried") == 0
    embedded.cluster.push_request_errors(PRODUCE, [INVALID_TOPIC])
    with pytest.raises(aiokafka.errors.InvalidTopicError):
        await send(embedded.bootstrap, prefix, b"refused")
    assert await send(embedded.bootstrap, prefix, b"well") == 1


async def test_pushed_errors_can_be_taken_back(embedded: EmbeddedBroker, prefix: str) -> None:
    """Clearing forgets the errors that no request has met yet."""
    embedded.create_topics({prefix: 1})
    embedded.cluster.push_request_errors(PRODUCE, [INVALID_TOPIC])
    embedded.cluster.clear_request_errors(PRODUCE)
    assert await send(embedded.bootstrap, prefix, b"well") == 0


async def test_a_broker_that_is_down_refuses_and_comes_back(embedded: EmbeddedBroker, prefix: str) -> None:
    """Down means no connection; up again means that earlier data are still there."""
    embedded.create_topics({prefix: 1})
    await send(embedded.bootstrap, prefix, b"before")
    embedded.cluster.broker_down()
    with pytest.raises(KafkaConnectionError):
        await send(embedded.bootstrap, prefix, b"lost")
    embedded.cluster.broker_up()
    assert await send(embedded.bootstrap, prefix, b"after") == 1


def test_an_unknown_broker_is_an_error_and_not_a_crash(embedded: EmbeddedBroker) -> None:
    """A refusal of the library becomes an exception that names the call."""
    with pytest.raises(StartError, match="rd_kafka_mock_broker_set_down"):
        embedded.cluster.broker_down(99)


def test_after_stop_it_is_an_error_to_ask_for_it() -> None:
    """A stopped broker has no address; it can be started again, empty."""
    broker = open_broker("embedded")
    assert broker.bootstrap.startswith("127.0.0.1:")
    broker.stop()
    with pytest.raises(StartError, match="not running"):
        _ = broker.bootstrap
