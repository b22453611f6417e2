"""Messages of a topic on a real broker: from where they are read, and where reading ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from deploy.config.settings import Settings
from deploy.connect.clients import librdkafka
from deploy.errors import UsageError
from deploy.local.admin import admin_client
from deploy.state.messages import messages, records
from load.harness.topics import delete
from streams.runtime.kafka.admin import create

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.local.services import Broker

TOPIC = "observations"
SECOND_US = 1_000_000
# A broker deletes what is older than its retention, every few minutes.
BEGAN_S = int(time.time()) - 60


@pytest.fixture
def settings(kafka: Broker, prefix: str) -> Iterator[Settings]:
    """Settings of a deployment with ten messages a second apart, in turns in two of three partitions."""
    create(admin_client(kafka.bootstrap), {f"{prefix}.{TOPIC}": 3})
    found = Settings.model_validate({"prefix": prefix, "kafka": {"bootstrap": kafka.bootstrap}})
    write(found, Producer(librdkafka(found)), range(1, 11))
    yield found
    delete(kafka.bootstrap, prefix)


def at_us(second: int) -> int:
    """Return when the message of this second was written."""
    return (BEGAN_S + second) * SECOND_US


def write(settings: Settings, producer: Producer, seconds: range) -> None:
    """Write a message for each second."""
    for second in seconds:
        producer.produce(
            f"{settings.prefix}.{TOPIC}", str(second), partition=second % 2, timestamp=at_us(second) // 1_000
        )
    producer.flush(10)


def test_from_a_time_on_every_partition_begins_with_the_first_that_is_as_late(settings: Settings) -> None:
    """A partition without any begins at its end."""
    found = {int(record.value or b"") for record in records(settings, TOPIC, at_us(7) - 500)}
    assert found == {7, 8, 9, 10}
    assert {record.timestamp_us for record in records(settings, TOPIC, at_us(10))} == {at_us(10)}
    assert [*records(settings, TOPIC, at_us(11))] == []


def test_from_the_beginning_all_are_read_and_from_the_end_none(settings: Settings) -> None:
    """What comes later is not waited for."""
    assert {int(record.value or b"") for record in records(settings, TOPIC)} == set(range(1, 11))
    assert [*messages(settings, TOPIC, stops_at_end=True)] == []


def test_a_log_that_ends_with_a_marker_of_a_transaction_ends_all_the_same(settings: Settings) -> None:
    """The marker takes an offset, and is no message. Each partition has it soon after the commit is answered."""
    producer = Producer({**librdkafka(settings), "transactional.id": settings.prefix})
    producer.init_transactions(10)
    producer.begin_transaction()
    write(settings, producer, range(11, 13))
    producer.commit_transaction(10)
    deadline = time.monotonic() + 60.0
    found: set[int] = set()
    while not {11, 12} <= found and time.monotonic() < deadline:
        found = {int(record.value or b"") for record in records(settings, TOPIC)}
    assert found == set(range(1, 13))


def test_a_topic_that_is_not_there_is_named(settings: Settings) -> None:
    """With those that are."""
    with pytest.raises(UsageError, match=rf"there is no topic {settings.prefix}.nothing; there are: {TOPIC}"):
        next(messages(settings, "nothing"))
